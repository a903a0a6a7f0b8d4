"""``vitascope report``: one page from any records."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from vitascope import option_types
from vitascope.commands.result import Result
from vitascope.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Report:
    """Make one page of runs, evaluations, inspections, comparisons and studies: the answer first.

    The page is a single file that makes no network requests: figures with a sentence under each,
    tables, definitions and the commands to reproduce it all. Several models are drawn together.

    Examples:
      vitascope report runs/compare
      vitascope report runs/vit runs/convit --out report --title "ViT and ConViT on my photos"
      vitascope report inside/vit inside/convit --formats pdf svg --tables tex csv --out paper
      vitascope report --serve runs/convit
    """

    paths: Annotated[tuple[str, ...], Positional, arg(metavar="PATH [PATH ...]")]
    """Folders or records: runs, evaluations, inspections, comparisons, studies, explorers."""
    out: Path | None = None
    """Folder for report.html, figures/ and tables/; the path's own, or report for several. A name
    that ends in .html is the page's."""
    title: str | None = None
    """A title for the page."""
    formats: tuple[Literal["png", "svg", "pdf"], ...] = ()
    """Also write every figure, for a paper."""
    tables: tuple[Literal["md", "tex", "csv"], ...] = ()
    """Also write every table."""
    serve: bool = False
    """Serve the explorer on this machine, for images of your own; ends with Ctrl-C."""
    data: str | None = None
    """Images that --serve shows at first; needed for a model given by name, a run has its own."""
    port: int = 8000
    """Port of --serve; 0 takes a free one."""
    json: option_types.Json = False
    quiet: bool = False
    """Print nothing but errors."""


def run(options: Report) -> Result | None:
    """Write the page, or serve the explorer until Ctrl-C."""
    if not options.paths:
        raise UserError("give a run, an evaluation, an inspection, a comparison or a study")
    if options.serve:
        from vitascope.commands.serve import serve

        serve(options.paths, port=options.port, data=options.data)
        return None
    from vitascope.report.page import KINDS, compose, write_report
    from vitascope.report.records import find

    folder, name = _place(options)
    report = compose(find(options.paths, KINDS), options.title)
    page = write_report(report, folder, name)
    values: dict[str, Any] = {
        "report": str(page),
        "answer": report.lead.answer,
        "sections": [
            {"kind": part.kind, "title": part.title, "answer": part.answer}
            for part in report.sections
        ],
        "left_out": list(report.left_out),
    }
    lines = [str(report.lead.answer), *(f"left out: {reason}" for reason in report.left_out)]
    if options.formats:
        from vitascope.report.exports import write_figures

        values["figures"] = [str(path) for path in write_figures(report, folder, options.formats)]
    if options.tables:
        from vitascope.report.exports import write_tables

        values["tables"] = [str(path) for path in write_tables(report, folder, options.tables)]
    for part in ("figures", "tables"):
        if values.get(part):
            lines.append(f"{len(values[part])} {part} in {Path(values[part][0]).parent}")
    if options.quiet and not options.json:
        return None
    return Result(records={}, summary="\n".join(lines), values=values, written=page)


def _place(options: Report) -> tuple[Path, str]:
    """The folder asked for, that of the only path, or ``report`` for several; and the page's name.

    Raises:
        UserError: If there is a file where a folder should be, or a folder where a page should.
    """
    name, out = "report.html", options.out
    if out is not None:
        page = out.suffix.lower() in (".html", ".htm")
        if page and out.is_dir():
            raise UserError(f"--out {out} is a folder that is called like a page; give another")
        if out.is_file() and not page:
            raise UserError(f"--out {out} is a file; give a folder for report.html, or NAME.html")
        return (out.parent, out.name) if page else (out, name)
    if len(options.paths) > 1:
        return Path("report"), name
    path = Path(options.paths[0])
    return (path if path.is_dir() else path.parent), name
