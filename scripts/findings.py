"""What was measured on real images, for the README and the index of docs/results.

Leads in accuracy are drawn (`draw_leads`), what was seen inside the networks is a table
(`inside_table`), and the README has five sentences (`findings_in_words`). `LEADS`, `INSIDE` and
`FINDINGS` choose the claims and their words; every number and verdict is the record's own. A claim
that was decided is corrected for several tests over all claims of its paper, or all of our own, on
real images. `make results` writes them.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vitascope.record import Record
from vitascope.report.figures.paper_renderer import STYLE
from vitascope.report.sections.claims import claims_table, standing, tested

_DIAL = "{} is ahead of a plain ViT on 2 % of the images"
_PATCHES = "with patches of 4 on {} % of the images, ConViT is ahead of ViT"

# By question: a study, its claim, and the claim as the figure has it
LEADS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "ConViT over a ViT, 1,000 images": (
        ("fine-grid", "with patches of 4, ConViT is ahead of ViT", "8 x 8 patches, 50 epochs"),
        ("fine-grid", "with patches of 2, ConViT is ahead of ViT", "16 x 16 patches"),
        ("fine-grid-larger", "larger models: ConViT is ahead of ViT", "1 million parameters"),
        ("fine-grid-longer", "three times as long: ConViT is ahead of ViT", "150 epochs"),
        (
            "fine-grid-augmentation",
            "DeiT's augmentation: ConViT is ahead of ViT",
            "DeiT's augmentation",
        ),
        (
            "fine-grid-images",
            "with patches of 4 on 10 % of the images, ConViT is ahead of ViT",
            "5,000 images, 10 epochs",
        ),
    ),
    "Locality in a ViT, 1,000 images": tuple(
        ("locality-dial", _DIAL.format(change), words)
        for change, words in {
            "convolutions": "a ResNet instead",
            "+mimetic": "+mimetic (weights and positions)",
            "+rope": "+rope (rotary positions)",
            "+stem": "+stem (convolutions first)",
            "+sincos": "+sincos (positions alone)",
            "gated": "ConViT's gates",
            "neighbourhood": "neighbourhoods",
            "+lsa": "+lsa (temperature, no diagonal)",
            "+spt": "+spt (shifted patches)",
            "+impulse": "+impulse (3 x 3 start)",
        }.items()
    ),
    "Other changes": (
        (
            "alternet",
            "AlterNet is more accurate than the ResNet",
            "AlterNet over a ResNet, all images once",
        ),
        (
            "pooling",
            "average pooling raises the accuracy",
            "average pooling in a ViT, 5,000 images",
        ),
        (
            "broadcasting",
            "CB raises the final top-1",
            "context broadcasting in a ViT, 5,000 images",
        ),
    ),
}

# By what was looked at: the study, what its networks were trained on, its claims in plain words
INSIDE: Mapping[str, tuple[str, str, Mapping[str, str]]] = {
    "Frequencies": (
        "frequencies",
        "all images once",
        {
            "attention lowers high frequencies in the ViT": (
                "attention lowers high frequencies in a ViT"
            ),
            "attention lowers high frequencies in alternet_micro": "... in AlterNet",
            "MLPs raise high frequencies in the ViT": "MLPs raise high frequencies in a ViT",
            "convolutions raise high frequencies in the ResNet": "... convolutions in a ResNet",
            "convolutions raise high frequencies in alternet_micro": "... convolutions in AlterNet",
            "noise of high frequencies costs the ResNet more": (
                "noise of high frequencies costs a ResNet more than a ViT"
            ),
            "noise of low frequencies costs the ViT more": (
                "noise of low frequencies costs a ViT more than a ResNet"
            ),
        },
    ),
    "Variance of feature maps": (
        "ensembling",
        "all images once",
        {
            "attention lowers the variance in the ViT": (
                "attention lowers the variance of feature maps in a ViT"
            ),
            "attention lowers the variance in alternet_micro": "... in AlterNet",
            "MLPs raise the variance in the ViT": "MLPs raise the variance in a ViT",
            "convolutions raise the variance in the ResNet": "... convolutions in a ResNet",
            "convolutions raise the variance in alternet_micro": "... convolutions in AlterNet",
        },
    ),
    "Both, trained three times as long": (
        "frequencies-longer",
        "all images, 3 epochs",
        {
            "after longer training attention lowers high frequencies in the ViT": (
                "attention lowers high frequencies in a ViT"
            ),
            "after longer training MLPs raise high frequencies in the ViT": "MLPs raise them",
            "after longer training convolutions raise high frequencies in the ResNet": (
                "... convolutions in a ResNet"
            ),
            "after longer training attention lowers the variance in the ViT": (
                "attention lowers the variance in a ViT"
            ),
            "after longer training MLPs raise the variance in the ViT": "MLPs raise it",
            "after longer training convolutions raise the variance in the ResNet": (
                "... convolutions in a ResNet"
            ),
        },
    ),
    "Stages": (
        "stages",
        "all images once",
        {
            "resnet_micro has more block structure than the ViT": (
                "a ResNet has more block structure than a ViT"
            ),
            "alternet_micro has more block structure than the ViT": "... AlterNet",
            "in the ResNet, early stages matter more than late ones": (
                "early stages of a ResNet matter more than late ones"
            ),
            "in the ViT, attention matters more at the end": (
                "attention matters more at the end of a ViT than at its start"
            ),
        },
    ),
    "Convexity": (
        "pooling",
        "5,000 images, after one of 10 epochs",
        {
            "early, resnet_micro has fewer negative eigenvalues than vit_micro": (
                "a ResNet has fewer negative Hessian eigenvalues than a ViT"
            ),
            "early, convit_micro has fewer negative eigenvalues than vit_micro": "... ConViT",
            "average pooling leaves fewer negative eigenvalues": "... a ViT with average pooling",
        },
    ),
    "Context broadcasting": (
        "broadcasting",
        "5,000 images, 10 epochs",
        {"CB lowers the entropy of attention": "context broadcasting makes attention sparser"},
    ),
    "Locality": (
        "locality-in-training",
        "20,000 images, 5 epochs",
        {
            "ConViT ends more local than the plain ViT": "ConViT ends more local than a ViT",
            "GPSA layers escape locality": "GPSA layers leave locality",
            "gates fall in training: more attention goes to content": "gates fall in training",
            "gates fall with depth: early layers keep more position than late ones": (
                "gates fall with depth"
            ),
        },
    ),
}


# Sentences of the README, each with the claims that support it: study, claim, verdict
FINDINGS: Mapping[str, Sequence[tuple[str, str, str]]] = {
    "Trained on 1,000 images, a ResNet is about {} percentage points more accurate than a plain "
    "ViT of the same size.": (("locality-dial", _DIAL.format("convolutions"), "agrees"),),
    "On the same 1,000 images a ConViT is about {} percentage points ahead of the ViT, and with "
    "5,000 images we measured no difference.": (
        ("fine-grid-images", _PATCHES.format(2), "agrees"),
        ("fine-grid-images", _PATCHES.format(10), "undecided"),
    ),
    "Small changes make up most of the gap: starting the weights and positions of a ViT as "
    "`+mimetic` does gives {} percentage points.": (
        ("locality-dial", _DIAL.format("+mimetic"), "agrees"),
    ),
    "Attention lowers high frequencies, as Park and Kim report, and high-frequency noise costs a "
    "ResNet {1} percentage points more than a ViT.": (
        ("frequencies", "attention lowers high frequencies in the ViT", "agrees"),
        ("frequencies", "noise of high frequencies costs the ResNet more", "agrees"),
    ),
    "Context broadcasting makes attention sparser, as its paper aims at, but changed the accuracy "
    "of our small models by too little to measure.": (
        ("broadcasting", "CB lowers the entropy of attention", "agrees"),
        ("broadcasting", "CB raises the final top-1", "undecided"),
    ),
}


OUR_UNIT = (
    "In the longer trainings, the unit of a ResNet is ours: each 3 x 3 convolution of a "
    "pre-activation ResNet. The paper takes each block of a post-activation ResNet. This can "
    "change the sign: in the post-activation ResNets of `frequencies-cifar10`, high frequencies "
    "rise after each convolution, and over a whole block no rise was shown."
)


def note_on_units(study: Record) -> str:
    """That a record has convolutions of our own choice alone; empty where it has the paper's, too.

    Those of `frequencies` and `ensembling` that have both have a table of ours beside.
    """
    tables = [table["name"] for table in study.values.get("tables") or ()]
    on_units = bool({"high", "variance"}.intersection(tables))
    return OUR_UNIT if on_units and not any(name.endswith("-units") for name in tables) else ""


# Sentences of older records, which keep the words of their time
PLAIN = {
    "which chose nothing": "which were not used for selection",
    "do not tell it from": "cannot tell it from",
    "not told from": "no measurable difference from",
    "images tell little about": "images say little about",
}


def in_plain_words(text: str) -> str:
    """Sentences of a record in today's words.

    >>> in_plain_words("On the 9 test images, which chose nothing, a is ahead.")
    'On the 9 test images, which were not used for selection, a is ahead.'
    """
    for old, new in PLAIN.items():
        text = text.replace(old, new)
    return text


class Finding(NamedTuple):
    """A claim in words, its record's study, and whether its verdict stands the correction."""

    words: str
    study: Record
    claim: Mapping[str, Any]
    stands: bool

    @property
    def num_seeds(self) -> int:
        """How often every network was trained."""
        return len(self.study.values["seeds"])

    @property
    def is_decided(self) -> bool:
        """Whether the interval lies off zero."""
        return self.claim["verdict"] in ("agrees", "disagrees")

    @property
    def numbers(self) -> str:
        """The contrast with its interval and unit."""
        return claims_table([self.claim]).rows[0].cells[2].text


