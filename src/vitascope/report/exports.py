"""Everything a report shows as files of its own: figures for papers, tables for anything."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.figure import Figure as Drawing

from vitascope.record import write_text
from vitascope.report.contents import Report
from vitascope.report.figures.figure import Cell, Row, Table, file_name
from vitascope.report.figures.paper_renderer import draw_figure, save_figure
from vitascope.report.sections.section import Section
from vitascope.report.tables.files import WRITERS

__all__ = ["write_figures", "write_tables"]


def write_figures(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``folder/figures/NAME.{png,svg,pdf}`` for every figure of the page."""
    written: list[Path] = []
    taken: set[str] = set()
    for section, prefix in _named(report):
        for name, drawing in _drawings(section):
            chosen = file_name(prefix + name, taken)
            taken.add(chosen)
            written += save_figure(drawing, Path(folder) / "figures", chosen, formats)
    return written


def _drawings(section: Section) -> Iterator[tuple[str, Drawing]]:
    together = "" if section.num_models == 1 else f"-{section.num_models}-models"
    for figure in section.figures:  # of several models: one model's own may lie there already
        yield figure.name + together, draw_figure(figure)


def write_tables(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write ``folder/tables/NAME.{md,tex,csv}`` for every table of the page."""
    written = []
    taken: set[str] = set()
    for section, prefix in _named(report):
        for table in (*section.tables, *_verdicts(section)):
            chosen = file_name(prefix + table.name, taken)
            taken.add(chosen)
            for kind in formats:
                path = Path(folder) / "tables" / f"{chosen}.{kind}"
                write_text(path, WRITERS[kind](table))
                written.append(path)
    return written


def _named(report: Report) -> Iterator[tuple[Section, str]]:
    """Sections, with what tells their files apart where there are several."""
    several = len(report.sections) > 1
    for section in report.sections:
        own = Path(section.source).stem if section.kind == "study" else section.kind
        yield section, f"{own}-" if several else ""


def _verdicts(section: Section) -> Iterator[Table]:
    """The claims of a study as a table."""
    if section.claims:
        rows = tuple(
            Row(label=claim.source, cells=tuple(Cell(words=words) for words in
                (claim.text, claim.badge.words, claim.reading)))
            for claim in section.claims
        )  # fmt: skip
        yield Table(name="claims", title=f"Claims of the paper: {section.title}", corner="Source",
                    columns=("Claim", "Verdict", "Ours"), rows=rows, numeric=False)  # fmt: skip
