"""A study of a paper's tables and figures: verdicts first, our numbers beside the paper's."""

from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.report.figures.scale import count
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import listed
from vitascope.report.records import Source
from vitascope.report.sections.section import VERDICTS, Badge, Claim, Section, again
from vitascope.report.sections.study_figures import study_figure
from vitascope.report.tables.study import study_table
from vitascope.report.tables.study import tally as tally_verdicts

__all__ = ["models", "section", "tally", "told"]


_SCALES = {
    "smoke": "Smoke scale: seconds of training show that it runs, not what is true",
    "laptop": "Laptop scale: small models and few images, not the paper's",
}
_TERMS = (
    ("Agrees, disagrees, within noise",
     "A claim of the paper is tried on our numbers. Within noise: our seeds differ as much as the "
     "claim says the models do, so that it is neither confirmed nor refuted."),
    ("±", "One standard deviation over seeds."),
)  # fmt: skip


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of the models that lines and rows are about."""
    found: dict[str, str] = {}
    for source in sources:
        kinds = source.record.values.get("kinds") or {}
        for figure in source.record.values.get("figures") or ():
            for panel in figure.get("panels") or ():
                for line in panel.get("series") or ():
                    name = str(line.get("model") or "")
                    found.setdefault(name, str(kinds.get(name, "other")))
    return [(name, kind) for name, kind in found.items() if name]


def tally(claims: Sequence[Claim]) -> str:
    """How many claims agree, in words."""
    return tally_verdicts([claim.badge.words for claim in claims])


def section(source: Source, looks: Styles) -> Section:
    """One section a study."""
    record, values = source.record, source.record.values
    claims = tuple(_claim(item) for item in values.get("claims") or ())
    figures = tuple(study_figure(source, item, looks) for item in values.get("figures") or ())
    tables = tuple(study_table(item, looks.names) for item in values.get("tables") or ())
    title = str(values["title"])
    seeds = values.get("seeds") or []
    facts = [
        ("images", values.get("data")),
        ("to test on", values.get("num_test")),
        ("scale", values.get("scale")),
        ("seeds", listed(seeds) if seeds else None),
        ("runs", values.get("num_runs")),
        ("covers", listed(values.get("covers") or [])),
    ]
    said = tally(claims)
    scale = _SCALES.get(str(values.get("scale")))
    made = again(record, str(values.get("command") or ""), seed=seeds or record.seed)
    return Section(
        kind="study",
        label="Study",
        title=title,
        question=f"{title} The paper: {values['claim']}." if values.get("claim") else title,
        answer=f"{said}." if claims else str(values.get("claim") or title),
        badge=Badge(words=scale, sign="△") if scale else None,
        leads=_telling(claims),
        facts=tuple((k, count(v) if isinstance(v, int) else str(v)) for k, v in facts if v),
        claims=claims,
        figures=figures,
        tables=tables,
        terms=_TERMS if claims or tables else (),
        agains=(made,),
        source=source.path.name,
    )


def _claim(item: Mapping[str, Any]) -> Claim:
    verdict, text = str(item.get("verdict") or "not tried"), str(item["text"])
    sign, tone = VERDICTS.get(verdict, ("?", "unsure"))
    return Claim(source=str(item.get("source") or ""), text=text[:1].upper() + text[1:],
                 reading=str(item.get("reading") or ""),
                 badge=Badge(words=verdict, sign=sign, tone=tone))  # fmt: skip


def _telling(claims: Sequence[Claim]) -> tuple[str, ...]:
    """The first claim that does not agree and the first that does, with their numbers."""
    found = []
    for wanted, start in (("disagrees", "Unlike the paper"), ("agrees", "As in the paper")):
        claim = next((claim for claim in claims if claim.badge.words == wanted), None)
        if claim is not None:
            found.append(told(claim, start))
    return tuple(found) or tuple(told(claim, "Not settled") for claim in claims[:1])


def told(claim: Claim, start: str) -> str:
    """A claim and what we found, in one line."""
    return f"{start}: {claim.text.rstrip('.')}. {claim.reading}".strip()
