"""Hugging Face data sets, on disk (``save_to_disk``) or from the hub.

Rows stay in the library's memory-mapped tables; images are decoded here, so a broken one can be
named and skipped.
"""

import io
import os
from typing import Any

from PIL import Image

from vitascope.atomic import regular
from vitascope.data.decoding import opened
from vitascope.data.images import FileImages, class_numbers, printable
from vitascope.data.sources.folder import TEST, TRAIN, existing
from vitascope.errors import UserError, reason


class HubImages(FileImages):
    """Rows of one split; an item is the number of a row."""

    table: Any
    column: str

    def open_item(self, item: Any) -> Image.Image:
        """The undecoded image of a row."""
        cell = self.table[int(item)][self.column]
        if cell is None or not (cell["bytes"] or cell["path"]):
            raise OSError("there is no image in this row")
        return opened(io.BytesIO(cell["bytes"]) if cell["bytes"] else cell["path"])

    def name(self, index: int) -> str:
        """Row number, and file name where the table knows it."""
        cell = self.table[int(self.items[index])][self.column]
        path = cell["path"] if cell else None
        return f"row {self.items[index]}" + (f" ({printable(path)})" if path else "")


def read(source: str) -> Any:
    """A DatasetDict from disk or hub, as the library gives it."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"hf:{source} needs the library datasets: pip install 'vitascope[hub]'"
        ) from error
    if os.path.exists(os.path.expanduser(source)):
        try:
            folder = existing(source)
            for path in folder.rglob("*"):
                if not path.is_dir():
                    regular(path)
            parts = datasets.load_from_disk(str(folder))
            tables = parts.values() if isinstance(parts, dict) else [parts]
            for table in tables:  # reading damaged rows would end the process
                table.data.validate(full=True)
        except UserError:
            raise
        except Exception as error:  # damaged files raise nearly anything
            raise UserError(
                f"{source} was not written by save_to_disk, or is damaged ({reason(error)}); for "
                "class folders give the path without 'hf:'"
            ) from error
    else:
        name, _, config = source.partition(":")
        try:
            parts = datasets.load_dataset(name, config or None)
        except Exception as error:  # the library has many: offline, no such name, no such config
            raise UserError(
                f"no data set {name!r:.200} on disk, nor from the hub: {reason(error)}"
            ) from error
    return parts if isinstance(parts, dict) else {"train": parts}


def columns(features: Any) -> tuple[str, str]:
    """Names of the image column and of the label column."""
    import datasets

    image = [n for n, f in features.items() if isinstance(f, datasets.Image)]
    label = [n for n, f in features.items() if isinstance(f, datasets.ClassLabel)]
    label += [n for n in ("label", "labels", "fine_label") if n in features and n not in label]
    if not image or not label:
        raise UserError(
            f"the data set has columns {', '.join(features)}; one must be an Image and one a "
            "ClassLabel, or whole numbers called 'label'"
        )
    label.sort(key=lambda n: n not in ("label", "fine_label"))  # CIFAR-100 has coarse ones too
    return image[0], label[0]


def hub(source: str) -> tuple[FileImages, FileImages | None]:
    """Training and test images of a data set; None where it has no test split."""
    splits = {name.lower(): table for name, table in read(source).items()}
    train = next((splits[n] for n in TRAIN if n in splits), None)
    test = next((splits[n] for n in TEST if n in splits), None)
    if train is None:
        raise UserError(f"hf:{source} has splits {', '.join(splits)}; one must be called 'train'")
    image, label = columns(train.features)
    names = getattr(train.features[label], "names", None)
    if names is None:
        names = class_numbers(train[label][:], f"hf:{source}")

    def images(table: Any) -> FileImages:
        import datasets

        rows = HubImages(range(len(table)), table[label][:], names)
        rows.table, rows.column = table.cast_column(image, datasets.Image(decode=False)), image
        return rows

    return images(train), None if test is None else images(test)
