"""Images that are given in Python instead of named: tensors, arrays, or batches of a loader."""

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vitascope.data.dataset import pixel_statistics
from vitascope.data.images import MemoryImages, class_numbers
from vitascope.data.sources.assemble import Parts, Request, in_form
from vitascope.errors import UserError

_NUMBERS = count(1)  # two sets of images never have the same name


class GivenImages(str):
    """The name of images that are in memory already, where the name of a source is expected.

    >>> GivenImages.of(torch.zeros(2, 3, 8, 8)).split(" (")[0]
    '2 images given in Python'
    """

    images: MemoryImages
    labelled: bool

    @classmethod
    def of(cls, images: Any) -> "GivenImages":
        """Take images from a tensor, an array, or batches such as a ``DataLoader`` yields.

        Args:
            images: (N, C, H, W), uint8 or numbers from 0 to 1; or an iterable of such batches, or
                of pairs of a batch and its labels. They are resized and normalised for the model.

        Raises:
            UserError: If they are something else.
        """
        batches = [images] if isinstance(images, Tensor | np.ndarray) else images
        if not isinstance(batches, Iterable) or isinstance(batches, str | bytes):
            raise UserError(
                "images are a source's name, a tensor (N, C, H, W), or batches of them, not "
                f"{images!r:.40}"
            )
        pixels, labels, labelled = [], [], False
        for batch in batches:
            pair = isinstance(batch, list | tuple) and len(batch) == 2
            labelled |= pair
            pixels.append(_pixels(batch[0] if pair else batch))
            labels.append(np.asarray(batch[1]) if pair else np.zeros(len(pixels[-1]), np.int64))
        if not pixels or not sum(map(len, pixels)):
            raise UserError("there are no images to measure on; give at least one")
        try:
            together, numbers = torch.cat(pixels), np.concatenate(labels)
        except (RuntimeError, ValueError) as error:
            raise UserError(f"the batches of images do not fit together: {error}") from None
        name = cls(f"{len(together)} images given in Python ({next(_NUMBERS)})")
        name.images = MemoryImages(together, numbers, class_numbers(numbers, "the images"))
        name.labelled = labelled
        return name

    def read(self, request: Request) -> Parts:
        """Return the images as test images, in the size and with the channels asked for."""
        images = in_form(self.images, request)
        mean, std, _ = pixel_statistics(images)
        if len(mean) == 1:
            mean, std = mean * 3, std * 3  # one channel takes the second
        return Parts(train=None, test=images, statistics=(mean, std))


def _pixels(images: Any) -> Tensor:
    """Check images and return them as uint8. (N, C, H, W)"""
    try:
        pixels = torch.as_tensor(images).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise UserError(f"images are tensors (N, C, H, W), not {type(images).__name__}") from None
    if pixels.ndim == 3:
        pixels = pixels[None]
    if pixels.ndim != 4 or pixels.shape[1] not in (1, 3):
        raise UserError(
            f"images have the shape (N, C, H, W) with 1 or 3 channels, not {tuple(pixels.shape)}"
        )
    if pixels.dtype == torch.uint8:
        return pixels
    low, high = (float(pixels.min()), float(pixels.max())) if pixels.numel() else (0.0, 0.0)
    if not (pixels.is_floating_point() and low >= 0 and high <= 1):  # NaN is refused as well
        raise UserError(
            f"pixels are uint8, or numbers from 0 to 1, not from {low:.3g} to {high:.3g}; leave "
            "transforms.Normalize out: images are normalised as the model needs them"
        )
    return (pixels * 255).round().to(torch.uint8)
