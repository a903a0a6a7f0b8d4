"""Accuracy on few images against the kind of built-in locality, from none to convolutions.

A plain ViT; the same with one change each (:mod:`vitascope.models.vit.dial`): its weights or
positions started otherwise, its attention or its patches changed; gated positions (ConViT);
neighbourhoods; and a CNN. Small models; at a desk on 1,000 images of CIFAR-10 and an 8 x 8 grid: a
16 x 16 grid takes five times as long, and was not told from it by the lead of ConViT (fine-grid).
"""

from typing import Any

from vitascope.figure import Figure
from vitascope.papers.figures import dots_figure, shares_panel
from vitascope.papers.plan import Findings, Plan, Sheet, Study, claimed
from vitascope.papers.scale import IMAGENET, Role, Scale, percent

_CHANGES = ("mimetic", "sincos", "impulse", "lsa", "spt", "stem", "rope")
_OTHERS = {  # at the paper's scale, and small
    "gated": ("convit_tiny", "convit_micro"),
    "neighbourhood": ("convolutional_vit_tiny", "convolutional_vit_micro"),
    "convolutions": ("resnet_preact_18", "resnet_micro"),
}


def dial(scale: Scale) -> Plan:
    """Top-1 of every kind of locality against the number of images."""
    fractions = scale.pick(paper=(0.05, 0.1, 1.0), laptop=(0.1, 1.0), desk=(0.02,))
    changes = scale.pick(paper=_CHANGES, laptop=_CHANGES, smoke=("impulse", "lsa"))
    others = scale.pick(paper=_OTHERS, laptop=_OTHERS, smoke={"gated": _OTHERS["gated"]})
    patch: dict[str, Any] = scale.pick(paper={}, laptop={"patch_size": 2}, desk={"patch_size": 4})
    names = {"plain": ("deit_tiny", "vit_micro")}
    names |= {f"+{change}": (f"deit_tiny+{change}", f"vit_micro+{change}") for change in changes}
    names |= others
    runs = {}
    for label, (large, small) in names.items():
        cut = {} if label == "convolutions" else patch
        role: Role = ((large, {}), (small, cut), (small, cut))
        runs[label] = [scale.few(role, fraction=f) for f in fractions]
    title, columns = "Top-1 of every kind of locality", [percent(f) for f in fractions]
    table = Sheet.of_grid("top1", title, columns, runs, corner="locality")
    _, *local = names
    least, most = table.columns[0], table.columns[-1]
    ahead = {
        f"{label} is ahead of a plain ViT on {least} of the images": table.above(
            label, "plain", least
        )
        for label in local
    }
    shrinks = {
        f"the lead of {label} shrinks with more images": table.further(
            (label, least), ("plain", least), (label, most), ("plain", most)
        )
        for label in (local if len(fractions) > 1 else ())
    }
    beside = {}
    if "+mimetic" in names:  # both start with the same table of positions
        text = f"+mimetic is ahead of +sincos, its table alone, on {least} of the images"
        beside[text] = table.above("+mimetic", "+sincos", least)
    claims = claimed("Locality dial", {**ahead, **beside, **shrinks})

    def figures(findings: Findings) -> list[Figure]:
        if len(fractions) == 1:
            text = "Each dot is one seed; above those of plain, its kind of locality helps."
            return [dots_figure(findings, table, columns, "The dial of locality", text)]
        drawn = shares_panel(
            findings, "Top-1 by share of the images", table.rows, fractions, model=False
        )
        text = "A line above that of plain attention: its kind of locality helps."
        return [Figure(name="dial", title="The dial of locality", panels=(drawn,), reading=text)]

    return Plan(tables=[table], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="locality-dial",
        title="How much locality, put in how?",
        claim="every way to put locality into a ViT helps on few images, less on more",
        covers=("Locality dial",),
        plan=dial,
        data=IMAGENET,
        seeds={"desk": 3},
    ),
)
