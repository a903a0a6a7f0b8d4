"""What a command found: records, the table a terminal shows, figures and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope.errors import UserError
from vitascope.progress import in_notebook

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from vitascope.deploy.prediction import Prediction
    from vitascope.record import Record

__all__ = ["FORMATS", "Result", "with_figures"]


FORMATS = ("png", "svg")  # of figures that are saved next to records


@dataclass(frozen=True, kw_only=True, repr=False)
class Result:
    """The result of a command: prints as its table, draws figures, saves records and a page."""

    records: Mapping[str, "Record"]  # by the name of their file
    summary: str  # what a terminal shows
    values: Any  # what --json prints
    notes: tuple[str, ...] = ()  # what a reader must know
    written: Path | None = None  # where the page or figure is, if it was written
    rows: Sequence[Mapping[str, Any]] = ()  # for `table()`, unless they follow from the records
    best: str | None = None  # the model that a comparison recommends, or that was trained
    run: Path | None = None  # its run folder

    def __repr__(self) -> str:
        return "\n".join([self.summary, *self.notes])  # what an interpreter shows of it, too

    def table(self) -> Any:
        """Return the numbers as a pandas DataFrame, or as a list of dicts without pandas."""
        rows = [dict(row) for row in self.rows]
        rows = rows or [row for record in self.records.values() for row in rows_of(record)]
        try:
            from pandas import DataFrame
        except ImportError:
            return rows
        return DataFrame(rows)

    def predict(self, images: Any, **options: Any) -> "list[Prediction]":
        """Classify images with the recommended or trained model, as :func:`vitascope.predict`."""
        if self.run is None:
            raise UserError(
                "there is no trained model here; predict takes results of compare or train"
            )
        from vitascope.deploy.prediction import predict

        return predict(self.run, images, **options)

    def show(self) -> None:
        """Show the page in a notebook; elsewhere print the summary, and where the page is."""
        if in_notebook():
            from IPython.display import HTML, display

            display(HTML(self._repr_html_()))
            return
        print(self)
        if self.written is not None:
            print(self.written)

    @property
    def record(self) -> "Record":
        """The first record."""
        return next(iter(self.records.values()))

    def figures(self) -> dict[str, "Figure"]:
        """The page's figures for a paper, by name, drawn by matplotlib."""
        from vitascope.report.exports import drawings

        return dict(drawings(self.report())) if self._shown else {}

    def save(self, folder: str | Path, formats: Sequence[str] = FORMATS) -> Path:
        """Write records, ``figures/`` and ``report.html``; return where the page is."""
        from vitascope.report.exports import write_figures
        from vitascope.report.page import write_folder_page

        folder = Path(folder)
        for name, record in self.records.items():
            record.save(folder / name)
        if not self._shown:
            return folder
        write_figures(self.report(), folder, formats)
        return write_folder_page(folder)

    def _repr_html_(self) -> str:
        """The page, in a frame of a notebook."""
        if not self._shown:
            return f"<pre>{escape(self.summary)}</pre>"
        from vitascope.report.page import render_page

        page = escape(render_page(self.report()), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="700" frameborder="0"></iframe>'

    @property
    def _shown(self) -> bool:
        """Return whether there is anything that a page shows."""
        from vitascope.report.page import KINDS

        return any(record.kind in KINDS for record in self.records.values())

    def report(self) -> Any:
        """The contents of the page."""
        from vitascope.report.page import compose
        from vitascope.report.records import FoundRecords, Source

        sources = [
            Source(path=Path(f"{name}.json"), record=record)
            for name, record in self.records.items()
        ]
        return compose(FoundRecords(sources=tuple(sources)))


def rows_of(record: "Record") -> list[dict[str, Any]]:
    """Return the numbers of a record as rows of one table.

    A comparison has a row per model and number of images, a study one per cell of its tables, an
    instrument one per layer or unit; other records have a single row.
    """
    values = record.values
    if record.kind in ("compare", "pretrained"):
        return [
            {**_numbers(row), **_numbers(entry)}
            for row in values["table"]
            for entry in row.get("entries", [{}])
        ]
    if record.kind == "study":
        return [
            {"table": table["name"], "row": row["label"], "column": column, **_numbers(cell)}
            for table in values["tables"]
            for row in table["rows"]
            for column, cell in zip(table["columns"], row["cells"], strict=True)
        ]
    places = next((name for name in ("layers", "units") if isinstance(values.get(name), list)), "")
    if not places:
        return [{"measure": record.kind, **_numbers(values)}]
    count = len(values[places])
    columns = {n: v for n, v in values.items() if isinstance(v, list) and len(v) == count}
    columns = {n: v for n, v in columns.items() if not any(isinstance(x, list | dict) for x in v)}
    lines = zip(*columns.values(), strict=True)
    return [{"measure": record.kind, **dict(zip(columns, line, strict=True))} for line in lines]


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that fit into a cell of a table."""
    return {n: v for n, v in values.items() if v is None or isinstance(v, str | int | float)}


def with_figures(name: str, record: "Record", summary: str, out: Path) -> Result:
    """The result of one record, with its figures written to ``out``."""
    from vitascope.report.exports import write_figures

    result = Result(records={name: record}, summary=summary, values=record.values)
    figures = write_figures(result.report(), out, (*FORMATS, "pdf"))
    values = {**record.values, "figures": [str(path) for path in figures]}
    return replace(result, values=values, written=figures[0])
