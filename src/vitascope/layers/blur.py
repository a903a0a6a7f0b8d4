"""Spatial smoothing without weights: a box blur of a map.

Park and Kim 2022 (https://arxiv.org/abs/2202.06709, section 1.1, Fig. 3a, appendix B) put "a small
2 x 2 box blur" at the ends of a CNN's stages, before the next one subsamples: it averages
neighbouring points of the map, as attention does with learned weights.

    y[i, j] = 1/k^2 sum_{a, b < k} x[i + a, j + b]

Its frequency response is |cos(w / 2)| along each axis for k = 2: 1 at frequency 0, 0 at pi. Beyond
the border the last point is repeated, so that a constant map stays as it is and maps keep their
size; the paper does not say what it does there.

:class:`ReleasedBlur` is the one of the authors' code: of relu(10 tanh(x / 10)), with zeros beyond
the border on all sides, so that a map grows by one point each way.

Shapes: B images, C channels, maps (h, w).
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError

__all__ = ["BLURS", "BoxBlur", "ReleasedBlur"]


class BoxBlur(nn.Module):
    """The mean over k x k neighbours.

    >>> import torch
    >>> BoxBlur(2)(torch.tensor([[[[0.0, 2.0], [4.0, 6.0]]]])).tolist()
    [[[[3.0, 4.0], [5.0, 6.0]]]]
    """

    def __init__(self, size: int = 2):
        super().__init__()
        if size < 1:
            raise UserError(f"a blur over {size} points; give 1 (none) or more")
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h, w)"""
        before = (self.size - 1) // 2
        after = self.size - 1 - before
        padded = F.pad(x, (before, after, before, after), mode="replicate")
        return F.avg_pool2d(padded, self.size, stride=1)

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"size={self.size}"


class ReleasedBlur(BoxBlur):
    """The mean over k x k neighbours of bounded, rectified values, as Park and Kim released it.

    >>> import torch
    >>> ReleasedBlur(2)(torch.full((1, 1, 1, 1), 1e3)).tolist()
    [[[[2.5, 2.5], [2.5, 2.5]]]]
    """

    bound = 10.0

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, C, h + k - 1, w + k - 1)"""
        bounded = F.relu(self.bound * torch.tanh(x / self.bound))
        return F.avg_pool2d(F.pad(bounded, (self.size - 1,) * 4), self.size, stride=1)


BLURS = {"box": BoxBlur, "released": ReleasedBlur}
