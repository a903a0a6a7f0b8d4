"""The page of everything that a command has left below a folder."""

from pathlib import Path

from vitascope.report.contents import KINDS, compose
from vitascope.report.page import write_report
from vitascope.report.records import find

__all__ = ["write_folder_page"]


def write_folder_page(folder: str | Path, title: str | None = None) -> Path:
    """Write ``folder/report.html`` from the records below it."""
    return write_report(compose(find([folder], KINDS), title), Path(folder))
