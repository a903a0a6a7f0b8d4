"""What a command found: records, the table a terminal shows, figures and a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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

    def __repr__(self) -> str:
        return self.summary  # what an interpreter shows of it, too

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
        """Whether there is anything that a page shows."""
        from vitascope.report.contents import KINDS

        return any(record.kind in KINDS for record in self.records.values())

    def report(self) -> Any:
        """The contents of the page."""
        from vitascope.report.contents import compose
        from vitascope.report.records import Found, Source

        sources = [
            Source(path=Path(f"{name}.json"), record=record)
            for name, record in self.records.items()
        ]
        return compose(Found(sources=tuple(sources)))


def with_figures(name: str, record: "Record", summary: str, out: Path) -> Result:
    """The result of one record, with its figures written to ``out``."""
    from vitascope.report.exports import write_figures

    result = Result(records={name: record}, summary=summary, values=record.values)
    figures = write_figures(result.report(), out, (*FORMATS, "pdf"))
    values = {**record.values, "figures": [str(path) for path in figures]}
    return replace(result, values=values, written=figures[0])
