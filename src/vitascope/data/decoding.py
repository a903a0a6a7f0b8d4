"""Decode one image from a file or bytes, alike for training, evaluation and the live page; encode.

Every image becomes 8-bit grey (``L``) or colour (``RGB``):

* its EXIF orientation is applied, so it stands as a viewer shows it;
* transparent pixels lie on white;
* grey values of 16 bits are divided by 257 (65535 is white), those of 12 bits by 4095 / 255; of
  16-bit colours pillow keeps the upper byte;
* floating-point values must lie in [0, 1] (1 is white). Other values, and whole numbers of 32 bits,
  have no known white: they are refused rather than cut off at 255.

The number of pixels is known from the header and bounded before anything is decoded, and only a
regular file is opened (a pipe would be waited for). Of an animation the first image counts.

For records and pages an image is encoded as PNG, or as JPEG if it is a large photo.
"""

import os
from collections.abc import Sequence
from io import BytesIO
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from vitascope.atomic import regular
from vitascope.errors import UserError, reason

MOST_PIXELS = 89_478_485  # pillow's own limit: 256 MB as RGB

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")  # none runs programs

DEEP = ("I", "I;16", "I;16B", "I;16L", "I;16N", "F")  # modes of more than 8 bits, all grey

GREY = ("1", "L", "LA", "La", *DEEP)

ORIENTATION, BITS = 0x0112, 258  # tags of EXIF and TIFF


class TooLarge(OSError):
    """An image with more pixels than are decoded."""


def opened(
    source: str | os.PathLike[str] | IO[bytes],
    *,
    formats: Sequence[str] = FORMATS,
    most_pixels: int = MOST_PIXELS,
) -> Image.Image:
    """An image of which only the header has been read.

    Raises:
        OSError: If it cannot be read: :class:`TooLarge`, or ``UnidentifiedImageError`` for what is
            no image of these formats.
    """
    if isinstance(source, str | os.PathLike):
        try:
            source = regular(source)
        except OSError as error:
            raise OSError(error.strerror or str(error)) from None
    try:
        image = Image.open(source, formats=tuple(formats))
    except UnidentifiedImageError:
        raise UnidentifiedImageError("it is no image that can be read") from None
    except Image.DecompressionBombError:
        raise TooLarge(
            f"it has more than {most_pixels:,} pixels, the most that are taken"
        ) from None
    except Exception as error:  # a damaged header raises nearly anything in pillow's readers
        raise OSError(f"its header is broken ({reason(error)})") from error
    if image.width * image.height > most_pixels:
        size = f"{image.width} x {image.height}"
        image.close()
        raise TooLarge(f"it has {size} pixels; at most {most_pixels:,} are taken")
    return image


def shown_size(image: Image.Image) -> tuple[int, int]:
    """Width and height as a viewer shows it, from the header alone."""
    if image.format == "TIFF":  # pillow has turned it already
        return image.size
    try:
        # A PNG may keep its EXIF after its pixels, and pillow would decode them to look there.
        exif = image.getexif() if image.format != "PNG" or "exif" in image.info else {}
        turned = exif.get(ORIENTATION) in (5, 6, 7, 8)
    except Exception:  # as above; `upright` says what is wrong
        turned = False
    return (image.height, image.width) if turned else image.size


def upright(image: Image.Image) -> Image.Image:
    """The decoded image, upright, opaque and of 8 bits: ``L`` if it is grey, else ``RGB``.

    Raises:
        OSError: If it cannot be decoded.
        UserError: If its values have no known range.
    """
    try:
        image.load()
        white = _white(image) if image.mode in DEEP else None
        if image.getexif().get(ORIENTATION, 1) != 1:
            image = ImageOps.exif_transpose(image)
        if white is not None:
            image = _of_8_bits(image, white)
        mode = "L" if image.mode in GREY else "RGB"
        if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return image.convert(mode)
    except UserError:
        raise
    except Exception as error:  # damaged pixels raise nearly anything in pillow's readers
        raise OSError(f"it cannot be decoded ({reason(error)})") from error


def _of_8_bits(image: Image.Image, white: float) -> Image.Image:
    """Grey values of more than 8 bits, with ``white`` at 255."""
    values = np.asarray(image)
    shades = np.rint(values.astype(np.float32) * (255 / white)).clip(0, 255)
    grey = Image.fromarray(shades.astype(np.uint8))
    clear = image.info.get("transparency")
    if isinstance(clear, int):  # the one value that means: nothing here
        grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def _white(image: Image.Image) -> float:
    """The value of white among grey values of more than 8 bits."""
    if image.mode == "F":
        low, high = image.getextrema()
        if low >= 0 and high <= 1 and np.isfinite(np.asarray(image)).all():
            return 1.0
        raise UserError(
            f"its floating-point values run from {low:g} to {high:g}, and which of them is white "
            "is not known; scale them to [0, 1], or save 8 or 16 bits"
        )
    if image.mode != "I":
        bits: Any = getattr(image, "tag_v2", {}).get(BITS)
        return 4095.0 if bits in (12, (12,)) else 65535.0
    if image.format in ("PNG", "PPM"):  # 16 bits, which pillow holds in 32
        return 65535.0
    raise UserError(
        "its values are whole numbers of 32 bits, or signed, and which of them is white is not "
        "known; save 8 or 16 bits"
    )


def fit(
    image: Image.Image,
    height: int,
    width: int,
    crop_pct: float = 1.0,
    interpolation: Image.Resampling = Image.Resampling.BICUBIC,
) -> Image.Image:
    """Scale the image to cover height / crop_pct x width / crop_pct, and keep the centre of it.

    Only the centre is scaled: of an image a million times as wide as it is high the whole would
    not fit in memory.
    """
    scale = max(height / image.height, width / image.width) / crop_pct
    whole = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
    left, top = round((whole[0] - width) / 2), round((whole[1] - height) / 2)
    if whole == image.size:
        return image.crop((left, top, left + width, top + height))
    across, down = image.width / whole[0], image.height / whole[1]
    box = (left * across, top * down, (left + width) * across, (top + height) * down)
    box = (box[0], box[1], min(box[2], image.width), min(box[3], image.height))
    return image.resize((width, height), interpolation, box=box)


PHOTO = 64  # pixels; larger images are stored as JPEG

SIDE = 256  # pixels a stored image has at most


def image_bytes(pixels: Tensor, side: int = SIDE) -> np.ndarray:
    """The bytes of an image file of at most ``side`` pixels a side.

    Args:
        pixels: (C, H, W) uint8
        side: Larger images are made smaller.
    """
    array = pixels.permute(1, 2, 0).numpy()
    image = Image.fromarray(array[..., 0] if array.shape[2] == 1 else array)
    image.thumbnail((side, side))
    stream = BytesIO()
    if max(image.size) > PHOTO:
        image.save(stream, "JPEG", quality=88)
    else:
        image.save(stream, "PNG", optimize=True)
    return np.frombuffer(stream.getvalue(), dtype=np.uint8)
