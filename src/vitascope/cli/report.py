"""``vitascope report``: one page from any records."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vitascope.cli.options import parse
from vitascope.errors import UserError

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make one page of runs, inspections, comparisons and studies: the answer first, then why.

    The page is a single file that needs no network: figures with a sentence under each, tables,
    definitions and the commands to get everything again. Several models are drawn together.

    Examples:
      vitascope report runs/compare
      vitascope report runs/vit runs/convit --out report --title "ViT and ConViT on my photos"
      vitascope report inside/vit inside/convit --formats pdf svg --tables tex csv --out paper
      vitascope report --serve runs/convit
    """

    paths: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Folders or records: runs, inspections, comparisons, studies, explorers."""
    out: Path | None = None
    """Folder for report.html, figures/ and tables/; the path's own, or report for several."""
    title: str | None = None
    """A title for the page."""
    formats: tuple[Literal["png", "svg", "pdf"], ...] = ()
    """Also write every figure, for a paper."""
    tables: tuple[Literal["md", "tex", "csv"], ...] = ()
    """Also write every table."""
    serve: bool = False
    """Offer the explorer live on this machine, for images of your own; ends with Ctrl-C."""
    data: str | None = None
    """Images that --serve shows at first; needed for a model given by name, a run has its own."""
    port: int = 8000
    """Port of --serve; 0 takes a free one."""
    json: bool = False
    """Print what was written, and the answers, as JSON."""
    quiet: bool = False
    """Print nothing but mistakes."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope report`` and write the page."""
    args = parse(Report, "vitascope report", words)
    if not args.paths:
        raise UserError("give a run, an inspection, a comparison or a study to report on")
    if args.serve:
        from vitascope.cli.serve import serve

        serve(args.paths, port=args.port, data=args.data)
        return
    from vitascope.report.compose import KINDS, compose
    from vitascope.report.found import find
    from vitascope.report.page import write_report

    folder = _folder(args)
    report = compose(find(args.paths, KINDS), args.title)
    page = write_report(report, folder)
    told: dict[str, Any] = {
        "report": str(page),
        "answer": report.lead.answer,
        "sections": [
            {"kind": part.kind, "title": part.title, "answer": part.answer}
            for part in report.sections
        ],
        "left_out": list(report.left_out),
    }
    if args.formats:
        from vitascope.report.exports import write_figures

        told["figures"] = [str(path) for path in write_figures(report, folder, args.formats)]
    if args.tables:
        from vitascope.report.exports import write_tables

        told["tables"] = [str(path) for path in write_tables(report, folder, args.tables)]
    if args.json:
        print(json.dumps(told))
    elif not args.quiet:
        _tell(told)


def _folder(args: Report) -> Path:
    """The folder asked for; that of the only path; ``report`` for several."""
    if args.out is not None:
        if args.out.is_file():
            raise UserError(f"--out {args.out} is a file; give a folder for report.html")
        return args.out
    if len(args.paths) > 1:
        return Path("report")
    path = Path(args.paths[0])
    return path if path.is_dir() else path.parent


def _tell(told: dict[str, Any]) -> None:
    print(told["answer"])
    for words in told["left_out"]:
        print(f"left out: {words}")
    for what in ("figures", "tables"):
        if told.get(what):
            print(f"{len(told[what])} {what} in {Path(told[what][0]).parent}")
    print(told["report"])
