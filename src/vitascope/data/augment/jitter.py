"""Colour jitter on whole batches: brightness, contrast and saturation by random factors.

torchvision's ``ColorJitter(s, s, s)`` as timm calls it; the three come in a fixed order here where
torchvision shuffles them.
"""

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment import color


def jitter(pixels: Tensor, factors: np.ndarray) -> Tensor:
    """Scale brightness, contrast and saturation; ``factors`` is (3, b), 1 changes nothing."""
    bright, contrast, saturation = torch.from_numpy(factors).float()
    table = color.blend_table(torch.zeros(len(pixels)), bright)
    pixels = color.look_up(pixels, table[:, None].expand(-1, pixels.shape[1], -1))
    table = color.blend_table(color.gray_mean(pixels), contrast)
    pixels = color.look_up(pixels, table[:, None].expand(-1, pixels.shape[1], -1))
    return color.saturate(pixels, saturation) if pixels.shape[1] == 3 else pixels
