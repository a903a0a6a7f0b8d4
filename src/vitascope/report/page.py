"""One self-contained page from records of any kind.

The page needs nothing but itself: style, script and drawings are inside, its content policy
forbids any request, it opens from a disk, and everything on it is there without the script (but
for the explorer, which says so). The answer comes first; a list of contents when there are several
sections.
"""

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitascope.record import write_text
from vitascope.report.contents import PageContents
from vitascope.report.explorer.page import section as explorer_part
from vitascope.report.figures.page_renderer import across, draw_panel, left_out, num_points, room
from vitascope.report.figures.style import COLOURS
from vitascope.report.formatting import FILTERS
from vitascope.report.sections.section import Section

_PAGE_BYTES = 4_500_000
_POINTS = (200, 80, 30)


def write_report(report: PageContents, folder: Path, name: str = "report.html") -> Path:
    """Write the page into ``folder``, whole or not at all; return where it is."""
    path = Path(folder) / name
    write_text(path, render_page(report))
    return path


def render_page(report: PageContents) -> str:
    """The page's text, with fewer points per line where it would grow too large."""
    for most in _POINTS:
        html = _render(report, most)
        if len(html.encode("utf-8")) <= _PAGE_BYTES:
            break
    return html


def _render(report: PageContents, most: int) -> str:
    sections = report.sections
    several = len(sections) > 1
    template = _environment().get_template("section.html")
    items = []
    for place, section in enumerate(sections):
        p, level = (f"s{place + 1}-", 3) if several else ("", 2)
        body = template.render(section=section, p=p, level=level, most=most)
        items.append({"section": section, "anchor": f"part-{place + 1}", "body": Markup(body)})
    style, scripts, explorer = _asset("style.css"), [_asset("script.js")], Markup()
    if report.explorers:
        css = {name: style.css for name, style in report.styles.names.items()}
        part = explorer_part(report.explorers, css)
        explorer, style = part.html, f"{style}\n{part.style}"
        scripts.append(part.script)
    lead = report.lead
    about = lead.facts[0][1] if lead.facts else lead.title
    page = _environment().get_template("page.html")
    return page.render(
        title=report.title or f"{lead.answer} · {about}",
        brand=report.title or (sections[0].kind if not several else "report"),
        colours=COLOURS,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        hashes=[_hash(script) for script in scripts],
        hero=lead,
        own_hero=lead is not sections[0],
        explorer=explorer,
        contents=items if several else [],
        links=[] if several else _links(sections[0]),
        items=items,
        made=report.time,
        source=sections[0].source if not several else "",
        left_out=report.left_out,
    )


def _links(section: Section) -> list[tuple[str, str]]:
    """The parts of a page's only section."""
    found = [("claims", "Claims")] * bool(section.claims)
    found += [(f"figure-{i + 1}", figure.title) for i, figure in enumerate(section.figures)]
    found += [(f"gallery-{i + 1}", each.title) for i, each in enumerate(section.galleries)]
    tables = "Table" if len(section.tables) == 1 else "Tables"
    found += [("table-1", tables)] * bool(section.tables)
    found += [("definitions", "Definitions")] * bool(section.terms)
    return found + [("again", "Again")] * bool(section.agains)


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
    environment.globals.update(
        across=across, draw_panel=draw_panel, room=room, left_out=left_out, num_points=num_points
    )
    return environment


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _asset(name: str) -> str:
    return files("vitascope.report").joinpath("templates", name).read_text(encoding="utf-8")
