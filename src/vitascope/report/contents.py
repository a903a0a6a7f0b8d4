"""From records to the sections of a page, in order, with one style for each model."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from jinja2 import TemplateError

from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.explorer.data import kind_of
from vitascope.report.figures.style import Styles
from vitascope.report.instruments.summary import INSTRUMENTS
from vitascope.report.records import Found, Source
from vitascope.report.sections import (
    buildup,
    comparison,
    evaluation,
    inspection,
    pretrained,
    run,
    spectra,
    study,
    task,
    throughput,
)
from vitascope.report.sections.section import Section
from vitascope.report.sections.study import correction, tally, told


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
    Builder(kinds=("bench-throughput",), each=throughput.section),
)
EXPLORER = "explorer"
KINDS = (*chain(*(builder.kinds for builder in BUILDERS)), EXPLORER)


@dataclass(frozen=True, kw_only=True)
class PageContents:
    """What a page shows: its sections in order, and the records of its explorer."""

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
        answer = f"{tally(claims)}." if claims else f"{len(studies)} studies."
        worst = [claim for claim in claims if claim.badge.words == "disagrees"]
        refuted = (told(claim, f"Does not hold here ({claim.source})") for claim in worst[:2])
        return replace(
            first,
            question=f"Which claims hold here? {tried} studies",
            answer=answer,
            leads=tuple(filter(None, (correction(claims), *refuted))),
            facts=(),
        )


def compose(found: Found, title: str | None = None) -> PageContents:
    """Sections from records: each builder gets those it reads, all share the same styles.

    A page of all records is made first. If that fails, each record is tried alone: one that does
    not have what its kind needs is named and left out.

    Raises:
        UserError: If no record is whole.
    """
    whole, refused = list(found.sources), list[UserError]()
    if _wrong_with(whole) is not None:
        wrong = [(source, _wrong_with([source])) for source in whole]
        whole = [source for source, error in wrong if error is None]
        refused = [error for _, error in wrong if error is not None]
    if refused and not whole:
        raise refused[0]
    report = _composed(whole)
    return replace(report, left_out=(*found.left_out, *map(str, refused)), title=title)


def _wrong_with(sources: Sequence[Source]) -> UserError | None:
    """Return why records cannot be shown, or None."""
    from vitascope.report.page import render_page

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
