"""A convolutional stem in place of patches, and of one transformer block.

log2 p convolutions of 3 x 3 and stride 2, each with batch normalisation and ReLU, that double their
channels up to D, then a 1 x 1 convolution to D (Xiao et al. 2021, https://arxiv.org/abs/2106.14881,
section 4). The grid is that of patches of p x p; the model has one block fewer, which costs about
what the stem costs.

Shapes: B images of C channels, patches of p x p on a grid (h, w), D width.
"""

from itertools import pairwise
from typing import Any

from torch import nn

from vitascope.errors import UserError
from vitascope.models.vit.patches import PatchEmbed


class ConvolutionalStem(nn.Sequential):
    """Image to tokens on their grid. (B, C, height, width) -> (B, D, h, w)"""

    locality = "hard at the entrance: a convolutional stem"

    def __init__(self, in_chans: int, dim: int, patch: int, bias: bool = True):
        steps = patch.bit_length() - 1
        if patch < 2 or patch != 2**steps:
            raise UserError(
                f"a convolutional stem halves the image step by step: patches of {patch} pixels "
                "are no power of two; give a patch_size of 2, 4, 8 or 16"
            )
        widths = [in_chans, *(dim // 2 ** (steps - 1 - step) for step in range(steps))]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            layers.append(nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False))
            layers += [nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.Conv2d(dim, dim, 1, bias=bias))


class StemEmbed(PatchEmbed):
    """A patch embedding by a convolutional stem."""

    def __init__(self, *args: Any, in_chans: int = 3, embed_dim: int = 768, **kwargs: Any):
        super().__init__(*args, in_chans=in_chans, embed_dim=embed_dim, **kwargs)
        stem = ConvolutionalStem(
            in_chans, embed_dim, max(self.patch_size), self.proj.bias is not None
        )
        self.proj = stem.to(self.proj.weight)  # type: ignore[assignment]
