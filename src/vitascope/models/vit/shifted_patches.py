"""Shifted patch tokenisation: patches that also see half of their neighbours.

    S(x) = LN(P([x, s_1, s_2, s_3, s_4])) E

with s_k the image shifted by half a patch towards each corner, zeros where it left the image, P the
cut into patches and E a linear map (Lee et al. 2021, https://arxiv.org/abs/2112.13492, section 3.1
and eq. 1-3). A token then holds four times the pixels of its patch.

Shapes: B images of C channels, N patches of p x p on a grid (h, w), D width.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.models.vit.patches import PatchEmbed


def shifted(x: Tensor, down: int, right: int) -> Tensor:
    """The image moved by whole pixels, zeros where nothing came. (B, C, height, width)

    >>> shifted(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 1, -1).tolist()
    [[[[0.0, 0.0], [2.0, 0.0]]]]
    """
    return F.pad(x, (right, -right, down, -down))


class ShiftedProjection(nn.Module):
    """Image to tokens on their grid. (B, C, height, width) -> (B, D, h, w)"""

    locality = "mild: patches overlap by half (shifted patches)"

    def __init__(self, in_chans: int, dim: int, patch: tuple[int, int], bias: bool = True):
        super().__init__()
        self.patch = patch
        self.norm = nn.LayerNorm(5 * in_chans * patch[0] * patch[1])
        self.linear = nn.Linear(self.norm.normalized_shape[0], dim, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """The image and its four shifts, cut, normalised and projected."""
        grid = x.shape[-2] // self.patch[0], x.shape[-1] // self.patch[1]
        half = max(1, self.patch[0] // 2), max(1, self.patch[1] // 2)
        corners = [shifted(x, a * half[0], b * half[1]) for a in (-1, 1) for b in (-1, 1)]
        cut = F.unfold(torch.cat([x, *corners], dim=1), self.patch, stride=self.patch)
        return self.linear(self.norm(cut.mT)).mT.unflatten(-1, grid)  # (B, D, h, w)


class ShiftedPatchEmbed(PatchEmbed):
    """A patch embedding over the image and its four shifts."""

    def __init__(self, *args: Any, in_chans: int = 3, embed_dim: int = 768, **kwargs: Any):
        super().__init__(*args, in_chans=in_chans, embed_dim=embed_dim, **kwargs)
        bias = self.proj.bias is not None
        projection = ShiftedProjection(in_chans, embed_dim, self.patch_size, bias)
        self.proj = projection.to(self.proj.weight)  # type: ignore[assignment]
