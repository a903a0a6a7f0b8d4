"""scikit-learn's handwritten digits: 1,797 images of 8 x 8, which need no download."""

import numpy as np
import torch

from vitascope.data.images import MemoryImages


def digits() -> MemoryImages:
    """All images, their values 0 ... 16 stretched to 0 ... 255. (1797, 1, 8, 8)"""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    names = [str(name) for name in bunch.target_names]
    return MemoryImages(torch.from_numpy(pixels)[:, None], bunch.target, names)
