"""CIFAR-10-C, CIFAR-100-C and ImageNet-C as they are published.

Hendrycks & Dietterich 2019, https://arxiv.org/abs/1903.12261.

* CIFAR: ``<corruption>.npy``, uint8 (5 n, 32, 32, 3) with the n images of severity 1 first, and
  ``labels.npy`` with 5 n labels (or n, when they are not repeated). n is 10,000.
* ImageNet: ``<corruption>/<severity>/<class>/*.JPEG``, possibly inside ``noise``, ``blur``,
  ``weather``, ``digital`` and ``extra``, as the archives unpack. Images are 224 x 224 already.
  Folders named by synset get the label of a model with ImageNet's 1000 outputs.

``corrupted_sets("CIFAR-10-C").images("snow", 3)`` are 10,000 images with labels.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vitascope.data.images import FileImages, ImageSet, MemoryImages, class_numbers
from vitascope.data.loader import EvalBatches
from vitascope.data.sources.folder import class_folders, existing, list_files
from vitascope.data.sources.imagenet import outputs_of, synsets
from vitascope.errors import UserError, reason, unknown

SEVERITIES = (1, 2, 3, 4, 5)
LABELS = "labels"


@dataclass(frozen=True)
class CorruptedSets:
    """The corruptions in a folder; images are read when they are asked for."""

    root: Path
    paths: dict[str, Path]  # corruption -> its array or its folder
    image_size: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The corruptions that are there."""
        return tuple(self.paths)

    def images(self, name: str, severity: int) -> ImageSet:
        """The images of one corruption and severity, with labels.

        Raises:
            UserError: If they are not there or not what they should be.
        """
        if name not in self.paths:
            raise UserError(f"{self.root}: {unknown('corruption', name, self.names)}")
        if severity not in SEVERITIES:
            raise UserError(f"severity {severity} is out of range; give 1 to 5")
        path = self.paths[name]
        read = _from_folder if path.is_dir() else _from_array
        return read(path, severity, self.image_size)

    def batches(
        self,
        name: str,
        severity: int,
        *,
        batch_size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> EvalBatches:
        """Return the images of one corruption in batches for a model."""
        images = self.images(name, severity)
        return EvalBatches(images, batch_size=batch_size, mean=mean, std=std)


def corrupted_sets(path: str | Path, *, image_size: int | None = None) -> CorruptedSets:
    """Open a folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C.

    Args:
        path: Holds the arrays, or the folders.
        image_size: Side of the images given out; None: 32 for arrays' 32, 224 for folders.

    Raises:
        UserError: If there is no corruption in it, or arrays without labels.
    """
    root = existing(path)
    arrays = {file.stem: file for file in sorted(root.glob("*.npy")) if file.stem != LABELS}
    if arrays:
        if not (root / f"{LABELS}.npy").is_file():
            raise UserError(
                f"{root} has arrays but no {LABELS}.npy; it comes with CIFAR-10-C and -100-C: "
                "put it next to them"
            )
        return CorruptedSets(root, arrays, image_size)
    inside = class_folders(root)
    candidates = [*inside, *(folder for parent in inside for folder in class_folders(parent))]
    folders = {p.name: p for p in candidates if any((p / str(s)).is_dir() for s in SEVERITIES)}
    folders = {name: p for name, p in folders.items() if not name.isdigit()}
    if not folders:
        raise UserError(
            f"{root} has no corruption in it; give a folder with snow.npy, ... and labels.npy "
            "(CIFAR-C) or with snow/1/<class>/*.JPEG, ... (ImageNet-C)"
        )
    return CorruptedSets(root, folders, image_size)


def _array(file: Path) -> np.ndarray:
    try:
        array = np.load(existing(file, "array"), mmap_mode="r", allow_pickle=False)
    except UserError:
        raise
    except Exception as error:  # a damaged header raises nearly anything
        raise UserError(
            f"{file} is not a whole numpy array ({reason(error)}); download it again"
        ) from None
    if not isinstance(array, np.ndarray):
        raise UserError(f"{file} is an archive of arrays; give the array itself")
    return array


def _from_array(file: Path, severity: int, image_size: int | None) -> ImageSet:
    pixels, labels = _array(file), _array(file.with_name(f"{LABELS}.npy"))
    whole = pixels.ndim == 4 and pixels.shape[-1] == 3 and len(pixels) and len(pixels) % 5 == 0
    if not whole or pixels.dtype != np.uint8:
        raise UserError(
            f"{file} is {pixels.dtype} of shape {pixels.shape}; CIFAR-C's arrays are uint8 of "
            "shape (50000, 32, 32, 3): 5 severities of 10000 images"
        )
    count = len(pixels) // 5
    if labels.ndim != 1 or len(labels) not in (count, 5 * count):
        raise UserError(
            f"{file.with_name(LABELS)}.npy has shape {labels.shape}; {file.name} needs "
            f"{5 * count} labels (or {count}, the same for each severity)"
        )
    part = slice((severity - 1) * count, severity * count)
    own_labels = labels[part] if len(labels) == 5 * count else labels
    classes = class_numbers(labels, str(file.with_name(f"{LABELS}.npy")))
    images = torch.from_numpy(np.array(pixels[part])).permute(0, 3, 1, 2).contiguous()
    return MemoryImages(images, own_labels, classes, side=image_size)


def _from_folder(folder: Path, severity: int, image_size: int | None) -> ImageSet:
    if not (folder / str(severity)).is_dir():
        severities = [p.name for p in class_folders(folder)]
        raise UserError(f"{folder} has no severity {severity}; there are: {', '.join(severities)}")
    files: FileImages = list_files(folder / str(severity))
    if all(re.fullmatch(r"n\d{8}", name) for name in files.classes):
        outputs_of(files.classes)  # refuses strangers
        numbers = {name: number for number, name in enumerate(synsets())}
        files.labels = np.array([numbers[files.classes[label]] for label in files.labels])
        files.classes = synsets()
    side = image_size or 224
    return files.of_size(3, side, side)
