"""The table of a model on another task than classification."""

from collections.abc import Mapping
from typing import Any

from vitascope.report.formatting import number
from vitascope.report.tables.table import Table, row

METRICS = {"miou": "mean IoU", "pixel_accuracy": "pixel accuracy", "vqa_score": "VQA score"}


def task_table(values: Mapping[str, Any], name: str) -> Table:
    """The metrics that there are, in percent."""
    shown = {key: words for key, words in METRICS.items() if values.get(key) is not None}
    return Table(
        name="task",
        title="On the test data",
        corner="Model",
        columns=tuple(f"{words} (%)" for words in shown.values()),
        rows=(row(name, [number(100 * values[key], 2) for key in shown]),),
    )
