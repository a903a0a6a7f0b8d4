"""The page and the figures of everything that a command has left in a folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from vitascope.record import Record
from vitascope.report.contents import KINDS, compose
from vitascope.report.exports import write_figures
from vitascope.report.page import write_report
from vitascope.report.records import Found, Source, find


def write_folder_page(folder: str | Path, title: str | None = None) -> Path:
    """Write ``folder/report.html`` from the records below it."""
    return write_report(compose(find([folder], KINDS), title), Path(folder))


def write_record_figures(
    folder: str | Path, records: Mapping[str, Record], formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write ``folder/figures/NAME.{png,svg}``, or other formats: the figures of a report."""
    folder = Path(folder)
    sources = tuple(
        Source(path=folder / f"{name}.json", record=record) for name, record in records.items()
    )
    return write_figures(compose(Found(sources=sources)), folder, formats) if sources else []
