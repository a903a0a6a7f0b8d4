"""Any backbone as a feature pyramid: maps of falling resolution for dense prediction.

Networks in stages (ResNet, AlterNet, Swin, PVT) have such maps; timm's ``features_only`` hands them
out. A plain transformer has one map at one resolution. From its last one the *simple feature
pyramid* of ViTDet (Li et al. 2022, https://arxiv.org/abs/2203.16527, section 3) makes four, of 4,
2, 1 and 1/2 times its resolution: strides 4, 8, 16 and 32 for patches of 16.

Each is upsampled by 2 x 2 deconvolutions of stride 2 (a layer norm and GELU between two of them) or
halved by max pooling, as in its released code (the paper's text says a convolution of stride 2);
then 1 x 1 and 3 x 3 convolutions, each with a layer norm, bring all to one width.

Shapes: B images, D width of the backbone, C channels of the pyramid, a map is (B, C, h, w).
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from timm.layers import LayerNorm2d
from timm.models._features import FeatureGetterNet
from torch import Tensor, nn

from vitascope.errors import UserError

SCALES = (4.0, 2.0, 1.0, 0.5)  # ViTDet


def rescale(width: int, scale: float) -> tuple[list[nn.Module], int]:
    """Layers that change the resolution by ``scale``, and the width they leave."""
    if scale == 0.5:
        return [nn.MaxPool2d(2)], width
    layers: list[nn.Module] = []
    while scale > 1:
        half = max(1, width // 2)
        layers += [LayerNorm2d(width), nn.GELU()] if layers else []
        layers.append(nn.ConvTranspose2d(width, half, 2, stride=2))
        width, scale = half, scale / 2
    if scale != 1:
        raise UserError("scales of a pyramid are 0.5, 1, 2, 4, 8, …")
    return layers, width


class SimplePyramid(nn.Module):
    """ViTDet's neck: one map in, a pyramid out.

    >>> import torch
    >>> maps = SimplePyramid(24, out_channels=8)(torch.zeros(1, 24, 6, 8))
    >>> [tuple(m.shape) for m in maps]
    [(1, 8, 24, 32), (1, 8, 12, 16), (1, 8, 6, 8), (1, 8, 3, 4)]
    """

    def __init__(self, width: int, *, out_channels: int = 256, scales: Sequence[float] = SCALES):
        super().__init__()
        self.levels = nn.ModuleList()
        for scale in scales:
            layers, left = rescale(width, scale)
            layers += [
                nn.Conv2d(left, out_channels, 1, bias=False),
                LayerNorm2d(out_channels),
                nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
                LayerNorm2d(out_channels),
            ]
            self.levels.append(nn.Sequential(*layers))

    def forward(self, x: Tensor) -> list[Tensor]:
        """(B, D, h, w) -> [(B, C, scale h, scale w)]"""
        return [level(x) for level in self.levels]


class FeaturePyramid(nn.Module):
    """A backbone that gives maps, finest first.

    Attributes:
        channels: Of each map.
        strides: Image pixels per pixel of each map.
    """

    def __init__(self, net: nn.Module, *, out_channels: int):
        super().__init__()
        info: Any = net.feature_info
        widths, strides = info.channels(), info.reduction()
        self.net = net
        self.channels_last = str(getattr(net, "output_fmt", "NCHW")).endswith("NHWC")
        self.plain = len(set(strides)) == 1
        self.neck: SimplePyramid | None = None
        if self.plain:
            self.neck = SimplePyramid(widths[-1], out_channels=out_channels)
            self.channels = [out_channels] * len(SCALES)
            self.strides = [strides[-1] / scale for scale in SCALES]
        else:
            coarse = [i for i, stride in enumerate(strides) if stride >= 4]
            self.taken = coarse if len(coarse) >= 3 else list(range(len(strides)))
            self.channels = [widths[i] for i in self.taken]
            self.strides = [float(strides[i]) for i in self.taken]

    def forward(self, x: Tensor) -> list[Tensor]:
        """Images to maps. (B, 3, height, width) -> [(B, C_k, h_k, w_k)]"""
        maps = list(self.net(x))
        if self.channels_last:
            maps = [each.permute(0, 3, 1, 2) for each in maps]
        if self.neck is not None:
            return self.neck(maps[-1])
        return [maps[i] for i in self.taken]


def feature_pyramid(
    backbone: str | nn.Module, *, out_channels: int = 256, **kwargs: Any
) -> FeaturePyramid:
    """A model as a pyramid: its own maps where it has stages, the simple pyramid where it is plain.

    Args:
        backbone: A name for :func:`vitascope.create_model`, or a model, trained perhaps, which is
            copied and must have timm's ``forward_intermediates``.
        out_channels: Width of the neck of a plain backbone.
        kwargs: For ``create_model``: ``img_size``, ``pretrained``, ``dynamic_img_size``, …

    >>> feature_pyramid("convit_micro", out_channels=16).strides
    [1.0, 2.0, 4.0, 8.0]
    >>> feature_pyramid("resnet_micro").strides
    [1.0, 2.0, 4.0]
    """
    from vitascope.models import create_model  # which need not load this module

    if isinstance(backbone, str):
        try:
            net = create_model(backbone, features_only=True, **kwargs)
        except (RuntimeError, AttributeError, AssertionError) as error:  # what timm raises
            raise UserError(f"{backbone} gives no feature maps: {error}") from error
    elif hasattr(backbone, "forward_intermediates") and hasattr(backbone, "feature_info"):
        declared: Any = backbone.feature_info
        net = FeatureGetterNet(deepcopy(backbone), out_indices=len(declared))
    else:
        raise UserError(
            f"{type(backbone).__name__} gives no feature maps: it has no forward_intermediates"
        )
    return FeaturePyramid(net, out_channels=out_channels)
