"""CIFAR's python archives and MNIST's idx files.

CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html) comes as pickles. A pickle can run any code, and
these are passed around by strangers, so only the few names that a numpy array needs are let
through. torchvision's reader accepts nothing but the original files, and not the archive itself.

The idx format (http://yann.lecun.com/exdb/mnist): two zero bytes, the type (8 is uint8), the number
of dimensions, each dimension as a big-endian uint32, then the values.
"""

import gzip
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitascope.data.folder import existing
from vitascope.data.images import MemoryImages
from vitascope.errors import UserError

__all__ = ["FASHION_CLASSES", "cifar", "fashion_mnist_folder", "idx"]

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
FASHION_HOMES = ("/usr/share/datasets/fashion-mnist",)  # Debian's package dataset-fashion-mnist
LAYOUT = {  # training files, test file, file and key of the class names, key of the labels
    "cifar10": (
        tuple(f"data_batch_{i}" for i in range(1, 6)),
        "test_batch",
        ("batches.meta", "label_names"),
        "labels",
    ),
    "cifar100": (("train",), "test", ("meta", "fine_label_names"), "fine_labels"),
}


class ArrayUnpickler(pickle.Unpickler):
    """Reads numbers, strings, lists, dicts and numpy arrays, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Let through only what an array of numbers is made of."""
        home = module.replace("numpy._core", "numpy.core")
        if (home, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if (home, name) == ("numpy.core.multiarray", "_reconstruct"):
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if (home, name) == ("numpy.core.multiarray", "scalar"):
            return np._core.multiarray.scalar  # type: ignore[attr-defined]
        if (module, name) == ("_codecs", "encode"):  # how protocol 2 writes bytes
            return lambda text, encoding: text.encode(encoding)
        raise UserError(
            f"this archive asks for {module}.{name}, which no CIFAR file does; not read"
        )


def members(path: Path) -> Callable[[str], bytes]:
    """A function from a file's name to its content, for a folder or a tar archive of them."""
    if path.is_dir():
        found = {p.name: p for p in path.rglob("*") if p.is_file()}
        return lambda name: found[name].read_bytes()
    try:
        with tarfile.open(path) as archive:
            inside = {
                Path(m.name).name: archive.extractfile(m).read()  # type: ignore[union-attr]
                for m in archive
                if m.isfile()
            }
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(
            f"{path} is not a whole tar archive ({error}); download it again"
        ) from error
    return inside.__getitem__


def cifar(kind: str, path: str) -> tuple[MemoryImages, MemoryImages]:
    """Training and test images of CIFAR-10 or -100, from its folder or its tar.gz.

    Args:
        kind: "cifar10" or "cifar100" (the 100 fine labels).
        path: The extracted folder, its parent, or the archive.
    """
    train, test, (meta, names_key), labels_key = LAYOUT[kind]
    read = members(existing(path, "folder or archive"))

    def entry(name: str) -> dict:
        try:
            return ArrayUnpickler(io.BytesIO(read(name)), encoding="latin1").load()
        except KeyError:
            raise UserError(
                f"{path} has no file {name!r}; {kind} is made of {', '.join((*train, test, meta))}"
            ) from None
        except (pickle.UnpicklingError, EOFError, ValueError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{name} in {path} is damaged ({error}); download it again") from error

    classes = tuple(entry(meta)[names_key])

    def images(names: tuple[str, ...]) -> MemoryImages:
        entries = [entry(name) for name in names]
        pixels = np.concatenate([e["data"] for e in entries]).reshape(-1, 3, 32, 32)
        labels = np.concatenate([np.asarray(e[labels_key]) for e in entries])
        return MemoryImages(torch.from_numpy(pixels), labels, classes)

    return images(train), images((test,))


def read_idx(folder: Path, name: str) -> np.ndarray:
    """One idx file of uint8, packed or not."""
    for path in (folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx")):
        if path.is_file():
            break
    else:
        raise UserError(f"no {name} nor {name}.gz in {folder}; MNIST has four such files")
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise UserError(f"{path} is damaged ({error}); download it again") from error
    whole = raw[:3] == b"\0\0\x08" and len(raw) >= 4 + 4 * raw[3]
    shape = struct.unpack_from(f">{raw[3]}I", raw, 4) if whole else ()
    start = 4 + 4 * len(shape)
    if not whole or len(raw) - start != prod(shape):
        raise UserError(f"{path} is not a whole idx file of bytes; download it again")
    return np.frombuffer(raw, np.uint8, offset=start).reshape(shape).copy()


def idx(path: str, classes: tuple[str, ...] | None = None) -> tuple[MemoryImages, MemoryImages]:
    """Training and test images from a folder with the four files of MNIST or one like it."""
    folder = existing(path)
    found = {
        part: (
            read_idx(folder, f"{part}-images-idx3-ubyte"),
            read_idx(folder, f"{part}-labels-idx1-ubyte"),
        )
        for part in ("train", "t10k")
    }
    if classes is None:
        classes = tuple(str(i) for i in range(int(found["train"][1].max()) + 1))
    train, test = (
        MemoryImages(torch.from_numpy(pixels)[:, None], labels, classes)
        for pixels, labels in found.values()
    )
    return train, test


def fashion_mnist_folder(homes: tuple[str, ...] = FASHION_HOMES) -> str:
    """Where Fashion-MNIST is installed.

    Raises:
        UserError: If it is not.
    """
    for home in homes:
        if Path(home).is_dir():
            return home
    raise UserError(
        f"Fashion-MNIST is not installed (looked in {', '.join(homes)}); on Debian: "
        "apt install dataset-fashion-mnist; elsewhere download its four files and give idx:/folder"
    )
