"""Extract the logits from any classifier's output.

=================================================== ==============================================
a tensor (timm, torchvision)                        itself
``.logits`` (Hugging Face, torchvision's GoogLeNet)   that
a mapping with ``"logits"``, or with one tensor     that
two tensors of one shape (class, distillation head) their mean, as in DeiT
any other tuple or list                             its first tensor with two or more dimensions
=================================================== ==============================================

Half precision becomes single. Any other output is an error that describes it.

Shapes: B images, K classes.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vitascope.errors import UserError

__all__ = ["heads_of", "logits_of"]


def heads_of(output: Any) -> tuple[Tensor, Tensor]:
    """Logits of the class head and of the distillation head; of the only head twice. (B, K)"""
    if isinstance(output, (tuple, list)) and len(output) == 2 and not hasattr(output, "logits"):
        first, second = output
        if isinstance(first, Tensor) and isinstance(second, Tensor) and first.shape == second.shape:
            return _single(first), _single(second)
    logits = _single(_found(output))
    return logits, logits


def logits_of(output: Any) -> Tensor:
    """A model's output as logits. (B, K)

    >>> logits_of((torch.zeros(1, 2), torch.ones(1, 2))).tolist()
    [[0.5, 0.5]]

    Raises:
        UserError: If there are none in it.
    """
    first, second = heads_of(output)
    return first if first is second else (first + second) / 2


def _found(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    named = output.get("logits") if isinstance(output, Mapping) else None
    named = getattr(output, "logits", None) if named is None else named
    if isinstance(named, Tensor):
        return named
    if isinstance(output, Mapping):
        tensors = [value for value in output.values() if isinstance(value, Tensor)]
        if len(tensors) == 1:
            return tensors[0]
        description = f"a mapping of {', '.join(map(str, list(output)[:6])) or 'nothing'}"
        raise UserError(f"the model puts out {description}; logits are looked for under 'logits'")
    if isinstance(output, (tuple, list)):
        for part in output:
            if isinstance(part, Tensor) and part.ndim > 1:
                return part
        if output and not isinstance(output[0], Tensor):
            return _found(output[0])
    raise UserError(f"the model puts out no logits but {type(output).__name__}")


def _single(tensor: Tensor) -> Tensor:
    """Return the tensor in single precision at least."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
