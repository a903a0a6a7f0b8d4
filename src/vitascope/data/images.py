"""A set of labelled images: in memory as uint8, or decoded when asked for.

Small images live in memory as one tensor: there a batch is one gather. Large ones stay on disk and
are decoded by pillow, one by one.

Shapes: N images, n asked for, C channels, H x W pixels.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from vitascope.data.decoding import fit, opened, shown_size, upright
from vitascope.errors import UserError

__all__ = [
    "FileImages",
    "ImageSet",
    "MemoryImages",
    "class_numbers",
    "covering",
    "resize",
    "to_image",
    "to_tensor",
]

MODES = {1: "L", 3: "RGB"}
MOST_CLASSES = 100_000  # more than any set of labelled images has

S = TypeVar("S", bound="ImageSet")
Files = TypeVar("Files", bound="FileImages")


class ImageSet(ABC):
    """Images with labels, addressed by position."""

    per_image: ClassVar[str]  # the attribute that says, image by image, where its pixels are
    labels: np.ndarray  # (N,) int64
    classes: tuple[str, ...]
    size: tuple[int, int, int]  # (C, H, W) of what pixels() returns
    groups: np.ndarray | None = None  # (N,) text: a patient or video, whose images go together

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def pixels(self, indices: Any) -> Tensor:
        """The images at these positions, decoded and resized. (n, C, H, W) uint8"""

    def take(self: S, indices: Any) -> S:
        """The set of only these images, in this order; nothing is copied."""
        indices = np.asarray(indices, dtype=np.int64)
        part = object.__new__(type(self))
        part.__dict__.update(self.__dict__)
        for name in (self.per_image, "labels", "groups"):
            values = getattr(self, name)
            setattr(part, name, None if values is None else values[indices])
        return part

    def name(self, index: int) -> str:
        """Return the name of an image for messages."""
        return f"image {index}"

    def of_groups(self: S, groups: Any) -> S:
        """Return the images with groups: those of one group are never split."""
        same = self.take(np.arange(len(self)))
        same.groups = np.asarray(groups, dtype=str)
        return same

    def of_classes(self: S, classes: Sequence[str]) -> S:
        """Return the images with other class names, which the labels must fit."""
        same = self.take(np.arange(len(self)))
        same.classes = tuple(classes)
        same.labels = checked_labels(same.labels, same.classes)
        return same


def whole_numbers(labels: Any) -> np.ndarray:
    """Labels as int64.

    Raises:
        UserError: If they are something else.
    """
    try:
        given = np.asarray(labels)
        with np.errstate(invalid="ignore"):
            numbers = given.astype(np.int64)
        if given.ndim == 1 and given.dtype.kind in "iufb" and (numbers == given).all():
            return numbers
        if not given.size:
            return np.zeros(0, dtype=np.int64)
    except (ValueError, TypeError, OverflowError):
        pass
    raise UserError("labels must be whole numbers, one for each image, such as 0, 1, 2")


def class_numbers(labels: Any, where: str) -> tuple[str, ...]:
    """Names for classes that are only numbered: 0 to the highest label.

    Raises:
        UserError: If there are no labels, or one is too high to be the number of a class.
    """
    numbers = whole_numbers(labels)
    if not len(numbers):
        raise UserError(f"{where} has no images; give one that has")
    top = int(numbers.max())
    if top >= MOST_CLASSES:
        raise UserError(
            f"label {top} of {where} is too high: classes are numbered from 0, and at most "
            f"{MOST_CLASSES:,} are taken; number them anew"
        )
    return tuple(str(number) for number in range(top + 1))


def checked_labels(labels: Any, classes: Sequence[str]) -> np.ndarray:
    """Labels as int64, or an error that names the first one outside the classes."""
    labels = whole_numbers(labels)
    wrong = np.flatnonzero((labels < 0) | (labels >= len(classes)))
    if len(wrong):
        raise UserError(
            f"label {labels[wrong[0]]} of image {wrong[0]} is out of range; with "
            f"{len(classes)} classes labels run from 0 to {len(classes) - 1} "
            f"({len(wrong)} of {len(labels)} labels are outside)"
        )
    return labels


def resize(pixels: Tensor, height: int, width: int, interpolation: str = "bicubic") -> Tensor:
    """Resize a batch of uint8 images as pillow does (antialiased). (n, C, height, width)"""
    if pixels.shape[-2:] == (height, width):
        return pixels
    return F.interpolate(pixels, size=(height, width), mode=interpolation, antialias=True)


def covering(
    pixels: Tensor, height: int, width: int, crop_pct: float = 1.0, interpolation: str = "bicubic"
) -> Tensor:
    """A batch as :func:`vitascope.data.decoding.fit` makes one image: scaled, and the centre kept.

    Images of which all is kept are stretched to height x width. (n, C, height, width) uint8
    """
    if pixels.shape[-2:] == (height, width) and crop_pct == 1.0:
        return pixels
    tall, wide = round(height / crop_pct), round(width / crop_pct)
    top, left = round((tall - height) / 2), round((wide - width) / 2)
    scaled = resize(pixels, tall, wide, interpolation)
    return scaled[..., top : top + height, left : left + width]


def gray(pixels: Tensor) -> Tensor:
    """Luma as pillow's ``convert("L")`` computes it. (b, 1, H, W) int32"""
    if pixels.shape[1] == 1:
        return pixels.int()
    red, green, blue = pixels.int().unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16).unsqueeze(1)


