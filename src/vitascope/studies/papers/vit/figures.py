"""Figures as plain data: loss surfaces, a table as dots, two numbers against what was varied."""

from collections.abc import Mapping, Sequence

import numpy as np

from vitascope.studies.papers.figures import lines, over
from vitascope.studies.papers.plan import Ask, Figure, Findings, Reading, Table, Training

__all__ = ["against_figure", "dots_figure", "surfaces"]

Read = tuple[Training, Reading]


def surfaces(
    findings: Findings, runs: Mapping[str, Read], title: str
) -> tuple[Figure, dict[str, np.ndarray]]:
    """NLL + l2 around the weights of the first seed, above the lowest point, a panel a run."""
    panels, arrays = [], {}
    for label, read in runs.items():
        record = findings.of(*read)[0]
        loss = record.arrays["nll"] + record.arrays["l2"]
        loss = np.where(np.isfinite(loss), loss, np.nan)
        key = f"surface/{label}"
        arrays[key] = (loss - np.nanmin(loss) + 1e-3).astype(np.float32)  # above 0, for logarithms
        down, across = ([f"{x:.2g}" for x in record.arrays[f"axis_{i}"]] for i in (0, 1))
        panels.append({"kind": "heat", "title": label, "rows": down, "columns": across,
                       "array": key, "label": "NLL + l2 above its least", "log": True})  # fmt: skip
    reading = "Each square is the loss around one run's weights; a slower rise is a flatter loss."
    return {"name": "surfaces", "title": title, "reading": reading, "panels": panels}, arrays


def dots_figure(
    findings: Findings, table: Table, columns: Sequence[str], title: str, reading: str
) -> Figure:
    """A table's columns as dots, a seed each, the rows as groups."""
    series = []
    for column in columns:
        at = list(table.columns).index(column)
        asks = [row.cells[at] for row in table.rows]
        values = [[] if ask is None else findings.values(ask) for ask in asks]
        series.append({"label": column, "values": values, "paper": None})
    panel = {"kind": "dots", "title": table.title, "y_label": table.unit, "series": series,
             "groups": [row.label for row in table.rows]}  # fmt: skip
    return {"name": f"{table.name}-dots", "title": title, "reading": reading, "panels": [panel]}


def against_figure(
    findings: Findings, pairs: Mapping[str, Sequence[tuple[float, Ask, Ask]]], *, x: str,
    labels: tuple[str, str], title: str, name: str, reading: str,
) -> Figure:  # fmt: skip
    """Two numbers against what was varied, a panel each and a line a network."""
    panels = []
    for which, label in enumerate(labels):
        series = [
            over([step for step, *_ in points],
                 [findings.values((first, second)[which]) for _, first, second in points], network)
            for network, points in pairs.items()
        ]  # fmt: skip
        panels.append(lines(label, series, x=x, y=label, x_log=True))
    return {"name": name, "title": title, "reading": reading, "panels": panels}
