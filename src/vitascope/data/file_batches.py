"""Decode and augment images one by one, in as many processes as wanted.

timm's and torchvision's transforms draw from the global generators of ``random``, numpy and torch.
Here all three are seeded for each sample and restored after a batch, so what happens to an image
depends only on the seed, the epoch and its position in the epoch.

Three things make this faster than timm's loader: the copies of an image in a batch (repeated
augmentation) are decoded once, a random crop is resized by torch's vectorised kernel (its values
differ from pillow's by 2 of 255 at most), and large JPEG files are decoded at 1/2, 1/4 or 1/8 of
their size as long as the smallest possible crop need not be enlarged.
"""

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader

from vitascope.data.augment import Augmentation
from vitascope.data.batches import BatchPosition
from vitascope.data.decoding import fit
from vitascope.data.images import FileImages, resize, to_image, to_tensor
from vitascope.errors import UserError


@dataclass(frozen=True)
class Decoded:
    """Images of a batch and their positions in the set."""

    pixels: Tensor  # (b, C, H, W) uint8
    indices: np.ndarray  # (b,) int64


@contextmanager
def generators_restored() -> Iterator[None]:
    """Restore the global generators of ``random``, numpy and torch (CPU) after the block."""
    before, before_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(before)
            np.random.set_state(before_numpy)  # noqa: NPY002


def seed_generators(seed: int) -> None:
    """Seed the three global generators; ``torch.manual_seed`` would seed every device, slowly."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.default_generator.manual_seed(seed)


def posterize(image: Image.Image, bits: int, **_: Any) -> Image.Image:
    """Keep the upper bits. timm asks for none at magnitude 10, which pillow refuses: black."""
    return ImageOps.posterize(image, bits) if bits else image.point(lambda _: 0)


def rand_augment(config: str, params: dict[str, Any]) -> Callable[[Image.Image], Image.Image]:
    """timm's RandAugment for one image at a time."""
    from timm.data import auto_augment

    try:
        transform = auto_augment.rand_augment_transform(config, params)
    except (AssertionError, ValueError) as error:
        raise UserError(
            f"unknown RandAugment string {config!r}; it looks like 'rand-m9-mstd0.5-inc1'"
        ) from error
    for operation in transform.ops:
        if operation.aug_fn is auto_augment.posterize:
            operation.aug_fn = posterize
    return transform


def random_resized_crop(
    image: Image.Image,
    side: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    interpolation: str,
) -> Image.Image:
    """Crop a random box, drawn as timm draws it, and resize it to a square."""
    from timm.data.transforms import RandomResizedCropAndInterpolation

    drawn = RandomResizedCropAndInterpolation.get_params(image, scale, ratio)
    top, left, height, width = drawn
    crop = np.array(image.crop((left, top, left + width, top + height)))
    pixels = torch.from_numpy(crop.reshape(1, height, width, -1)).permute(0, 3, 1, 2)
    return to_image(resize(pixels, side, side, interpolation)[0])


class TrainView:
    """timm's training transforms up to uint8: crop, mirror, RandAugment or colour jitter.

    Attributes:
        least_side: A decoded image at least as large on both sides gives no crop that has to be
            enlarged, unless the image itself is smaller.
    """

    def __init__(self, augmentation: Augmentation, *, side: int, hflip: float, fill: list[int]):
        from torchvision import transforms as T

        a = augmentation
        pillow_mode = Image.Resampling[a.interpolation.upper()]
        steps: list = []
        self.least_side = side
        if a.crop == "resized":
            steps.append(
                partial(
                    random_resized_crop,
                    side=side,
                    scale=a.scale,
                    ratio=a.ratio,
                    interpolation=a.interpolation,
                )
            )
            narrow = min(a.ratio[0], 1 / a.ratio[1])
            self.least_side = math.ceil(side / math.sqrt(a.scale[0] * narrow))
        else:
            steps.append(partial(fit, height=side, width=side, interpolation=pillow_mode))
        if a.crop == "pad":
            steps.append(T.RandomCrop(side, padding=a.padding(side)))
        if hflip > 0:
            steps.append(T.RandomHorizontalFlip(hflip))
        if a.rand_augment:
            params = {
                "translate_const": int(side * 0.45),
                "img_mean": tuple(fill) if len(fill) > 1 else fill[0],
                "interpolation": pillow_mode,
            }
            steps.append(rand_augment(a.rand_augment, params))
        elif a.color_jitter > 0:
            steps.append(T.ColorJitter(*[a.color_jitter] * 3))
        self.transform = T.Compose(steps)

    def __call__(self, image: Image.Image, seed: int) -> Tensor:
        """Augment one image as its seed determines. (C, side, side) uint8

        This seeds the global generators: call it inside :func:`generators_restored`.
        """
        seed_generators(seed)
        return to_tensor(self.transform(image))


