"""LocalViT: a ViT whose feed-forward parts look at their neighbours.

Li et al. 2021 (https://arxiv.org/abs/2104.05707): between the two linear maps of a feed-forward
part stands a depth-wise 3 x 3 convolution over the grid, which makes it an inverted residual block:

    Y = f(f(Z * W_1) * W_d) * W_2,      f = h-swish,   W_1, W_2: 1 x 1,   W_d: 3 x 3 depth-wise

with batch norm after each convolution in place of the layer norm before, and squeeze-and-excitation
to 4 channels before W_2 (the paper's 74.8 % model: 5.9M parameters, 1.3 GFLOPs). The block itself
is timm's ``InvertedResidual``. The class token passes by: nothing is added to it. So the last
feed-forward part reaches the logits only with ``global_pool="avg"``, as in the released model.

Drop path acts on both residual branches; the released code leaves it out of the second.

Shapes: B images, N patches on a grid (h, w), T = prefix tokens + N, D width.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from timm.models._efficientnet_blocks import InvertedResidual, SqueezeExcite
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.models.vit.grid_vit import GridViT

SQUEEZED = 4  # channels of squeeze-and-excitation: 768 / 192 in LocalViT-T


class LocalFeedForward(InvertedResidual):
    """An inverted residual block, without its residual, on tokens."""

    def __init__(self, dim: int, mlp_ratio: float, **factory: Any):
        squeeze: Any = partial(
            SqueezeExcite,
            rd_channels=SQUEEZED,
            force_act_layer=nn.ReLU,
            gate_layer="hard_sigmoid",
        )
        super().__init__(
            dim,
            dim,
            exp_ratio=mlp_ratio,
            act_layer=nn.Hardswish,
            se_layer=squeeze,
            noskip=True,
            **factory,
        )

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D), zero for prefix tokens"""
        prefix = x.shape[1] - grid[0] * grid[1]
        image = x[:, prefix:].mT.unflatten(-1, tuple(grid))  # (B, D, h, w)
        return F.pad(super().forward(image).flatten(2).mT, (0, 0, prefix, 0))


class LocalBlock(Block):
    """timm's transformer block with a local feed-forward part."""

    def __init__(self, dim: int, num_heads: int, *, mlp_ratio: float = 4.0, **kwargs: Any):
        super().__init__(dim, num_heads, **kwargs)
        factory = {n: kwargs[n] for n in ("device", "dtype") if kwargs.get(n) is not None}
        self.norm2 = nn.Identity()  # batch norms inside take its place
        self.mlp = LocalFeedForward(dim, mlp_ratio, **factory)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:  # type: ignore[override]
        """(B, T, D) -> (B, T, D)"""
        x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x))))
        return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x), grid)))


class LocalViT(GridViT):
    """timm's ViT with local feed-forward parts; arguments as there."""

    def __init__(self, **kwargs: Any):
        super().__init__(block_fn=LocalBlock, **kwargs)
