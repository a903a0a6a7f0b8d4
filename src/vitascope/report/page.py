"""One self-contained page from records of any kind.

The page needs nothing but itself: style, script and drawings are inside, its content policy
forbids any request, it opens from a disk, and everything on it is there without the script (but
for the explorer, which says so). The answer comes first, with what to do next; details are folded.
A page of several sections has a list of contents.
"""

from pathlib import Path

from markupsafe import Markup

from vitascope.record import write_text
from vitascope.report.contents import KINDS, PageContents, compose
from vitascope.report.explorer.page import section as explorer_part
from vitascope.report.figures.style import COLOURS
from vitascope.report.page_templates import asset, environment, script_hash
from vitascope.report.records import find

_PAGE_BYTES = 4_500_000

_POINTS = (200, 80, 30)


def write_folder_page(folder: str | Path) -> Path:
    """Write ``folder/report.html`` from all records below it."""
    return write_report(compose(find([folder], KINDS)), Path(folder))


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
    template = environment().get_template("section.html")
    items = []
    for number, section in enumerate(sections):
        p, level = (f"s{number + 1}-", 3) if several else ("", 2)
        body = template.render(section=section, p=p, level=level, most=most)
        items.append({"section": section, "anchor": f"part-{number + 1}", "body": Markup(body)})
    style, scripts, explorer = asset("style.css"), [asset("script.js")], Markup()
    if report.explorers:
        css = {name: style.css for name, style in report.styles.names.items()}
        part = explorer_part(report.explorers, css, first=report.lead.explored)
        explorer, style = part.html, f"{style}\n{part.style}"
        scripts.append(part.script)
    lead = report.lead
    about = lead.facts[0][1] if lead.facts else lead.title
    page = environment().get_template("page.html")
    return page.render(
        title=report.title or f"{lead.answer} · {about}",
        brand=report.title or (sections[0].kind if not several else "report"),
        colours=COLOURS,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        hashes=[script_hash(script) for script in scripts],
        hero=lead,
        own_hero=lead is not sections[0],
        explorer=explorer,
        contents=items if several else [],
        items=items,
        made=report.time,
        source=sections[0].source if not several else "",
        left_out=report.left_out,
    )
