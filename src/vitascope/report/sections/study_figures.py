"""The figures of a study's record, ready to be drawn with the page's looks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vitascope.errors import UserError
from vitascope.report.figures.figure import (
    Dots,
    DotSeries,
    Figure,
    Heat,
    Lines,
    Maps,
    Panel,
    Series,
)
from vitascope.report.figures.style import Look, Styles, apart
from vitascope.report.records import Source

__all__ = ["study_figure"]


def study_figure(source: Source, item: Mapping[str, Any], looks: Styles) -> Figure:
    """A figure with its panels; arrays come from the record."""
    panels = tuple(_panel(source, panel, looks) for panel in item.get("panels") or ())
    bands = any(isinstance(p, Lines) and any(s.low for s in p.series) for p in panels)
    dots = any(isinstance(p, Dots) for p in panels)
    how = "Bands: the spread over seeds." if bands else ""
    if dots:
        how = f"{how} Small dots: single seeds; rings: the paper's numbers.".strip()
    return Figure(name=str(item.get("name") or "figure"), title=str(item.get("title") or ""),
                  reading=str(item.get("reading") or item.get("title") or ""), how=how,
                  panels=panels)  # fmt: skip


def _panel(source: Source, item: Mapping[str, Any], looks: Styles) -> Panel:
    kind, title = item.get("kind"), str(item.get("title") or "")
    if kind == "lines":
        lines = item["series"]
        chosen = _looks(lines, looks)
        series = tuple(
            Series(label=str(line.get("label") or ""), x=line["x"], y=line["y"],
                   low=line.get("low"), high=line.get("high"), look=look)
            for line, look in zip(lines, chosen, strict=True)
        )  # fmt: skip
        few = max((len(line.x) for line in series), default=0) <= 12
        return Lines(title=title, x_label=str(item.get("x_label") or ""), series=series,
                     y_label=str(item.get("y_label") or ""), x_log=bool(item.get("x_log")),
                     y_log=bool(item.get("y_log")), marks=few,
                     joined=bool(item.get("joined", True)))  # fmt: skip
    if kind == "dots":
        lines = item["series"]
        chosen = _looks(lines, looks)
        dots = tuple(
            DotSeries(label=str(line.get("label") or ""), paper=line.get("paper"), look=look,
                      values=[v if isinstance(v, list) else [v] for v in line["values"]])
            for line, look in zip(lines, chosen, strict=True)
        )  # fmt: skip
        return Dots(title=title, y_label=str(item.get("y_label") or ""),
                    groups=tuple(map(str, item["groups"])), series=dots)  # fmt: skip
    if kind not in ("heat", "maps"):
        raise UserError(f"{source.path}: there are panels of lines, dots, heat and maps, "
                        f"not of {kind!r}")  # fmt: skip
    sides = 2 if kind == "heat" else 4
    values = source.record.arrays.get(str(item.get("array")))
    rows, columns = (tuple(map(str, item.get(name) or ())) for name in ("rows", "columns"))
    if values is None or values.ndim != sides or values.shape[:2] != (len(rows), len(columns)):
        raise UserError(f"{source.path}: the record has no array {item.get('array')!r} of "
                        f"{len(rows)} rows and {len(columns)} columns")  # fmt: skip
    values = np.asarray(values, float)
    log = bool(item.get("log"))
    if kind == "heat":
        return Heat(title=title, rows=rows, columns=columns, values=values, log=log,
                    label=str(item.get("label") or ""))  # fmt: skip
    return Maps(title=title, rows=rows, columns=columns, values=values, log=log)


def _looks(lines: Sequence[Mapping[str, Any]], looks: Styles) -> list[Look]:
    """A model's own look; what is no model (a layer, a loss) has looks within its panel alone."""
    own = Styles()
    return apart(
        [
            looks.of(str(line["model"])) if line.get("model") else own.of(str(line.get("label")))
            for line in lines
        ]
    )
