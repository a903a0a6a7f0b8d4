"""Images in folders named after their classes, or listed in a CSV file.

``root/class/image.png``, or ``root/train/class/...`` next to ``root/test`` or ``root/val``. Classes
are numbered by sorted name, images sorted by name, as torchvision's ``ImageFolder`` does.

A CSV file has the columns ``path`` and ``label``, optionally ``split`` and ``group``. Paths are
relative to the file's folder. ``split`` is train or test (also val or validation); without it test
images are split off. ``group``, or the column that ``?groups=`` names, says which images belong
together: one patient, one video. An image without a group stands by itself.
"""

import csv
import re
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vitascope.data.images import FileImages, printable
from vitascope.errors import UserError, reason

EXTENSIONS = {
    ".bmp",
    ".gif",
    ".jpeg",
    ".jpg",
    ".pgm",
    ".png",
    ".ppm",
    ".tif",
    ".tiff",
    ".webp",
}

MOST_FRACTIONS = 10  # different labels such as 0.35; with more they are quantities, not classes
TRAIN, TEST = ("train", "training"), ("test", "val", "valid", "validation")


def existing(path: str | Path, kind: str = "folder") -> Path:
    """The path, if it exists: a folder if ``kind`` contains that word, a regular file otherwise.

    Raises:
        UserError: If it is not, naming the nearest parent that is.
    """
    try:
        full = Path(path).expanduser()
        mode = full.stat().st_mode
    except RuntimeError:
        raise UserError(f"{path}: there is no such user; write the path out") from None
    except (FileNotFoundError, NotADirectoryError):
        parents = Path(path).expanduser().absolute().parents
        parent = next((p for p in parents if p.exists()), Path("/"))
        raise UserError(
            f"no {kind} at {printable(full)}; {parent} exists: check the rest of the path"
        ) from None
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long, no right
        why = getattr(error, "strerror", None) or error
        raise UserError(f"{printable(path)[:100]} cannot be opened: {why}") from None
    if (stat.S_ISDIR(mode) and "folder" in kind) or (stat.S_ISREG(mode) and kind != "folder"):
        return full
    if stat.S_ISREG(mode):
        raise UserError(f"{full} is a file; give the {kind} that holds the images")
    actual = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise UserError(f"{full} is {actual}; give a {kind}")


def entries(root: Path) -> list[Path]:
    """List a folder, sorted by name.

    Raises:
        UserError: If it may not be read.
    """
    try:
        return sorted(root.iterdir())
    except OSError as error:
        raise UserError(f"{printable(root)} cannot be read: {error.strerror}") from None


def class_folders(root: Path) -> list[Path]:
    """The folders inside ``root``, sorted by name; hidden ones do not count.

    Raises:
        UserError: If a name cannot be stored as text.
    """
    folders = [p for p in entries(root) if p.is_dir() and not p.name.startswith(".")]
    for path in folders:
        if printable(path.name) != path.name:
            raise UserError(f"the name of class folder {printable(path)} is not UTF-8; rename it")
    return folders


