"""A study of a paper's tables and figures: verdicts first, our numbers next to the paper's."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vitascope.errors import UserError
from vitascope.figure import Dots, Figure, Lines, Panel, restored
from vitascope.report.figures.axes import count
from vitascope.report.figures.style import Styles, apart
from vitascope.report.formatting import listed
from vitascope.report.instruments.per_layer import sentence
from vitascope.report.records import Source
from vitascope.report.sections.section import VERDICTS, Badge, JudgedClaim, Section, again
from vitascope.report.tables.study import (
    CountedClaim,
    claim_in_words,
    runs_in_words,
    study_table,
    tested,
    with_authors,
)
from vitascope.report.tables.study import correction as correct_claims
from vitascope.report.tables.study import tally as tally_verdicts
from vitascope.settings import command_line, with_changes

_SCALES = {
    "smoke": "Smoke scale: seconds of training show that it runs, not what is true",
    "laptop": "Laptop scale: small models and few images, not the paper's",
    "desk": "Desk scale: small models on real images, not the paper's",
}
_VERDICTS = (
    "Agrees, disagrees, undecided, not testable here",
    "A claim of the paper is tested on our numbers. It is decided when the 95 % interval of the "
    "contrast, over test images and seeds, lies on one side. Otherwise it is not testable here if "
    "the paper's own effect is smaller than what is detected here with 80 % power, and "
    "undecided if we should have seen it, or if the paper gives no number.",
)
_SPREAD = ("±", "One standard deviation over seeds.")
_ONE_SEED = "There is one seed, so no claim about the models can be decided. Run three:"
_LARGER = {"smoke": "laptop", "laptop": "desk", "desk": "paper"}  # the next scale


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of the models that lines and rows are about."""
    names: dict[str, str] = {}
    for source in sources:
        kinds = source.record.values.get("kinds") or {}
        for figure in source.record.values.get("figures") or ():
            for panel in figure.get("panels") or ():
                for line in panel.get("series") or ():
                    name = str(line.get("model") or "")
                    names.setdefault(name, str(kinds.get(name, "other")))
    return [(name, kind) for name, kind in names.items() if name]


def tally(claims: Sequence[JudgedClaim]) -> str:
    """Return how many claims agree, in words."""
    return tally_verdicts([claim.badge.words for claim in claims])


def correction(claims: Sequence[JudgedClaim]) -> str:
    """Return what is left of them at a false discovery rate of 5 % per paper, in words."""
    return correct_claims([CountedClaim(c.source, c.badge.words, c.p_value) for c in claims])


def section(source: Source, styles: Styles) -> Section:
    """One section per study."""
    record, values = source.record, source.record.values
    claims = tuple(_claim(item) for item in values.get("claims") or ())
    figures = tuple(_figure(source, item, styles) for item in values.get("figures") or ())
    tables = tuple(study_table(item, styles.names) for item in values.get("tables") or ())
    title, covers = str(values["title"]), with_authors(listed(values.get("covers") or []))
    seeds = values.get("seeds") or []
    facts = [
        ("images", values.get("data")),
        ("to test on", values.get("num_test")),
        ("scale", values.get("scale")),
        ("seeds", listed(seeds) if seeds else None),
        ("runs", values.get("num_runs")),
        ("covers", covers),
    ]
    counts = tally(claims)
    taken = (f"{runs_in_words(values)}.",) if values.get("earlier") else ()
    line = str(values.get("command") or "")
    more = f" `{with_changes(line, {'--seeds': (0, 1, 2)})}`" if line else " add --seeds 0 1 2."
    single = (f"{_ONE_SEED}{more}",) if claims and len(seeds) == 1 else ()
    terms = (_VERDICTS, _SPREAD)
    scale = _SCALES.get(str(values.get("scale")))
    said_to_hold = str(values.get("claim") or "")
    claimed = claim_in_words(covers, said_to_hold) if said_to_hold else ""
    made = again(record, line, seed=seeds or record.seed)
    return Section(
        kind="study",
        label="Study",
        title=title,
        question=f"{title} {claimed}".strip(),
        answer=f"{counts}." if claims else said_to_hold or title,
        badge=Badge(words=scale, sign="△") if scale else None,
        leads=tuple(filter(None, (correction(claims), *_main_claims(claims), *taken))),
        cautions=single,
        steps=_steps(line, str(values.get("scale"))),
        facts=tuple((k, count(v) if isinstance(v, int) else str(v)) for k, v in facts if v),
        claims=claims,
        figures=figures,
        tables=tables,
        terms=terms if claims or tables else (),
        agains=(made,),
        source=source.path.name,
    )


def _steps(line: str, scale: str) -> tuple[tuple[str, str], ...]:
    """The same study at the next scale."""
    if not line or scale not in _LARGER:
        return ()
    study = line.split(" ")[:3]  # images, seeds and epochs are the scale's own
    larger = command_line(study, [("--scale", _LARGER[scale]), ("--plan", True)])
    return ((f"See what the next scale, {_LARGER[scale]}, would take", larger),)


def _figure(source: Source, item: Mapping[str, Any], styles: Styles) -> Figure:
    """A figure of the record in the styles of the page."""
    try:
        figure = restored(item, source.record.arrays)
    except UserError as error:
        raise UserError(f"{source.path}: {error}") from None
    panels = tuple(_styled(panel, styles) for panel in figure.panels)
    hows = [figure.how]
    if any(isinstance(p, Lines) and any(line.low for line in p.series) for p in panels):
        bands = source.record.values.get("bands") or "lowest to highest seed"
        hows.append(f"Bands: {bands}.")
    if any(isinstance(panel, Dots) for panel in panels):
        hows.append("Small dots: single seeds; rings: the paper's numbers.")
    return replace(figure, panels=panels, how=" ".join(filter(None, hows)))


def _styled(panel: Panel, styles: Styles) -> Panel:
    """A model has its own style; what is no model (a layer, a loss) has one within its panel."""
    if not isinstance(panel, (Lines, Dots)):
        return panel
    own = Styles()
    chosen = apart(
        [styles.of(line.model) if line.model else own.of(line.label) for line in panel.series]
    )
    lines: Any = zip(panel.series, chosen, strict=True)
    series: Any = tuple(replace(line, style=style) for line, style in lines)
    return replace(panel, series=series)


def _claim(item: Mapping[str, Any]) -> JudgedClaim:
    verdict, text = str(item.get("verdict") or "not tried"), str(item["text"])
    sign, tone = VERDICTS.get(verdict, ("?", "unsure"))
    return JudgedClaim(
        source=with_authors(str(item.get("source") or "")),
        text=sentence(text),
        reading=str(item.get("reading") or ""),
        badge=Badge(words=verdict, sign=sign, tone=tone),
        p_value=tested(item).p_value,
        stored=item,
    )


def _main_claims(claims: Sequence[JudgedClaim]) -> tuple[str, ...]:
    """The first claim that disagrees and the first that agrees, with their numbers."""
    main = []
    for wanted, start in (("disagrees", "Does not hold here"), ("agrees", "Holds here")):
        claim = next((claim for claim in claims if claim.badge.words == wanted), None)
        if claim is not None:
            main.append(told(claim, start))
    return tuple(main) or tuple(told(claim, "Not settled") for claim in claims[:1])


def told(claim: JudgedClaim, start: str) -> str:
    """A claim and what we found, in one line."""
    return f"{start}: {claim.text.rstrip('.')}. {claim.reading}".strip()
