"""One self-contained page from records of any kind.

The page needs nothing but itself: style, script and drawings are inside, its content policy
forbids any request, it opens from a disk, and everything on it is there without the script (but
for the explorer, which says so). The answer comes first; a list of contents when there are several
sections.
"""

import base64
import hashlib
from functools import lru_cache
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitascope.record import Record, load, write_text
from vitascope.report.contents import EXPLORER, Report, compose
from vitascope.report.figures.page_renderer import draw_panel, left_out, room
from vitascope.report.figures.style import COLOURS
from vitascope.report.formatting import FILTERS
from vitascope.report.records import Found, Source, find
from vitascope.report.sections.section import Section

__all__ = ["render_page", "write_page", "write_report"]

_COMPARISON_BYTES = 900_000
_COMPARISON_POINTS = (80, 40, 20, 12)  # drawn of a line, fewer where a section would grow large
_PAGE_BYTES = 4_500_000
_POINTS = (200, 80, 30)


def write_page(folder: Path, record: Record | None = None) -> Path:
    """Write ``folder/report.html`` of ``folder/compare.json`` (or the record given)."""
    folder = Path(folder)
    comparison = load(folder / "compare") if record is None else record
    sources = [Source(path=folder / "compare.json", record=comparison)]
    if comparison.kind != "compare":
        import_module("vitascope.report.sections.comparison_record").Comparison(
            comparison
        )  # refuses it
    if (folder / EXPLORER).is_dir() and any((folder / EXPLORER).glob("*.json")):
        sources += find([folder / EXPLORER], [EXPLORER]).sources
    return write_report(compose(Found(sources=tuple(sources))), folder)


def write_report(report: Report, folder: Path, name: str = "report.html") -> Path:
    """Write the page into ``folder``, whole or not at all; return where it is."""
    path = Path(folder) / name
    write_text(path, render_page(report))
    return path


def render_page(report: Report) -> str:
    """The page's text, with fewer points a line where it would grow too large."""
    for most in _POINTS:
        html = _render(report, most)
        if len(html.encode("utf-8")) <= _PAGE_BYTES:
            break
    return html


def _render(report: Report, most: int) -> str:
    sections = report.sections
    several = len(sections) > 1
    items = []
    for place, section in enumerate(sections):
        p = f"s{place + 1}-" if several else ""
        body = _body(section, p, 3 if several else 2, most)
        items.append({"section": section, "anchor": f"part-{place + 1}", "body": body})
    style, scripts, explorer = _asset("style.css"), [_asset("script.js")], Markup()
    if report.explorers:
        css = {name: look.css for name, look in report.looks.names.items()}
        part: Any = import_module("vitascope.report.explorer.page").section(report.explorers, css)
        explorer, style = part.html, f"{style}\n{part.style}"
        scripts.append(part.script)
    lead = report.lead
    about = lead.facts[0][1] if lead.facts else lead.title
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=report.title or f"{lead.answer} · {about}",
            brand=report.title or (sections[0].kind if not several else "report"),
            colours=COLOURS,
            style=Markup(style),
            scripts=[Markup(script) for script in scripts],
            hashes=[_hash(script) for script in scripts],
            hero=lead,
            comparison=sections[0].special if sections[0].kind == "compare" else None,
            own_hero=lead is not sections[0],
            explorer=explorer,
            contents=items if several else [],
            links=[] if several else _links(sections[0]),
            items=items,
            made=report.time,
            source=sections[0].source if not several else "",
            left_out=report.left_out,
        )
    )  # fmt: skip


def _body(section: Section, p: str, level: int, most: int) -> Markup:
    """All of a section below its answer."""
    environment = _environment()
    if section.kind == EXPLORER:
        return Markup()
    if section.kind != "compare":
        html = environment.get_template("section.html").render(
            section=section, p=p, level=level, most=most
        )
        return Markup(html)
    builder = import_module("vitascope.report.sections.comparison")
    template = environment.get_template("comparison.html")
    for points in _COMPARISON_POINTS:
        html = template.render(builder.drawn(section.special, min(points, most)), p=p, level=level)
        if len(html.encode("utf-8")) <= _COMPARISON_BYTES:
            break
    return Markup(html)


def _links(section: Section) -> list[tuple[str, str]]:
    """The parts of a page's only section."""
    if section.kind == EXPLORER:
        return []
    if section.kind == "compare":
        values = section.special.values
        inside = values.get("gates") or values.get("nonlocality")
        found = [("efficiency", "Sample efficiency"), ("table", "Table")]
        found += [("crossings", "Crossings")] if values.get("crossings") else []
        found += [("cost", "Cost")]
        learned = any(
            section.special.curves(row.fraction, what)
            for row in section.special.rows
            for what in ("top1", "train_nll")
        )
        found += [("learning", "Learning curves")] if learned else []
        found += [("inside", "Attention")] if inside else []
    else:
        found = [("claims", "Claims")] if section.claims else []
        found += [(f"figure-{i + 1}", figure.title) for i, figure in enumerate(section.figures)]
        found += [("table-1", "Table" if len(section.tables) == 1 else "Tables")] * bool(
            section.tables
        )
    found += [("definitions", "Definitions")] * bool(section.terms or section.kind == "compare")
    return [*found, ("again", "Again")]  # fmt: skip


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vitascope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.globals.update(draw_panel=draw_panel, room=room, left_out=left_out)
    return environment


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return files("vitascope.report").joinpath("templates", name).read_text(encoding="utf-8")
