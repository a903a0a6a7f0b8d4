"""What a model gets wrong: which class for which, class by class, and pictures of the images.

From values and arrays that :mod:`vitascope.inspection.evaluation` made, in the record of an
evaluation or of a comparison. A picture is a small PNG or JPEG in the record; where it has none
(the files were gone) the list is a table of files.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat
from vitascope.formatting import count, number
from vitascope.record import Record
from vitascope.report.figures.svg import picture_source
from vitascope.report.sections.section import Gallery, Picture
from vitascope.table import Table, row

MOST_CLASSES = 40  # of a confusion matrix that is drawn
MOST_PICTURES = 12  # of a list
MOST_BYTES = 64_000  # of a picture
COARSE = 24  # pixels a side, below which each is seen
MISTAKES = "surest_mistakes"
LISTS = {
    MISTAKES: (
        "Most confident mistakes",
        "Check these labels first: the model gave the label the lowest probability.",
    ),
    "least_sure_hits": (
        "Least confident correct predictions",
        "Correct with the lowest probability: more training images like these would help.",
    ),
}
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class MistakeParts:
    """The parts of a page that show mistakes."""

    figures: tuple[Figure, ...] = ()
    galleries: tuple[Gallery, ...] = ()
    tables: tuple[Table, ...] = ()

    @property
    def first(self) -> Gallery | None:
        """The gallery of mistakes, for the first screen."""
        return next((each for each in self.galleries if each.table.name == MISTAKES), None)


def mistake_parts(
    values: Mapping[str, Any],
    arrays: Arrays,
    model: str = "",
    labels: Mapping[str, str] | None = None,
) -> MistakeParts:
    """Confusion, class by class, and the lists: pictures where the record has them, else tables.

    Args:
        values: What :func:`vitascope.inspection.evaluation.mistakes` gave.
        arrays: The same.
        model: Whose mistakes they are, where a page has several.
        labels: What the others that are right are called, by name.
    """
    shown, tables = [], _classes(values, model)
    for name, (_, how) in LISTS.items():
        lines = (values.get(name) or ())[:MOST_PICTURES]
        pictures = tuple(
            _picture(line, arrays.get(f"picture/{line.get('index')}"), labels or {})
            for line in lines
        )
        if any(picture.source for picture in pictures):
            table = _listed(name, lines, model, how)
            shown.append(Gallery(title=table.title, how=how, pictures=pictures, table=table))
        elif lines:
            sentence = f"{how} The record has no pictures of them."
            tables.append(_listed(name, lines, model, sentence))
    return MistakeParts(
        figures=_confusion(values, arrays, model), galleries=tuple(shown), tables=tuple(tables)
    )


def chosen_models_mistakes(record: Record, labels: Mapping[str, str]) -> MistakeParts:
    """Mistakes of the model that a comparison recommends; nothing in old records.

    Args:
        record: Of the comparison.
        labels: What its models are called, by name.
    """
    values = record.values.get("mistakes") or {}
    arrays = {key.removeprefix("mistakes/"): each for key, each in record.arrays.items()}
    name = str(values.get("model", ""))
    return mistake_parts(values, arrays, labels.get(name, name), labels)


def _confusion(values: Mapping[str, Any], arrays: Arrays, model: str) -> tuple[Figure, ...]:
    """Draw the confusion matrix of up to 40 classes."""
    matrix, names = arrays.get("confusion"), values.get("per_class") or ()
    if matrix is None or len(matrix) != len(names) or len(matrix) > MOST_CLASSES:
        return ()
    shares = 100 * matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    wrong = np.where(np.eye(len(matrix), dtype=bool), -1.0, shares)
    true, predicted = np.unravel_index(int(wrong.argmax()), wrong.shape)
    classes = tuple(str(line["class"]) for line in names)
    reading = (
        f"Most often {classes[true]} is taken for {classes[predicted]}: in "
        f"{number(float(shares[true, predicted]), 1)} % of its images."
    )
    panel = Heat(
        title="rows: true class; columns: predicted class",
        rows=classes,
        columns=classes,
        values=shares,
        label="% of the row",
        low=0,
        high=100,
    )
    return (
        Figure(
            name="confusion",
            title=_of("Confusion matrix", model),
            reading=reading,
            how="Cells are percent of a row's images; correct predictions are on the diagonal.",
            panels=(panel,),
        ),
    )


def _classes(values: Mapping[str, Any], model: str) -> list[Table]:
    """Return how often each class is right, the worst first."""
    if not values.get("per_class"):
        return []
    lines = sorted(values["per_class"], key=lambda line: line["right"] / line["images"])
    return [
        Table(
            name="classes",
            title=_of("Classes", model) if model else "Class by class",
            corner="Class",
            columns=("Right (%)", "Images"),
            rows=tuple(
                row(
                    str(line["class"]),
                    [number(100 * line["right"] / line["images"], 1), count(line["images"])],
                )
                for line in lines
            ),
            caption=f"Balanced accuracy, their mean: {number(100 * values['balanced'], 1)} %.",
        )
    ]


def _of(title: str, model: str) -> str:
    return f"{title} of {model}" if model else title


def _listed(name: str, lines: Sequence[Mapping[str, Any]], model: str, caption: str) -> Table:
    return Table(
        name=name,
        title=_of(LISTS[name][0], model),
        corner="File",
        columns=("Label", "Predicted", "Confidence (%)", "Probability of the label (%)"),
        rows=tuple(
            row(
                str(line["file"]),
                [
                    str(line["label"]),
                    str(line["predicted"]),
                    _percent(line.get("confidence")),
                    _percent(line["probability"]),
                ],
            )
            for line in lines
        ),
        caption=caption,
    )


def _percent(share: float | None) -> str:
    return "" if share is None else number(100 * float(share), 1)


def _coarse(array: np.ndarray | None) -> bool:
    """Return whether it is a PNG of less than 24 pixels, by the width in its header."""
    raw = b"" if array is None else array[:20].tobytes()
    return raw.startswith(b"\x89PNG") and int.from_bytes(raw[16:20]) < COARSE


def _source(array: np.ndarray | None) -> str:
    """An image for a page; nothing for what is no small PNG or JPEG."""
    if array is None or array.dtype != np.uint8 or array.nbytes > MOST_BYTES:
        return ""
    return picture_source(array)


def _picture(
    line: Mapping[str, Any], array: np.ndarray | None, labels: Mapping[str, str]
) -> Picture:
    label, predicted, file = (str(line[key]) for key in ("label", "predicted", "file"))
    sure = line.get("confidence", line["probability"] if label == predicted else None)
    facts = [f"{_percent(sure)}\u00a0% confident"] if sure is not None else []
    if label != predicted:
        facts.append(f"labelled {label}, {_percent(line['probability'])}\u00a0%")
    if "right" in line:
        right = ", ".join(labels.get(name, name) for name in line["right"])
        facts.append(f"right: {right}" if right else "no other model is right")
    return Picture(
        source=_source(array),
        coarse=_coarse(array),
        alt=f"Image labelled {label}",
        prediction=f"predicted {predicted}",
        facts=tuple(facts),
        file="/".join(PurePath(file).parts[-2:]),
        path=file,
    )
