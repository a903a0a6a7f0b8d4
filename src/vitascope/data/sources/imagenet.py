"""ImageNet-1k and the test sets that go with it.

A model trained on ImageNet has 1000 outputs, one per synset in sorted order (timm ships the lists).
The sets differ in their labels:

* ImageNet-V2 (https://arxiv.org/abs/1902.10811): folders 0 ... 999, the number is the output.
* ImageNet-A (https://arxiv.org/abs/1907.07174): 200 of the synsets; the prediction is the best of
  those 200 outputs, so ``class_map`` says which to keep: ``logits[:, class_map]``.
* ImageNet-ReaL (https://arxiv.org/abs/2006.07159): the validation images with sets of labels. An
  image without any is left out; a prediction among the labels is a hit.
* ImageNet-100: ``Subset(first_classes=100)``, the first by sorted name.

Images stay on disk; evaluation takes the centre, 0.875 of the resized image, as DeiT does at 224.
"""

import json
import pkgutil
import re
from functools import cache
from pathlib import Path

import numpy as np

from vitascope.data.dataset import IMAGENET_MEAN, IMAGENET_STD
from vitascope.data.images import FileImages
from vitascope.data.sources.assemble import Parts, Request
from vitascope.data.sources.folder import EXTENSIONS, class_folders, existing, list_files, parts_of
from vitascope.errors import UserError, reason

STATISTICS = (IMAGENET_MEAN, IMAGENET_STD)
CROP_PCT = 0.875  # of the resized image, for evaluation


@cache
def synsets() -> tuple[str, ...]:
    """The 1000 classes in the order of a model's outputs."""
    from timm.data import ImageNetInfo

    return tuple(ImageNetInfo("imagenet-1k").label_names())


def in_form(images: FileImages, request: Request) -> FileImages:
    """Resize to the requested size, 224 by default, and cut to the centre."""
    side = request.image_size or 224
    images = images.of_size(request.in_chans or 3, side, side)
    images.crop_pct = request.crop_pct or CROP_PCT
    images.interpolation = request.interpolation
    return images


def outputs_of(classes: tuple[str, ...]) -> np.ndarray | None:
    """The model's output for each class; None if they are all 1000 in order."""
    numbers = {name: number for number, name in enumerate(synsets())}
    strangers = [name for name in classes if name not in numbers]
    if strangers:
        raise UserError(
            f"{', '.join(strangers[:3])}: not among ImageNet's 1000 synsets such as n01440764; "
            "give class folders of another kind without 'imagenet:'"
        )
    outputs = np.array([numbers[name] for name in classes])
    return None if len(outputs) == 1000 else outputs


def read_imagenet(path: str, request: Request) -> Parts:
    """Folders named by synset, ``train`` next to ``val``, or ``val`` alone."""
    root = existing(path)
    train_root, test_root = parts_of(root)
    if test_root is None and (root / "val").is_dir():
        train_root = root / "val"
    files = list_files(train_root)
    class_map = outputs_of(files.classes)
    first = in_form(files, request)
    if test_root is None:
        return Parts(train=None, test=first, statistics=STATISTICS, class_map=class_map)
    test = in_form(list_files(test_root, files.classes), request)
    return Parts(train=first, test=test, statistics=STATISTICS, class_map=class_map)


def read_v2(path: str, request: Request) -> Parts:
    """ImageNet-V2: folders 0 ... 999."""
    root = existing(path)
    wrong = [p.name for p in class_folders(root) if not re.fullmatch(r"\d{1,3}", p.name)]
    if wrong:
        raise UserError(f"{root} has folder {wrong[0]!r}; ImageNet-V2 has folders 0 to 999")
    files = list_files(root)
    files.labels = np.array([int(files.classes[label]) for label in files.labels])
    files.classes = synsets()
    return Parts(train=None, test=in_form(files, request), statistics=STATISTICS)


def read_a(path: str, request: Request) -> Parts:
    """ImageNet-A: folders named by synset, 200 of them."""
    used = (pkgutil.get_data("timm.data", "_info/imagenet_a_synsets.txt") or b"").decode().split()
    test = in_form(list_files(existing(path), used), request)
    class_map = outputs_of(tuple(used))
    return Parts(train=None, test=test, statistics=STATISTICS, class_map=class_map)


def read_real(source: str, request: Request) -> Parts:
    """ImageNet-ReaL: ``/val/path`` or ``/val/path?labels=real.json`` (else timm's copy).

    The number in ``ILSVRC2012_val_00000001.JPEG`` says which entry of the list belongs to an image,
    so the validation images may lie in class folders or in one.
    """
    path, _, query = source.partition("?")
    if query and not query.startswith("labels="):
        raise UserError(f"unknown option {query!r}; there is: labels=/path/to/real.json")
    if query:
        text = existing(query.removeprefix("labels="), "labels file").read_bytes()
    else:
        text = pkgutil.get_data("timm.data", "_info/imagenet_real_labels.json") or b""
    try:
        entries = [frozenset(int(label) for label in entry) for entry in json.loads(text)]
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise UserError(f"{query} is not a list of lists of labels: {reason(error)}") from error
    items, sets = [], []
    for file in sorted(existing(path).rglob("*"), key=lambda p: p.name):
        number = re.fullmatch(r"ILSVRC2012_val_(\d{8})", file.stem)
        if number is None or file.suffix.lower() not in EXTENSIONS:
            continue
        if not 1 <= int(number[1]) <= len(entries):
            raise UserError(f"{file.name} has no entry among the {len(entries)} of the labels")
        items.append(file)
        sets.append(entries[int(number[1]) - 1])
    if not items:
        raise UserError(f"no image called ILSVRC2012_val_00000001.JPEG or the like in {path}")
    labelled = [i for i, labels in enumerate(sets) if labels]
    labels = [min(sets[i]) for i in labelled]
    images = FileImages([Path(items[i]) for i in labelled], labels, synsets())
    notes = (f"left out {len(items) - len(labelled)} of {len(items)} images that have no label",)
    return Parts(
        train=None,
        test=in_form(images, request),
        notes=notes,
        statistics=STATISTICS,
        label_sets=tuple(sets[i] for i in labelled),
    )