def printable(name: Any) -> str:
    """A file's name that can be printed and stored, also where it is not UTF-8."""
    return str(name).encode("utf-8", "backslashreplace").decode("utf-8")


def to_image(pixels: Tensor) -> Image.Image:
    """Return uint8 pixels (C, H, W) as an image of pillow's.

    Raises:
        UserError: If they have neither one nor three channels.
    """
    if len(pixels) not in MODES:
        raise UserError(
            f"images of {len(pixels)} channels cannot be augmented one by one; use one or three "
            "channels, or a recipe with shifted crops and mirrors alone, such as laptop"
        )
    array = pixels.permute(1, 2, 0).numpy()
    return Image.fromarray(array[..., 0] if len(pixels) == 1 else array)


def to_tensor(image: Image.Image) -> Tensor:
    """Pillow's pixels, channels first. (C, H, W) uint8"""
    array = np.array(image, dtype=np.uint8)
    return torch.from_numpy(array if array.ndim == 3 else array[..., None]).permute(2, 0, 1)


class MemoryImages(ImageSet):
    """Images held as one uint8 tensor.

    Args:
        pixels: (N, C, H, W) uint8.
        labels: (N,) whole numbers below the number of classes.
        classes: Their names.
        side: Resize to side x side on the way out (memory holds the images as given).
        crop_pct: Share of an image resized on the way out that the centre crop keeps.
        interpolation: Of that resizing.
        names: What the images are called, such as their files.
    """

    per_image = "_rows"

    def __init__(
        self,
        pixels: Tensor,
        labels: Any,
        classes: Sequence[str],
        *,
        side: int | None = None,
        crop_pct: float = 1.0,
        interpolation: str = "bicubic",
        names: Sequence[str] | None = None,
    ):
        if pixels.dtype != torch.uint8 or pixels.ndim != 4:
            raise UserError(
                f"images in memory must be uint8 of shape (N, C, H, W); got {pixels.dtype} of "
                f"shape {tuple(pixels.shape)}"
            )
        if len(pixels) != len(labels):
            raise UserError(f"{len(pixels)} images came with {len(labels)} labels")
        self._pixels = pixels
        self._rows = np.arange(len(pixels))
        self.classes = tuple(classes)
        self.labels = checked_labels(labels, self.classes)
        channels, height, width = pixels.shape[1:]
        self.size = (channels, side or height, side or width)
        self.fitting = (crop_pct if side else 1.0, interpolation)
        self._names = None if names is None else np.array(names, dtype=object)

    def pixels(self, indices: Any) -> Tensor:
        """The images at these positions, resized. (n, C, H, W) uint8"""
        rows = torch.from_numpy(self._rows[np.asarray(indices, dtype=np.int64)])
        return covering(self._pixels.index_select(0, rows), *self.size[1:], *self.fitting)

    def name(self, index: int) -> str:
        """The file that an image came from, or its number."""
        row = int(self._rows[index])
        return f"image {row}" if self._names is None else str(self._names[row])


