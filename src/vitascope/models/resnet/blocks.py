"""Residual blocks in pre-activation order: two of convolutions and one of attention.

He et al. 2016 (https://arxiv.org/abs/1603.05027): normalise and activate before each convolution,
and leave the shortcut alone. Park and Kim 2022 (https://arxiv.org/abs/2202.06709, section 4.1) put
windowed self-attention in place of the 3x3 convolutions of such a block:

    basic       BN - ReLU - 3x3 - BN - ReLU - 3x3
    bottleneck  BN - ReLU - 1x1 - BN - ReLU - 3x3 - BN - ReLU - 1x1
    msa         BN - GELU - 1x1 - BN - windowed attention, and no MLP

A block that changes the shape takes its shortcut behind the first activation, by a 1x1 convolution.
Where it halves the map, a convolution block does so in its first 3x3 convolution. An attention
block never begins a stage in the paper, and the released one cannot; ours averages 2 x 2 pixels
before its 1x1 convolution, so that every pixel counts.

Shapes: B images, maps (h, w) that a block of stride 2 halves, rounded up.
"""

from timm.layers import DropPath
from torch import Tensor, nn

from vitascope.layers.window import WindowAttention


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut that is 1x1 where the shape changes."""

    expansion = 1

    def __init__(self, width: int, out: int, stride: int = 1, drop_path: float = 0.0):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = _drop_path(drop_path)
        self.downsample = _shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(x))
        shortcut = x if self.downsample is None else self.downsample(y)
        y = self.conv2(self.act(self.norm2(self.conv1(y))))
        return shortcut + self.drop_path(y)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two of 1x1, at a quarter of the width."""

    expansion = 4

    def __init__(self, width: int, out: int, stride: int = 1, drop_path: float = 0.0):
        super().__init__()
        inner = out // self.expansion
        self.norm1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, bias=False)
        self.norm3 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = _drop_path(drop_path)
        self.downsample = _shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(x))
        shortcut = x if self.downsample is None else self.downsample(y)
        y = self.conv2(self.act(self.norm2(self.conv1(y))))
        y = self.conv3(self.act(self.norm3(y)))
        return shortcut + self.drop_path(y)


class MSABlock(nn.Module):
    """Windowed self-attention at the inner width of the block it stands in for.

    Args:
        width: Channels that come in.
        out: Channels that go out.
        stride: 2 halves the map by averages before the attention.
        drop_path: Share of images whose branch is dropped while training.
        inner: Channels of the 1x1 convolution: the inner width of the stage's convolution blocks.
        num_heads: Heads of ``head_dim`` channels, whatever the inner width.
        window: Side of a window.
        bias_per_head: As in :class:`vitascope.layers.window.WindowAttention`.
    """

    def __init__(
        self,
        width: int,
        out: int,
        stride: int = 1,
        drop_path: float = 0.0,
        *,
        inner: int,
        num_heads: int,
        head_dim: int = 64,
        window: int = 7,
        bias_per_head: bool = False,
    ):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width)
        self.act = nn.GELU()
        self.pool = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.conv = nn.Conv2d(width, inner, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.attn = WindowAttention(
            inner, num_heads, window, head_dim=head_dim, dim_out=out, bias_per_head=bias_per_head
        )
        self.drop_path = _drop_path(drop_path)
        self.downsample = _shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(x))
        shortcut = x if self.downsample is None else self.downsample(y)
        y = self.attn(self.norm2(self.conv(self.pool(y))))
        return shortcut + self.drop_path(y)


def _shortcut(width: int, out: int, stride: int) -> nn.Module | None:
    reshaped = stride != 1 or width != out
    return nn.Conv2d(width, out, 1, stride, bias=False) if reshaped else None


def _drop_path(rate: float) -> nn.Module:
    return DropPath(rate) if rate > 0 else nn.Identity()
