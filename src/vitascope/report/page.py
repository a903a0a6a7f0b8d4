"""One self-contained page from records of any kind.

The page needs nothing but itself: style, script and drawings are inside, its content policy
forbids any request, it opens from a disk, and everything on it is there without the script (but
for the explorer, which says so). The answer comes first, with what to do next; details are folded.
A page of several sections has a list of contents.

Builders make the sections from records, in the page's order, with one style for each model.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from jinja2 import TemplateError
from markupsafe import Markup

from vitascope.errors import UserError
from vitascope.measure.registry import INSTRUMENTS
from vitascope.record import Record, write_text
from vitascope.report.explorer.data import kind_of
from vitascope.report.explorer.page import section as explorer_part
from vitascope.report.figures.style import COLOURS, Styles
from vitascope.report.page_templates import asset, environment, script_hash
from vitascope.report.records import FoundRecords, Source, find
from vitascope.report.sections import (
    buildup,
    comparison,
    evaluation,
    inspection,
    models,
    pretrained,
    run,
    spectra,
    study,
    task,
)
from vitascope.report.sections.claims import correction, tally
from vitascope.report.sections.section import Section
from vitascope.report.sections.study import claim_line, counted

_PAGE_BYTES = 4_500_000

_POINTS = (200, 80, 30)


@dataclass(frozen=True, kw_only=True)
class Builder:
    """Makes sections from records of some kinds: one for each record, or one for all together."""

    kinds: tuple[str, ...]
    each: Callable[[Source, Styles], Section] | None = None
    together: Callable[[Sequence[Source], Styles], Section] | None = None
    models: Callable[[Sequence[Source]], Iterable[tuple[str, str]]] = lambda sources: ()

    def sections(self, sources: Sequence[Source], styles: Styles) -> list[Section]:
        """The sections of these records."""
        parts = [self.together(sources, styles)] if self.together and sources else []
        return parts + ([self.each(source, styles) for source in sources] if self.each else [])


BUILDERS = (  # in the page's order
    Builder(kinds=("compare",), each=comparison.section, models=comparison.models),
    Builder(kinds=("pretrained",), each=pretrained.section, models=pretrained.models),
    Builder(kinds=("study",), each=study.section, models=study.models),
    Builder(kinds=("buildup",), each=buildup.section),
    Builder(kinds=("spectra",), each=spectra.section, models=spectra.models),
    Builder(kinds=tuple(INSTRUMENTS), together=inspection.section, models=inspection.models),
    Builder(kinds=("evaluation",), together=evaluation.section, models=evaluation.models),
    Builder(kinds=("run",), together=run.section, models=run.models),
    Builder(kinds=("task",), each=task.section, models=run.models),
    Builder(kinds=("miou", "vqa"), each=task.evaluation),
    Builder(kinds=("bench-throughput",), each=models.section),
)
EXPLORER = "explorer"
KINDS = (*chain(*(builder.kinds for builder in BUILDERS)), EXPLORER)


@dataclass(frozen=True, kw_only=True)
class PageContents:
    """Contents of a page: its sections in order, and the records of its explorer."""

    sections: tuple[Section, ...]
    explorers: tuple[Record, ...] = ()
    styles: Styles = field(default_factory=Styles)
    left_out: tuple[str, ...] = ()
    title: str | None = None
    time: str = ""

    @property
    def lead(self) -> Section:
        """The section whose answer stands on top; of several studies, all verdicts together."""
        first = self.sections[0]
        studies = [section for section in self.sections if section.kind == "study"]
        if first.kind != "study" or len(studies) < 2:
            return first
        claims = [claim for section in studies for claim in section.claims]
        tried = sum(bool(section.claims) for section in studies)
        answer = (
            f"{tally([claim.badge.text for claim in claims])}."
            if claims
            else f"{len(studies)} studies."
        )
        worst = [claim for claim in claims if claim.badge.text == "disagrees"]
        refuted = (claim_line(claim, f"Does not hold here ({claim.source})") for claim in worst[:2])
        return replace(
            first,
            question=f"Which claims hold here? {tried} studies",
            answer=answer,
            leads=tuple(filter(None, (correction(counted(claims)), *refuted))),
            facts=(),
        )


def compose(records: FoundRecords, title: str | None = None) -> PageContents:
    """Sections from records: each builder gets those it reads, all share the same styles.

    A page of all records is made first. If that fails, each record is tried alone: one that does
    not have what its kind needs is named and left out.

    Raises:
        UserError: If no record is whole.
    """
    whole, refused = list(records.sources), list[UserError]()
    if _wrong_with(whole) is not None:
        wrong = [(source, _wrong_with([source])) for source in whole]
        whole = [source for source, error in wrong if error is None]
        refused = [error for _, error in wrong if error is not None]
    if refused and not whole:
        raise refused[0]
    report = _composed(whole)
    return replace(report, left_out=(*records.left_out, *map(str, refused)), title=title)


def _wrong_with(sources: Sequence[Source]) -> UserError | None:
    """Return why records cannot be shown, or None."""
    try:
        with warnings.catch_warnings():  # numbers that cannot be computed with
            warnings.filterwarnings("error", category=RuntimeWarning, module="vitascope")
            render_page(_composed(sources))
    except UserError as error:
        return error
    except _NOT_WHOLE as error:
        first = sources[0]
        kind = first.record.kind
        return UserError(f"{first.path}: not a whole record of {kind!r}: {error!r:.200}")
    return None


_NOT_WHOLE = (
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    ArithmeticError,
    RuntimeWarning,
    TemplateError,
)


def _composed(sources: Sequence[Source]) -> PageContents:
    of: dict[str, list[Source]] = {}
    for source in sources:
        of.setdefault(source.record.kind, []).append(source)
    parts = [
        (builder, sorted(chain(*(of.get(kind, []) for kind in builder.kinds)), key=_order))
        for builder in BUILDERS
    ]
    named = chain(*(builder.models(mine) for builder, mine in parts))
    styles = Styles([*named, *_explored(of.get(EXPLORER, []))])
    sections = list(chain(*(builder.sections(mine, styles) for builder, mine in parts)))
    explorers = tuple(source.record for source in of.get(EXPLORER, []))
    sections = _told_apart(_defined_once(sections))
    times = [str(source.record.made.get("time") or "") for source in sources]
    return PageContents(
        sections=tuple(sections or [_explorer_alone(len(explorers))]),
        explorers=explorers,
        styles=styles,
        time=max(times, default=""),
    )


def _order(source: Source) -> float:
    """Studies stand in the papers' order."""
    order = source.record.values.get("order")
    return order if isinstance(order, (int, float)) else 0


def _defined_once(sections: Sequence[Section]) -> list[Section]:
    """A word is explained in the first section that has it."""
    defined: set[str] = set()
    sections_out = []
    for section in sections:
        terms = tuple(term for term in section.terms if term[0] not in defined)
        defined |= {name for name, _ in terms}
        sections_out.append(replace(section, terms=terms))
    return sections_out


def _told_apart(sections: Sequence[Section]) -> list[Section]:
    """Sections of one title are told apart by their file."""
    titles = [section.title for section in sections]
    return [
        replace(section, label=f"{section.label}, {section.source}")
        if titles.count(section.title) > 1 and section.source
        else section
        for section in sections
    ]


def _explored(sources: Sequence[Source]) -> Iterator[tuple[str, str]]:
    """(name, kind) of the models in an explorer."""
    for source in sources:
        yield str(source.record.values.get("model")), kind_of(source.record.values)


def _explorer_alone(number: int) -> Section:
    return Section(
        kind=EXPLORER,
        label="Explorer",
        title="What each patch looks at",
        question="What does each patch look at?",
        answer="Move over the image: every layer and head shows what that patch attends to.",
        leads=("Two models stand side by side.",) if number > 1 else (),
    )


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