def parts_of(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and the one to test on, if there is one."""
    names = {p.name.lower(): p for p in class_folders(root)}
    train = next((names[n] for n in TRAIN if n in names), None)
    test = next((names[n] for n in TEST if n in names), None)
    if train is not None and (test is not None or class_folders(train)):
        return train, test
    return root, None


def list_files(
    root: Path, classes: Sequence[str] | None = None, *, empty_classes: bool = False
) -> FileImages:
    """All images below the class folders of ``root``, not yet decoded nor sized.

    Args:
        root: Holds one folder per class.
        classes: The classes there may be; None: those that are there.
        empty_classes: Take class folders without images, too.

    Raises:
        UserError: If there are no class folders, no images, or one is empty or not a class.
    """
    folders = class_folders(root)
    if not folders:
        loose = sum(p.suffix.lower() in EXTENSIONS for p in entries(root))
        have = f"{loose} images but no folders" if loose else "no folders"
        raise UserError(
            f"{root} has {have} in it; put the images of each class in a folder named after the "
            "class, as in cats/1.jpg, dogs/1.jpg"
        )
    names = tuple(p.name for p in folders) if classes is None else tuple(classes)
    numbers = {name: number for number, name in enumerate(names)}
    strangers = [p.name for p in folders if p.name not in numbers]
    if strangers:
        raise UserError(
            f"{root} has class folders that are not among the {len(names)} classes: "
            f"{', '.join(strangers[:5])}; remove or rename them"
        )
    paths, labels, empty = [], [], []
    for folder in folders:
        files = sorted(p for p in folder.rglob("*") if p.suffix.lower() in EXTENSIONS)
        paths += files
        labels += [numbers[folder.name]] * len(files)
        empty += [] if files else [folder.name]
    if empty and not (empty_classes and paths):
        raise UserError(
            f"no images in class folder {', '.join(repr(n) for n in empty[:5])} of {root}; "
            f"remove it or add images ({', '.join(sorted(EXTENSIONS))})"
        )
    return FileImages(paths, labels, names)


def passed_over(root: Path) -> dict[str, int]:
    """Count the files below class folders that are not taken for images, by their ending."""
    counts: dict[str, int] = {}
    for folder in class_folders(root):
        for path in folder.rglob("*"):
            ending = path.suffix.lower()
            if ending not in EXTENSIONS and not path.name.startswith(".") and path.is_file():
                counts[ending or "no ending"] = counts.get(ending or "no ending", 0) + 1
    return dict(sorted(counts.items()))


def read_table(path: str, groups: str | None = None) -> tuple[FileImages, FileImages | None]:
    """The training images and, where the table has a split, the test images.

    Raises:
        UserError: If a column is missing, a line has no path or label, or a split is unknown.
    """
    file = existing(path, "file")
    try:
        with open(file, encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
    except (OSError, ValueError, csv.Error) as error:
        raise UserError(f"{file} cannot be read as CSV: {reason(error)}") from None
    if not rows:
        raise UserError(f"{file} lists no images; give lines of path,label under that head")
    column = groups or ("group" if "group" in rows[0] else None)
    for name in ("path", "label", *([groups] if groups else [])):
        if name not in rows[0]:
            raise UserError(f"{file} has no column {name!r}; it has {', '.join(rows[0])}")
    for number, line in enumerate(rows, start=2):
        if not line["path"] or not line["label"]:
            raise UserError(f"line {number} of {file} has no path or no label")
    classes = sorted({line["label"] for line in rows})
    _check_classes(classes, file)
    paths = [_place(file.parent, line["path"]) for line in rows]
    images = FileImages(paths, [classes.index(line["label"]) for line in rows], classes)
    if column is not None:
        images = images.of_groups([line[column] or line["path"] for line in rows])
    if "split" not in rows[0]:
        return images, None
    splits = np.array([(line["split"] or "").strip().lower() for line in rows])
    strange = sorted({split for split in splits if split not in (*TRAIN, *TEST)})
    if strange:
        raise UserError(f"{file}: split {str(strange[0])!r} is unknown; give train or test")
    inside = np.isin(splits, TRAIN)
    if inside.all():
        return images, None
    return images.take(np.flatnonzero(inside)), images.take(np.flatnonzero(~inside))


def _check_classes(labels: Sequence[str], file: object) -> None:
    """Refuse labels that are numbers to predict, or several labels in one.

    Raises:
        UserError: Saying what to do instead.
    """
    fractions = [label for label in labels if re.fullmatch(r"[-+]?\d*\.\d+(e[-+]?\d+)?", label)]
    if len(fractions) > MOST_FRACTIONS:
        raise UserError(
            f"the labels of {file} are numbers such as {fractions[0]}, and models here predict "
            "classes; group the numbers into a few classes, such as low, medium and high"
        )
    for label in labels:
        parts = [part.strip() for part in re.split(r"[;|]", label)]
        if len(parts) > 1 and set(parts) & set(labels):
            raise UserError(
                f"{file} has several labels per image, such as {label!r}, and models here predict "
                "one class; make a file for each label, with yes or no, and train one model each"
            )


def _place(folder: Path, path: str) -> Path:
    return Path(path) if Path(path).is_absolute() else folder / path
