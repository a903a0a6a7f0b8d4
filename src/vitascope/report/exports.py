"""Everything a report shows as files of its own: figures for papers, tables for anything."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from vitascope.figure import Style
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS
from vitascope.record import Record, write_text
from vitascope.report.figures.paper_renderer import Drawing, draw_figure, save_figure
from vitascope.report.page import PageContents
from vitascope.report.sections.claims import claims_table
from vitascope.report.sections.section import Section
from vitascope.table import FILE_WRITERS, Table


def write_figures(report: PageContents, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``folder/figures/NAME.{png,svg,pdf}`` for every figure of the page."""
    written: list[Path] = []
    for name, drawing in drawings(report):
        written += save_figure(drawing, Path(folder) / "figures", name, formats)
    return written


def drawings(report: PageContents) -> Iterator[tuple[str, Drawing]]:
    """Every figure of the page with the name of its file."""
    taken: set[str] = set()
    for section, prefix in _named(report):
        for name, drawing in _drawings(section):
            chosen = file_name(prefix + name, taken)
            taken.add(chosen)
            yield chosen, drawing


def _drawings(section: Section) -> Iterator[tuple[str, Drawing]]:
    together = "" if section.num_models == 1 else f"-{section.num_models}-models"
    for figure in section.figures:  # of several models: one model's own may lie there already
        yield figure.name + together, draw_figure(figure)


def write_tables(report: PageContents, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``folder/tables/NAME.{md,tex,csv}`` for every table of the page."""
    written = []
    taken: set[str] = set()
    for section, prefix in _named(report):
        for table in _tables(section):
            chosen = file_name(prefix + table.name, taken)
            taken.add(chosen)
            for kind in formats:
                path = Path(folder) / "tables" / f"{chosen}.{kind}"
                write_text(path, FILE_WRITERS[kind](table) + "\n")
                written.append(path)
    return written


def _named(report: PageContents) -> Iterator[tuple[Section, str]]:
    """Sections, with what tells their files apart where there are several."""
    several = len(report.sections) > 1
    for section in report.sections:
        own = Path(section.source).stem if section.kind == "study" else section.kind
        yield section, f"{own}-" if several else ""


def _tables(section: Section) -> Iterator[Table]:
    """The section's tables, those of its galleries, and the claims of a study as one more."""
    yield from section.tables
    yield from (gallery.table for gallery in section.galleries)
    if section.claims:
        claims = [claim.stored for claim in section.claims]
        yield claims_table(claims, f"Claims of the paper: {section.title}")


def pictures(records: Mapping[str, Record], label: str) -> dict[str, np.ndarray]:
    """The figure of each record, (height, width, 3) in uint8, by instrument; ``label`` names it."""
    named = {
        kind: ModelRecord(label=label, style=Style(0, "circle"), record=record)
        for kind, record in records.items()
    }
    return {
        kind: draw_figure(INSTRUMENTS[kind].figure([one])).pixels() for kind, one in named.items()
    }


def file_name(text: str, taken: Iterable[str] = ()) -> str:
    """A name for a file from words that may hold anything; unlike those taken.

    >>> file_name("a/../b <x>"), file_name("top1", ["top1"])
    ('a_b_x', 'top1-2')
    """
    plain = re.sub(r"[^A-Za-z0-9-]+", "_", text).strip("_")[:60] or "figure"
    others, name, turn = set(taken), plain, 1
    while name in others:
        turn += 1
        name = f"{plain}-{turn}"
    return name
