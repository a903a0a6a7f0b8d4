"""One image as the bytes of a small file, for records and pages: PNG, or JPEG for a large photo."""

from io import BytesIO

import numpy as np
from PIL import Image
from torch import Tensor

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
