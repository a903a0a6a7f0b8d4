"""Residual blocks: two of convolutions and one of attention, in two orders.

Pre-activation (He et al. 2016, https://arxiv.org/abs/1603.05027): normalise and activate before
each convolution, and leave the shortcut alone. Park and Kim 2022
(https://arxiv.org/abs/2202.06709, section 4.1) put windowed self-attention in place of the 3x3
convolutions of such a block:

    basic       BN - ReLU - 3x3 - BN - ReLU - 3x3
    bottleneck  BN - ReLU - 1x1 - BN - ReLU - 3x3 - BN - ReLU - 1x1
    msa         BN - GELU - 1x1 - BN - windowed attention, and no MLP

A block that changes the shape takes its shortcut behind the first activation, by a 1x1 convolution.
Where it halves the map, a convolution block does so in its first 3x3 convolution. An attention
block never begins a stage in the paper, and the released one cannot; ours averages 2 x 2 pixels
before its 1x1 convolution, so that every pixel counts.

Post-activation (He et al. 2015, https://arxiv.org/abs/1512.03385), the first form of the ResNet:
normalise and activate after each convolution, and activate the sum of branch and shortcut:

    basic       3x3 - BN - ReLU - 3x3 - BN, sum, ReLU
    bottleneck  1x1 - BN - ReLU - 3x3 - BN - ReLU - 1x1 - BN, sum, ReLU
    msa         1x1 - BN - GELU - windowed attention - BN, sum: Park and Kim's "AttentionBlockA"

A bottleneck whose 3x3 convolution is in groups is that of ResNeXt (Xie et al. 2017,
https://arxiv.org/abs/1611.05431).

Shapes: B images, maps (h, w) that a block of stride 2 halves, rounded up.
"""

from timm.layers import DropPath
from torch import Tensor, nn

from vitascope.layers.window import WindowAttention


class BasicBlock(nn.Module):
    """Two 3x3 convolutions next to a shortcut that is 1x1 where the shape changes."""

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


class PostActBasicBlock(nn.Module):
    """Two 3x3 convolutions next to a shortcut, and an activation after their sum."""

    expansion = 1

    def __init__(self, width: int, out: int, stride: int = 1, drop_path: float = 0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = _drop_path(drop_path)
        self.downsample = _normalised_shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.norm2(self.conv2(self.act(self.norm1(self.conv1(x)))))
        return self.act(self.downsample(x) + self.drop_path(y))


class PostActBottleneck(nn.Module):
    """A 3x3 convolution, in groups for ResNeXt, between two of 1x1.

    Args:
        width: Channels that come in.
        out: Channels that go out.
        stride: 2 halves the map in the 3x3 convolution.
        drop_path: Share of images whose branch is dropped while training.
        groups: Of the 3x3 convolution.
        group_width: Channels of a group in a stage that puts out 256, growing with the stages.
    """

    expansion = 4

    def __init__(
        self,
        width: int,
        out: int,
        stride: int = 1,
        drop_path: float = 0.0,
        *,
        groups: int = 1,
        group_width: int = 64,
    ):
        super().__init__()
        inner = out // self.expansion * group_width // 64 * groups
        self.conv1 = nn.Conv2d(width, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, padding=1, groups=groups, bias=False)
        self.norm2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(out)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = _drop_path(drop_path)
        self.downsample = _normalised_shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(self.conv1(x)))
        y = self.norm3(self.conv3(self.act(self.norm2(self.conv2(y)))))
        return self.act(self.downsample(x) + self.drop_path(y))


class PostActMSABlock(nn.Module):
    """Windowed self-attention in place of the 3x3 convolutions of a post-activation block.

    The arguments are those of :class:`MSABlock`. As released, nothing is activated after the sum.
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
        self.pool = nn.AvgPool2d(2, ceil_mode=True) if stride == 2 else nn.Identity()
        self.conv = nn.Conv2d(width, inner, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(inner)
        self.act = nn.GELU()
        self.attn = WindowAttention(
            inner, num_heads, window, head_dim=head_dim, dim_out=out, bias_per_head=bias_per_head
        )
        self.norm2 = nn.BatchNorm2d(out)
        self.drop_path = _drop_path(drop_path)
        self.downsample = _normalised_shortcut(width, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(self.conv(self.pool(x))))
        return self.downsample(x) + self.drop_path(self.norm2(self.attn(y)))


def _shortcut(width: int, out: int, stride: int) -> nn.Module | None:
    reshaped = stride != 1 or width != out
    return nn.Conv2d(width, out, 1, stride, bias=False) if reshaped else None


def _normalised_shortcut(width: int, out: int, stride: int) -> nn.Module:
    convolution = _shortcut(width, out, stride)
    return nn.Identity() if convolution is None else nn.Sequential(convolution, nn.BatchNorm2d(out))


def _drop_path(rate: float) -> nn.Module:
    return DropPath(rate) if rate > 0 else nn.Identity()