def _told(studies: Sequence[Record]) -> Callable[[str, str, str], Finding]:
    """What finds a claim by study and text; the correction is over all claims of ``studies``."""
    every = [(record, claim) for record in studies for claim in record.values["claims"]]
    stand = standing([tested(claim) for _, claim in every])
    found = {
        (record.values["study"], claim["text"]): (record, claim, left)
        for (record, claim), left in zip(every, stand, strict=True)
    }
    return lambda study, text, words: Finding(words, *found[study, text])


def leads(studies: Sequence[Record]) -> dict[str, list[Finding]]:
    """The leads in accuracy that the figure shows, by question."""
    told = _told(studies)
    return {question: [told(*claim) for claim in claims] for question, claims in LEADS.items()}


def findings_in_words(studies: Sequence[Record]) -> str:
    """The sentences of the README, as a list; a verdict that they rest on must be the record's."""
    found, lines = _told(studies), []
    for sentence, claims in FINDINGS.items():
        support = [found(study, text, "") for study, text, _ in claims]
        for one, (study, text, verdict) in zip(support, claims, strict=True):
            if one.claim["verdict"] != verdict or (one.is_decided and not one.stands):
                raise ValueError(f"{study}: {text!r} is no longer {verdict!r}; change FINDINGS")
        numbers = [f"{abs(one.claim['contrast']):.0f}" for one in support]
        lines.append(fill(f"- {sentence.format(*numbers)}", 100, subsequent_indent="  "))
    return "\n".join(lines)


