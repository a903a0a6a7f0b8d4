"""Names of the tokens that a model puts before its patches: class, distillation, registers.

Such a token is a parameter that is joined to the patches by ``torch.cat``. An expanded parameter
keeps its memory, so the call shows which parameter stands where, in any library.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitascope.capture.coordinates.tokens import one_image
from vitascope.capture.input_check import require_module
from vitascope.capture.structure.features import evaluating

__all__ = ["prefix_tokens", "token_names"]

_JOIN = {torch.cat, torch.concat, torch.concatenate}
_WORDS = {"dist": "distillation token", "reg": "register", "cls": "class token"}
_WORDS |= {"class": "class token"}


def prefix_tokens(model: nn.Module, example_input: Tensor) -> tuple[str, ...]:
    """Names of the prefix tokens in their order; empty where none can be told.

    >>> class Model(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.cls_token = nn.Parameter(torch.zeros(1, 1, 3))
    ...         self.reg_token = nn.Parameter(torch.zeros(1, 2, 3))
    ...
    ...     def forward(self, x):
    ...         x = x.flatten(2).mT
    ...         return torch.cat([t.expand(len(x), -1, -1) for t in self.parameters()] + [x], 1)
    >>> prefix_tokens(Model(), torch.zeros(1, 3, 2, 2))
    ('class token', 'register 1', 'register 2')
    """
    require_module(model)
    watch = _ConcatRecorder(model)
    with evaluating(model), watch:
        model(one_image(example_input))
    names: list[str] = []
    for parameter, count in watch.found.items():
        word = _word(parameter)
        names += [word] if count == 1 else [f"{word} {number + 1}" for number in range(count)]
    return tuple(names)


def token_names(known: tuple[str, ...], count: int) -> list[str]:
    """Names of ``count`` prefix tokens of a layer; numbers where they are not known.

    >>> token_names(("class token", "register 1"), 1), token_names((), 2)
    (['class token'], ['token 1', 'token 2'])
    """
    if len(known) >= count:
        return list(known[:count])
    return [f"token {number + 1}" for number in range(count)]


def _word(parameter: str) -> str:
    last = parameter.rpartition(".")[2]
    return next((word for part, word in _WORDS.items() if part in last.lower()), last)


class _ConcatRecorder(TorchFunctionMode):
    """Record the parameters concatenated with computed tensors, and how many tokens each is."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.names = {p.untyped_storage().data_ptr(): n for n, p in model.named_parameters()}
        self.found: dict[str, int] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _JOIN and args and isinstance(args[0], (tuple, list)):
            parts = [part for part in args[0] if isinstance(part, Tensor) and part.ndim == 3]
            named = [self.names.get(part.untyped_storage().data_ptr()) for part in parts]
            if None in named:  # something computed is among them
                for name, part in zip(named, parts, strict=True):
                    if name is not None:
                        self.found.setdefault(name, part.shape[1])
        return func(*args, **(kwargs or {}))