class _Batches(torch.utils.data.Dataset):
    """Batch number -> its images; what a worker runs. Broken files come back with the reason.

    What must end the whole run comes back as well: raised in a worker, it would be wrapped in the
    lines of a traceback.
    """

    def __init__(
        self,
        images: FileImages,
        orders: list[np.ndarray],
        positions: list[BatchPosition] | None,
        view: TrainView | None,
    ):
        self.images, self.orders, self.positions, self.view = images, orders, positions, view

    def __len__(self) -> int:
        return len(self.orders)

    def __getitem__(self, number: int) -> tuple[Decoded | None, list[tuple[int, str]]] | UserError:
        order = self.orders[number].tolist()
        pixels: dict[int, Tensor] = {}  # by row
        indices: dict[int, int] = {}
        broken = []
        with generators_restored():
            for wanted in dict.fromkeys(order):
                rows = [row for row, index in enumerate(order) if index == wanted]
                index = wanted
                while True:
                    try:
                        pixels |= zip(rows, self._views(number, rows, index), strict=True)
                        indices |= dict.fromkeys(rows, index)
                        break
                    except UserError as error:
                        return error
                    except OSError as error:
                        broken.append((index, str(error)))
                        if self.view is None:  # evaluation leaves it out
                            break
                        index = (index + 1) % len(self.images)  # training takes the next one
                        if index == wanted:
                            return UserError("none of the training images can be read any more")
        if not pixels:
            return None, broken
        there = sorted(pixels)
        stacked = torch.stack([pixels[row] for row in there])
        return Decoded(stacked, np.array([indices[row] for row in there])), broken

    def _views(self, number: int, rows: list[int], index: int) -> list[Tensor]:
        """One image as it stands in these rows of a batch: decoded once, varied for each."""
        if self.view is None or self.positions is None:
            return [self.images.view(index)] * len(rows)
        image, position = self.images.decode(index, self.view.least_side), self.positions[number]
        return [self.view(image, position.image_seed(row)) for row in rows]


def _as_it_is(batch: Any) -> Any:
    return batch


def decoded(
    images: FileImages,
    orders: list[np.ndarray],
    positions: list[BatchPosition] | None,
    view: TrainView | None,
    *,
    num_workers: int,
    on_broken: Callable[[int, str], None] | None = None,
) -> Iterator[Decoded]:
    """The images of each batch in ``orders``, varied by ``view`` or as evaluation sees them.

    A broken file is reported once by name (or ``on_broken`` is called with its position and the
    reason). In training the next readable image of the set replaces it, with its own label; in
    evaluation it is left out.
    """
    loader = DataLoader(
        _Batches(images, orders, positions, view),
        batch_size=None,
        collate_fn=_as_it_is,
        num_workers=num_workers,
        generator=torch.Generator().manual_seed(0),  # or it would draw from the global one
    )
    for item in loader:
        if isinstance(item, UserError):
            raise item
        batch, broken = item
        for index, why in broken:
            (on_broken or images.report_broken)(index, why)
        if batch is not None:
            yield batch
