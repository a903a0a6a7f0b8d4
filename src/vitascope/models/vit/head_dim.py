"""Transformer blocks whose heads have as many channels as one likes, whatever the width.

timm's ViT has heads of width / heads channels. Park and Kim 2022
(https://arxiv.org/abs/2202.06709, Fig. C.5 and C.6) change the number of heads, and the channels of
a head, at one width: queries, keys and values then have heads x channels in all, and the output
projection leads back to the width. ``create_model("vit_micro", num_heads=3, head_dim=16)`` builds
such a ViT; it works for every ViT and DeiT of ours and for ``vit_*_cifar``.
"""

from functools import partial
from typing import Any

from timm.models.vision_transformer import Block
from torch import nn

from vitascope.errors import UserError
from vitascope.layers.self_attention import SelfAttention

__all__ = ["HeadDimBlock", "with_head_dim"]


class HeadDimBlock(Block):
    """timm's block with ``num_heads`` heads of ``head_dim`` channels.

    >>> block = HeadDimBlock(dim=10, num_heads=3, head_dim=4)
    >>> block.attn.qkv.weight.shape, block.attn.proj.weight.shape
    (torch.Size([36, 10]), torch.Size([10, 12]))
    """

    def __init__(self, dim: int, num_heads: int, *, head_dim: int, **kwargs: Any):
        super().__init__(dim, num_heads=1, **kwargs)
        names = ("qkv_bias", "qk_norm", "proj_bias", "proj_drop", "attn_drop", "norm_layer")
        same = {name: kwargs[name] for name in names if name in kwargs}
        self.attn: nn.Module = SelfAttention(dim, num_heads, attn_head_dim=head_dim, **same)


def with_head_dim(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Arguments of timm's ViT, with the block for ``head_dim`` in place of it.

    >>> sorted(with_head_dim({"depth": 2, "head_dim": 8}))
    ['block_fn', 'depth']
    """
    if kwargs.get("head_dim") is None:
        return {name: value for name, value in kwargs.items() if name != "head_dim"}
    others, head_dim = dict(kwargs), kwargs["head_dim"]
    del others["head_dim"]
    if not isinstance(head_dim, int) or head_dim < 1:
        raise UserError(f"head_dim {head_dim!r} must be a whole number, 1 or more")
    return {**others, "block_fn": partial(HeadDimBlock, head_dim=head_dim)}