def inside_table(studies: Sequence[Record]) -> str:
    """What was seen inside the networks: one row per claim, and a note on units."""
    found = _told(studies)
    lines = ["| networks | claim | verdict | contrast, 95 % interval |", "|---|---|---|---|"]
    notes = dict[str, None]()
    for subject, (study, training, claims) in INSIDE.items():
        rows = [found(study, text, words) for text, words in claims.items()]
        where = f"{subject}: {training}, {rows[0].num_seeds} seeds"
        for one in rows:
            lines.append(f"| {where} | {one.words} | {_mark(one)} | {one.numbers} |")
            where = ""
        notes[note_on_units(rows[0].study)] = None
    return "\n".join([*lines, "", *filter(None, notes)]).rstrip()


def _mark(finding: Finding) -> str:
    """The verdict; in brackets one that is not significant after the correction."""
    verdict = str(finding.claim["verdict"])
    return verdict if finding.stands else f"({verdict})"


_INK, _FAINT = "#0a5ea8", "#717884"  # decided and undecided


def draw_leads(studies: Sequence[Record], path: Path) -> None:
    """Every lead with its 95 % interval, a line each, as PNG."""
    names: dict[float, str] = {}  # by height, downwards
    headings, at = [], 0.0
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(8.7, 6.2))
        axes = drawing.subplots()
        for question, found in leads(studies).items():
            seeds = {finding.num_seeds for finding in found}
            headings.append(at)
            names[at] = f"{question}, {found[0].num_seeds} seeds" if len(seeds) == 1 else question
            for finding in found:
                at += 1
                own = f", {finding.num_seeds} seeds" * (len(seeds) > 1)
                names[at] = finding.words + own
                _draw(axes, finding, at)
            at += 1.6
        axes.axvline(0, color="black", linewidth=0.8)
        axes.set(ylim=(at - 0.9, -0.7), xlabel="lead in test accuracy, points, 95 % interval")
        axes.set_yticks(list(names), list(names.values()), ha="left")
        axes.tick_params(axis="y", length=0, pad=240)
        for tick, height in zip(axes.get_yticklabels(), names, strict=True):
            tick.set_fontweight("bold" if height in headings else "normal")
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        drawing.legend(handles=_legend(), loc="outside lower center", ncols=3, frameon=False)
        drawing.savefig(path, dpi=130, metadata={"Software": None})


def _draw(axes: Axes, finding: Finding, at: float) -> None:
    """One lead: its interval, and its numbers beside it."""
    colour = _INK if finding.is_decided else _FAINT
    face = colour if finding.is_decided and finding.stands else "white"
    low, middle, high = (finding.claim[name] for name in ("low", "contrast", "high"))
    axes.plot((low, high), (at, at), color=colour, linewidth=1.6)
    axes.plot(middle, at, "o", color=colour, markerfacecolor=face, markersize=5.5)
    numbers = finding.numbers.removesuffix(" points")
    beside = axes.get_yaxis_transform()  # to the right of all lines
    axes.text(1.02, at, numbers, color=colour, va="center", transform=beside)


def _legend() -> list[Line2D]:
    """What the marks mean."""
    marks = (
        ("decided, also after the correction for several claims", _INK, _INK),
        ("decided by itself", _INK, "white"),
        ("undecided", _FAINT, "white"),
    )
    return [
        Line2D([], [], color=colour, marker="o", markersize=5.5, markerfacecolor=face, label=words)
        for words, colour, face in marks
    ]