class FileImages(ImageSet):
    """Images decoded when asked for, so that a set may be larger than memory.

    Args:
        items: One thing per image that ``open_item`` understands; here, paths.
        labels: (N,) whole numbers below the number of classes.
        classes: Their names.
        size: (C, H, W) of what ``pixels`` returns.
        crop_pct: Share of the resized image that the centre crop keeps (0.875 is usual for
            ImageNet at 224, 1 keeps all of the shorter side).
        interpolation: bicubic, bilinear, or another of pillow's.
    """

    per_image = "items"

    def __init__(
        self,
        items: Sequence[Any],
        labels: Any,
        classes: Sequence[str],
        *,
        size: tuple[int, int, int] = (3, 224, 224),
        crop_pct: float = 1.0,
        interpolation: str = "bicubic",
    ):
        self.items = np.empty(len(items), dtype=object)  # also where an item is a tuple
        self.items[:] = items
        self.classes = tuple(classes)
        self.labels = checked_labels(labels, self.classes)
        self.size = size
        self.crop_pct = crop_pct
        self.interpolation = interpolation
        self._reported: set[str] = set()

    def open_item(self, item: Any) -> Image.Image:
        """One image of which only the header has been read; ``OSError`` if that is not possible."""
        return opened(item)

    def decode(self, index: int, least_side: int | None = None) -> Image.Image:
        """The whole image in the right mode, not resized (see :mod:`vitascope.data.decoding`).

        Args:
            index: Its position in the set.
            least_side: A JPEG file may come smaller, by 2, 4 or 8, with both sides at least this
                long: that is faster.

        Raises:
            OSError: If it cannot be decoded, with the reason.
            UserError: If its values have no known range.
        """
        with self.open_item(self.items[index]) as image:
            if least_side is not None:
                image.draft(None, (least_side, least_side))
            try:
                return upright(image).convert(MODES[self.size[0]])
            except UserError as error:
                raise UserError(f"{self.name(index)}: {error}") from None

    def header(self, index: int) -> tuple[tuple[int, int], str]:
        """Size (width, height) and mode without decoding.

        Raises:
            OSError: If it is no image, with the reason.
        """
        with self.open_item(self.items[index]) as image:
            return shown_size(image), image.mode

    def name(self, index: int) -> str:
        """Return the name of an image for messages."""
        return printable(self.items[index])

    def view(self, index: int) -> Tensor:
        """One image as evaluation sees it. (C, H, W) uint8"""
        kind = Image.Resampling[self.interpolation.upper()]
        return to_tensor(fit(self.decode(index), *self.size[1:], self.crop_pct, kind))

    def pixels(self, indices: Any) -> Tensor:
        """The images at these positions, decoded, resized and cut to the centre.

        Raises:
            UserError: If one of them cannot be decoded.
        """
        views = []
        for index in np.asarray(indices).tolist():
            try:
                views.append(self.view(index))
            except OSError as error:
                name = self.name(index)
                raise UserError(f"broken image {name}: {error}; remove or repair it") from error
        return torch.stack(views) if views else torch.zeros(0, *self.size, dtype=torch.uint8)

    def report_broken(self, index: int, why: str) -> None:
        """Warn of a broken image, once by name."""
        name = self.name(index)
        if name not in self._reported:
            self._reported.add(name)
            warnings.warn(f"skipped broken image {name}: {why}", stacklevel=2)

    def of_size(self: Files, channels: int, height: int, width: int) -> Files:
        """Return the images at another size."""
        same = self.take(np.arange(len(self)))
        same.size = (channels, height, width)
        return same
