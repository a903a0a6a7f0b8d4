"""``vitascope report``: one page from any records."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vitascope.cli.options import parse
from vitascope.errors import UserError
from vitascope.requests.report import Report


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope report`` and write the page."""
    args = parse(Report, "vitascope report", words)
    if not args.paths:
        raise UserError("give a run, an evaluation, an inspection, a comparison or a study")
    if args.serve:
        from vitascope.cli.serve import serve

        serve(args.paths, port=args.port, data=args.data)
        return
    from vitascope.report.contents import KINDS, compose
    from vitascope.report.page import write_report
    from vitascope.report.records import find

    folder, name = _place(args)
    report = compose(find(args.paths, KINDS), args.title)
    page = write_report(report, folder, name)
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


def _place(args: Report) -> tuple[Path, str]:
    """The folder asked for, that of the only path, or ``report`` for several; and the page's name.

    Raises:
        UserError: If there is a file where a folder should be, or a folder where a page should.
    """
    name, out = "report.html", args.out
    if out is not None:
        page = out.suffix.lower() in (".html", ".htm")
        if page and out.is_dir():
            raise UserError(f"--out {out} is a folder that is called like a page; give another")
        if out.is_file() and not page:
            raise UserError(f"--out {out} is a file; give a folder for report.html, or NAME.html")
        return (out.parent, out.name) if page else (out, name)
    if len(args.paths) > 1:
        return Path("report"), name
    path = Path(args.paths[0])
    return (path if path.is_dir() else path.parent), name


def _tell(told: dict[str, Any]) -> None:
    print(told["answer"])
    for words in told["left_out"]:
        print(f"left out: {words}")
    for what in ("figures", "tables"):
        if told.get(what):
            print(f"{len(told[what])} {what} in {Path(told[what][0]).parent}")
    print(told["report"])
