"""A gallery as data: small pictures with their predictions, and the same as a table."""

from dataclasses import dataclass

from vitascope.report.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class Picture:
    """An image with a model's prediction."""

    source: str  # data: the image itself; empty where it is not at hand
    coarse: bool  # of so few pixels that each should be seen
    alt: str
    said: str
    words: tuple[str, ...]
    file: str  # its name, and the folder it lies in
    path: str


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Pictures under a title; the table has the same in words."""

    title: str
    how: str
    pictures: tuple[Picture, ...]
    table: Table
