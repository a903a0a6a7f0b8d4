"""Random erasing (Zhong et al. 2020, https://arxiv.org/abs/1708.04896), timm's "pixel" kind.

A box of random area and shape is filled with normal noise, after normalisation, so that the noise
has the statistics of an image.
"""

from math import log

import numpy as np
import torch
from torch import Tensor

from vitascope.data.streams import Purpose, sample_streams

__all__ = ["erase", "erasing_boxes"]

SHAPES = (0.3, 1 / 0.3)  # height to width; timm and the paper


def erasing_boxes(
    rng: np.random.Generator,
    count: int,
    height: int,
    width: int,
    probability: float,
    area: tuple[float, float],
) -> np.ndarray:
    """One box per image, rows top, left, height, width; height 0 where nothing is erased.

    As in timm: ten tries to find a box smaller than the image, else nothing.
    """
    chosen = rng.random(count) < probability
    target = rng.uniform(*area, (count, 10)) * height * width
    shape = np.exp(rng.uniform(log(SHAPES[0]), log(SHAPES[1]), (count, 10)))
    h, w = np.round(np.sqrt(target * shape)), np.round(np.sqrt(target / shape))
    fits = (h < height) & (w < width)
    first = (np.arange(count), fits.argmax(axis=1))
    place = rng.random((2, count))
    top = np.floor(place[0] * (height - h[first] + 1))
    left = np.floor(place[1] * (width - w[first] + 1))
    boxes = np.stack([top, left, h[first], w[first]], axis=1).astype(np.int64)
    return np.where((chosen & fits.any(axis=1))[:, None], boxes, 0)


def erase(
    images: Tensor, boxes: np.ndarray, *, seed: int, epoch: int, step: int, first: int = 0
) -> Tensor:
    """Fill each image's box with noise, in place.

    ``first`` is the position of ``images[0]`` in the whole batch: the noise belongs to the
    position, so that processes sharing a batch agree with one that has all of it.
    """
    noise_of = sample_streams(Purpose.ERASE_PIXELS, seed, epoch=epoch, step=step)
    for i in np.flatnonzero((boxes[:, 2] > 0) & (boxes[:, 3] > 0)).tolist():
        top, left, height, width = boxes[i].tolist()
        shape = (images.shape[1], height, width)
        noise = torch.from_numpy(noise_of(first + i).standard_normal(shape, dtype=np.float32))
        images[i, :, top : top + height, left : left + width] = noise
    return images
