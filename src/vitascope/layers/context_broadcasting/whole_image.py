"""Group the tokens of a batch by image, and find the padding among them.

A layer inside a block sees only its own tensor. The block's input says how many images there are:
an attention layer that gets more than that gets windows, side by side. If the windows hold more
than the block's tokens, the rest are zeros put in to fill them, and are known by being zero. Masked
tokens are known by the masks that blocks are called with.

Hooks are objects and share a :class:`TokenBatch`, so that a deep copy of the model has its own.

Shapes: B images, T tokens of one image, in all its windows.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.structure.features import tensor_in
from vitascope.errors import UserError

_MASKS = ("attention_mask", "attn_mask", "src_key_padding_mask")


@dataclass(eq=False)
class TokenBatch:
    """The batch that a layer works on, while its block runs."""

    name: str  # of the layer
    images: int = 0
    numel: int = 0  # of the block's input
    tokens: int = 0  # at the layer's input, in all images
    keep: Tensor | None = None  # False for padding; None without any. (B, T)
    met: bool = False  # has the layer's own hook run

    def windows_in(self, x: Tensor) -> int | None:
        """The number of images, if ``x`` holds several windows of each; None otherwise."""
        several = 0 < self.images < x.shape[0] and x.shape[0] % self.images == 0
        return self.images if several else None


def visible(name: str, mask: Any, images: int) -> Tensor | None:
    """Tokens that a mask leaves visible; None if it does not mark padding. (B, T)

    Args:
        name: The argument's name; ``src_key_padding_mask`` is true for padding, others for tokens.
        mask: (B, T), or (B, 1, T, T) with booleans or what is added to the scores.
        images: B.

    >>> visible("attention_mask", torch.tensor([[1, 1, 0]]), 1)
    tensor([[ True,  True, False]])
    """
    if not isinstance(mask, Tensor) or mask.ndim not in (2, 4) or mask.shape[0] != images:
        return None
    added = mask.is_floating_point() and (mask.ndim == 4 or name == "src_key_padding_mask")
    if added:
        seen = mask > torch.finfo(mask.dtype).min / 2
    else:
        seen = ~mask if name == "src_key_padding_mask" else mask > 0
    return seen if mask.ndim == 2 else seen.flatten(1, 2).any(dim=1)


def first_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The tensor that a module works on."""
    x = tensor_in(args) if args else tensor_in(kwargs)
    assert x is not None, "a module takes its tokens first"
    return x


class _BlockBegins:
    def __init__(self, block: nn.Module, batches: list[TokenBatch]):
        names = list(inspect.signature(block.forward).parameters)
        self.masks = [(name, names.index(name)) for name in _MASKS if name in names]
        self.batches = batches

    def __call__(self, _block: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, keep = first_tensor(args, kwargs), None
        for name, index in self.masks:
            mask = args[index] if index < len(args) else kwargs.get(name)
            keep = visible(name, mask, x.shape[0]) if keep is None else keep
        for batch in self.batches:
            batch.images, batch.numel, batch.keep, batch.met = x.shape[0], x.numel(), keep, False


class _BlockEnds:
    def __init__(self, batches: list[TokenBatch]):
        self.batches = batches

    def __call__(self, _block: nn.Module, _args: Any, _output: Any) -> None:
        for batch in self.batches:
            batch.keep = None
            if not batch.met:
                raise UserError(
                    f"{batch.name} was passed by: its block does not call it as a module"
                )


class _AttentionBegins:
    def __init__(self, batch: TokenBatch, width: int):
        self.batch, self.width = batch, width

    def __call__(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, batch = first_tensor(args, kwargs), self.batch
        batch.tokens = x.numel() // self.width
        if batch.windows_in(x) is not None and x.numel() != batch.numel:
            channels = -1 if x.shape[-1] == self.width else 1
            batch.keep = (x != 0).any(dim=channels).reshape(batch.images, -1)


def follow_block(block: nn.Module, batches: list[TokenBatch]) -> None:
    """Hook ``block``: each call fills ``batches`` on entry and clears the padding on return.

    A layer of ``batches`` that does not run inside the block is an error.
    """
    block.register_forward_pre_hook(_BlockBegins(block, batches), with_kwargs=True)
    block.register_forward_hook(_BlockEnds(batches))


def follow_attention(attention: nn.Module, batch: TokenBatch, width: int) -> None:
    """Hook ``attention``, of input ``width``: each call looks for padded windows."""
    attention.register_forward_pre_hook(_AttentionBegins(batch, width), with_kwargs=True)
