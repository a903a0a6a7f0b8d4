"""Small data sets: CIFAR's python archives, MNIST's idx files, scikit-learn's digits.

CIFAR (https://www.cs.toronto.edu/~kriz/cifar.html) comes as pickles. A pickle can run any code, so
only the few names that a numpy array needs are let through. torchvision's reader accepts nothing
but the original files, and not the archive itself.

The idx format (http://yann.lecun.com/exdb/mnist): two zero bytes, the type (8 is uint8), the number
of dimensions, each dimension as a big-endian uint32, then the values.

scikit-learn's handwritten digits, 1,797 images of 8 x 8, need no download.
"""

import gzip
import io
import os
import pickle
import pickletools
import struct
import zlib
from collections.abc import Callable
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from vitascope.data.images import MemoryImages, class_numbers
from vitascope.data.sources.folder import existing
from vitascope.data.sources.shards import BoundedTar
from vitascope.errors import UserError, reason

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

MOST_FILE = 2**29  # bytes of a file of CIFAR; the largest has 155 MB

MOST_PIXELS = 2**30  # bytes of an idx file; the largest set known, EMNIST, has 640 MB


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
    """A function from a file's name to its content, for a folder or a tar archive of them.

    It raises KeyError where there is no such file, and OSError where it cannot be read.
    """
    if path.is_dir():
        files = {p.name: p for p in path.rglob("*") if p.is_file()}

        def read(name: str) -> bytes:
            with open(files[name], "rb") as file:
                return limited(file, os.fstat(file.fileno()).st_size)

        return read
    wanted = {
        name for train, test, (meta, _), _ in LAYOUT.values() for name in (*train, test, meta)
    }
    try:
        with BoundedTar.open(path) as archive:
            inside = {
                Path(m.name).name: limited(archive.extractfile(m), m.size)  # type: ignore[arg-type]
                for m in archive
                if m.isreg() and Path(m.name).name in wanted
            }
    except Exception as error:  # damaged archives raise nearly anything
        raise UserError(
            f"{path} is not a whole tar archive ({reason(error)}); download it again"
        ) from error
    return inside.__getitem__


def limited(file: IO[bytes], size: int) -> bytes:
    """The content of a file, if it is not far longer than it can be."""
    if size > MOST_FILE:
        raise OSError(f"it has more than {MOST_FILE:,} bytes")
    return file.read()


def cifar(kind: str, path: str) -> tuple[MemoryImages, MemoryImages]:
    """Training and test images of CIFAR-10 or -100, from its folder or its tar.gz.

    Args:
        kind: "cifar10" or "cifar100" (the 100 fine labels).
        path: The extracted folder, its parent, or the archive.
    """
    train, test, (meta, names_key), labels_key = LAYOUT[kind]
    read = members(existing(path, "folder or archive"))

    def entry(name: str, *keys: str) -> list[Any]:
        try:
            content = read(name)
        except KeyError:
            raise UserError(
                f"{path} has no file {name!r}; {kind} is made of {', '.join((*train, test, meta))}"
                f"; a folder of class folders is given as it is: --data {path}"
            ) from None
        except OSError as error:
            raise damaged(name, reason(error)) from error
        try:
            for opcode, argument, _ in pickletools.genops(content):
                if "PUT" in opcode.name and isinstance(argument, int) and argument > len(content):
                    raise ValueError("it numbers more objects than it can hold")
            content_of = ArrayUnpickler(io.BytesIO(content), encoding="latin1").load()
            return [content_of[key] for key in keys]
        except UserError:
            raise
        except Exception as error:  # a damaged pickle raises nearly anything
            raise damaged(name, reason(error)) from error

    def damaged(name: str, why: str) -> UserError:
        return UserError(f"{name} in {path} is damaged ({why}); download it again")

    (names,) = entry(meta, names_key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise damaged(meta, f"{names_key} is no list of names")

    def images(files: tuple[str, ...]) -> MemoryImages:
        pixels, labels = [], []
        for name in files:
            data, numbers = entry(name, "data", labels_key)
            if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2):
                raise damaged(name, "data is no table of bytes")
            if data.shape[1] != 3072 or not isinstance(numbers, list) or len(numbers) != len(data):
                raise damaged(name, f"data is {data.shape} and does not fit its labels")
            pixels.append(data)
            labels += numbers
        joined = torch.from_numpy(np.concatenate(pixels).reshape(-1, 3, 32, 32))
        if not len(joined):
            raise damaged(files[0], "it has no images")
        return MemoryImages(joined, labels, names)

    return images(train), images((test,))


def read_idx(folder: Path, name: str) -> np.ndarray:
    """One idx file of uint8, packed or not; its header says how much is read of it.

    Raises:
        UserError: If it is missing, damaged, or larger than what is held in memory.
    """
    for path in (folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx")):
        if path.is_file():
            break
    else:
        raise UserError(f"no {name} nor {name}.gz in {folder}; MNIST has four such files")
    num_dims = 3 if "images" in name else 1
    broken = UserError(f"{path} is not a whole idx file of bytes; download it again")
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            head = file.read(4 + 4 * num_dims)
            if head[:4] != bytes([0, 0, 8, num_dims]) or len(head) != 4 + 4 * num_dims:
                raise broken
            shape = struct.unpack(f">{num_dims}I", head[4:])
            if prod(shape) > MOST_PIXELS:
                raise UserError(
                    f"{path} says it holds {' x '.join(map(str, shape))} bytes; at most "
                    f"{MOST_PIXELS:,} are read: make class folders of its images instead"
                )
            values = bytearray()
            while chunk := file.read(min(1 << 20, prod(shape) + 1 - len(values))):
                values += chunk  # grows with what is there, whatever the header says
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} is damaged ({reason(error)}); download it again") from error
    if len(values) != prod(shape) or not values:
        raise broken
    return np.frombuffer(values, np.uint8).reshape(shape)


def idx(path: str, classes: tuple[str, ...] | None = None) -> tuple[MemoryImages, MemoryImages]:
    """Training and test images from a folder with the four files of MNIST or one like it."""
    folder = existing(path)
    parts = {
        part: (
            read_idx(folder, f"{part}-images-idx3-ubyte"),
            read_idx(folder, f"{part}-labels-idx1-ubyte"),
        )
        for part in ("train", "t10k")
    }
    if classes is None:
        classes = class_numbers(parts["train"][1], path)
    train, test = (
        MemoryImages(torch.from_numpy(pixels)[:, None], labels, classes)
        for pixels, labels in parts.values()
    )
    return train, test


def fashion_mnist_folder(homes: tuple[str, ...] = FASHION_HOMES) -> str:
    """Return the folder where Fashion-MNIST is installed.

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
