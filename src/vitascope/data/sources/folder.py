"""Images in folders named after their classes.

``root/class/image.png``, or ``root/train/class/...`` beside ``root/test`` or ``root/val``. Classes
are numbered by sorted name, images sorted by name, as torchvision's ``ImageFolder`` does.
"""

import stat
from collections.abc import Sequence
from pathlib import Path

from vitascope.data.images import FileImages, printable
from vitascope.errors import UserError

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
    what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
    raise UserError(f"{full} is {what}; give a {kind}")


def entries(root: Path) -> list[Path]:
    """What a folder holds, sorted by name.

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
    found = [p for p in entries(root) if p.is_dir() and not p.name.startswith(".")]
    for path in found:
        if printable(path.name) != path.name:
            raise UserError(f"the name of class folder {printable(path)} is not UTF-8; rename it")
    return found


def parts_of(root: Path) -> tuple[Path, Path | None]:
    """The folder to train on and the one to test on, if there is one."""
    names = {p.name.lower(): p for p in class_folders(root)}
    train = next((names[n] for n in TRAIN if n in names), None)
    test = next((names[n] for n in TEST if n in names), None)
    if train is not None and (test is not None or class_folders(train)):
        return train, test
    return root, None


def list_files(root: Path, classes: Sequence[str] | None = None) -> FileImages:
    """All images below the class folders of ``root``, not yet decoded nor sized.

    Args:
        root: Holds one folder per class.
        classes: The classes there may be; None: those that are there.

    Raises:
        UserError: If there are no class folders, one of them is empty, or one is not a class.
    """
    folders = class_folders(root)
    if not folders:
        loose = sum(p.suffix.lower() in EXTENSIONS for p in entries(root))
        have = f"{loose} images but no folders" if loose else "no folders"
        raise UserError(
            f"{root} has {have} in it; put the images of each class in a folder named after the "
            "class, as in cats/1.jpg, dogs/1.jpg"
        )
    known = tuple(p.name for p in folders) if classes is None else tuple(classes)
    numbers = {name: number for number, name in enumerate(known)}
    strangers = [p.name for p in folders if p.name not in numbers]
    if strangers:
        raise UserError(
            f"{root} has class folders that are not among the {len(known)} classes: "
            f"{', '.join(strangers[:5])}; remove or rename them"
        )
    paths, labels, empty = [], [], []
    for folder in folders:
        found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in EXTENSIONS)
        paths += found
        labels += [numbers[folder.name]] * len(found)
        empty += [] if found else [folder.name]
    if empty:
        raise UserError(
            f"no images in class folder {', '.join(repr(n) for n in empty[:5])} of {root}; "
            f"remove it or add images ({', '.join(sorted(EXTENSIONS))})"
        )
    return FileImages(paths, labels, known)
