"""How much locality, put in how, is worth what on few images: the dial from none to hard.

A plain ViT; the same with one change each (:mod:`vitascope.models.vit.dial`): its weights started
otherwise, its attention or its patches changed; gated positions (ConViT); neighbourhoods; and a
CNN. Small models on a grid fine enough for locality to matter: 16 x 16 patches at a desk.
"""

from typing import Any

from vitascope.figure import Figure
from vitascope.studies.papers.figures import lines, over
from vitascope.studies.papers.plan import Ask, Claim, Findings, Plan, Row, Sheet, Study
from vitascope.studies.papers.scale import IMAGENET, Role, Scale

__all__ = ["STUDIES"]

_CHANGES = ("mimetic", "impulse", "lsa", "spt", "stem", "rope")
_OTHERS = {  # at the paper's scale, and small
    "gated": ("convit_tiny", "convit_micro"),
    "neighbourhood": ("convolutional_vit_tiny", "convolutional_vit_micro"),
    "convolutions": ("resnet_preact_18", "resnet_micro"),
}


def dial(scale: Scale) -> Plan:
    """Top-1 of every kind of locality against the number of images."""
    fractions = scale.pick(paper=(0.05, 0.1, 1.0), laptop=(0.1, 1.0), desk=(0.02, 0.1))
    changes = scale.pick(paper=_CHANGES, laptop=_CHANGES, smoke=("impulse", "lsa"))
    others = scale.pick(paper=_OTHERS, laptop=_OTHERS, smoke={"gated": _OTHERS["gated"]})
    patch: dict[str, Any] = scale.pick(paper={}, laptop={"patch_size": 2})
    names = {"plain": ("deit_tiny", "vit_micro")}
    names |= {f"+{change}": (f"deit_tiny+{change}", f"vit_micro+{change}") for change in changes}
    names |= others
    rows = []
    for label, (large, small) in names.items():
        cut = {} if label == "convolutions" else patch
        role: Role = ((large, {}), (small, cut), (small, cut))
        cells = [Ask(training=scale.few(role, fraction=f)) for f in fractions]
        rows.append(Row(label=label, cells=cells))
    least, most = _share(fractions[0]), _share(fractions[-1])
    claims = [
        Claim(
            source="Locality dial",
            table="top1",
            text=f"{row.label} is ahead of a plain ViT on {least} of the images",
            cells={(row.label, least): 1, ("plain", least): -1},
        )
        for row in rows[1:]
    ]
    claims += [
        Claim(
            source="Locality dial",
            table="top1",
            text=f"the lead of {row.label} shrinks with more images",
            cells={
                (row.label, least): 1,
                ("plain", least): -1,
                (row.label, most): -1,
                ("plain", most): 1,
            },
        )
        for row in rows[1:]
    ]

    def figures(findings: Findings) -> list[Figure]:
        series = [
            over(
                [100 * f for f in fractions],
                [findings.values(ask) for ask in row.cells if ask is not None],
                row.label,
                model=False,
            )
            for row in rows
        ]
        drawn = lines(
            "Top-1 by share of the images",
            series,
            x="images of each class, %",
            y="top-1, %",
            x_log=True,
        )
        text = "A line above that of plain attention: its kind of locality helps."
        return [Figure(name="dial", title="The dial of locality", panels=(drawn,), reading=text)]

    table = Sheet(
        name="top1",
        title="Top-1 of every kind of locality",
        corner="locality",
        columns=[_share(f) for f in fractions],
        rows=rows,
    )
    return Plan(tables=[table], claims=claims, figures=figures)


def _share(fraction: float) -> str:
    return f"{100 * fraction:g} %"


STUDIES = (
    Study(
        name="locality-dial",
        title="How much locality, put in how?",
        claim="every way to put locality into a ViT helps on few images, less on more",
        covers=("Locality dial",),
        plan=dial,
        data=IMAGENET,
    ),
)
