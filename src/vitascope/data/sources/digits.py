"""scikit-learn's handwritten digits: 1,797 images of 8 x 8, which need no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from vitascope.data.images import MemoryImages


def digits() -> MemoryImages:
    """All images, their values 0 ... 16 stretched to 0 ... 255. (1797, 1, 8, 8)

    Read from scikit-learn's file, as its ``load_digits`` does; importing that takes two seconds.
    """
    package = find_spec("sklearn")
    assert package is not None
    file = Path(str(package.origin)).parent / "datasets/data/digits.csv.gz"
    table = np.loadtxt(file, delimiter=",")  # 64 pixels and the digit
    pixels = np.rint(table[:, :-1].reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)
    targets = table[:, -1].astype(np.int64)
    return MemoryImages(torch.from_numpy(pixels)[:, None], targets, list("0123456789"))
