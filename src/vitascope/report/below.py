"""The page of everything that a command has left below a folder."""

from pathlib import Path

from vitascope.report.compose import KINDS, compose
from vitascope.report.found import find
from vitascope.report.page import write_report

__all__ = ["page_below"]


def page_below(folder: str | Path, title: str | None = None) -> Path:
    """Write ``folder/report.html`` from the records below it."""
    return write_report(compose(find([folder], KINDS), title), Path(folder))
