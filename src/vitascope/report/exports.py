"""Everything a report shows as files of its own: figures for papers, tables for anything."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from vitascope.record import write_text
from vitascope.report.contents import PageContents
from vitascope.report.figures.figure import file_name
from vitascope.report.figures.paper_renderer import Drawing, draw_figure, save_figure
from vitascope.report.sections.section import Section
from vitascope.report.tables.study import claims_table
from vitascope.report.tables.table import FILE_WRITERS, Table


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
