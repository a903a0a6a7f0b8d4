"""Integrated gradients (Sundararajan et al. 2017, https://arxiv.org/abs/1703.01365).

The gradient of the score y on the straight path from an empty image (0 after normalisation, the
mean of the images) to the image x:

    R = x * integral_0^1 dy/dx(a x) da

The pixels add up to y(x) - y(0) (completeness). The integral is a Gauss-Legendre sum.

Shapes: B images, C channels.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

STEPS = 16


def integrated_gradients(
    score: Callable[[Tensor], Tensor], images: Tensor, steps: int = STEPS
) -> Tensor:
    """Relevance of every pixel for the score of its image. (B, C, H, W)

    Args:
        score: From images to a number per image (B,).
        images: (B, C, H, W)
        steps: Points on the path, each a forward and a backward pass.

    >>> images = torch.tensor([[[[1.0, 3.0]]]])
    >>> integrated_gradients(lambda x: x.pow(2).sum((1, 2, 3)), images).round(decimals=3).tolist()
    [[[[1.0, 9.0]]]]
    """
    points, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(images)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        with torch.enable_grad():
            leaf = (float(point) * images.detach()).requires_grad_(True)
            (gradient,) = torch.autograd.grad(score(leaf).sum(), leaf)
        total += float(weight) * gradient
    return images.detach() * total
