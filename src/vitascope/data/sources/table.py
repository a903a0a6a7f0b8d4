"""Images listed in a CSV file: ``path`` and ``label``, optionally ``split`` and ``group``.

Paths are relative to the file's folder. ``split`` is train or test (also val or validation);
without it test images are split off. ``group``, or the column that ``?groups=`` names, says which
images belong together: one patient, one video. An image without a group stands by itself.
"""

import csv
from pathlib import Path

import numpy as np

from vitascope.data.images import FileImages
from vitascope.data.sources.folder import TEST, TRAIN, existing
from vitascope.errors import UserError, reason


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
    places = [_place(file.parent, line["path"]) for line in rows]
    found = FileImages(places, [classes.index(line["label"]) for line in rows], classes)
    if column is not None:
        found = found.of_groups([line[column] or line["path"] for line in rows])
    if "split" not in rows[0]:
        return found, None
    splits = np.array([(line["split"] or "").strip().lower() for line in rows])
    strange = sorted({split for split in splits if split not in (*TRAIN, *TEST)})
    if strange:
        raise UserError(f"{file}: split {str(strange[0])!r} is unknown; give train or test")
    inside = np.isin(splits, TRAIN)
    if inside.all():
        return found, None
    return found.take(np.flatnonzero(inside)), found.take(np.flatnonzero(~inside))


def _place(folder: Path, path: str) -> Path:
    return Path(path) if Path(path).is_absolute() else folder / path
