"""ConViT against DeiT at every model size: accuracy, cost, gates and nonlocality.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Table 1 and Fig. 2 right, Fig. 11 middle
(learning curves), Fig. 13 and 14 (inside, by size). Top-1 on ImageNet with the deit recipe; the
numbers beside ours are the paper's. Its tables have the accuracy at the end, its Fig. 11 the best
one during training: both are here.

Throughput is read off finished runs, which may run side by side: for a clean number take
``vitascope models --speed``.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from vitascope.figure import Figure, Series
from vitascope.papers.convit.keys import head_mean, positional_layers
from vitascope.papers.convit.published import CNNS, TRANSFORMERS
from vitascope.papers.figures import (
    CURVES,
    curves_figure,
    each_head_figure,
    heads_figure,
    lines,
    looks,
    over,
)
from vitascope.papers.plan import (
    Ask,
    Findings,
    Plan,
    Reading,
    Row,
    Sheet,
    Study,
    Training,
    claimed,
)
from vitascope.papers.scale import IMAGENET, Scale

PAIR = {"DeiT": "ViT", "ConViT": "ConViT"}  # the second in figures, whose labels are short
SPEED = Reading(name="throughput", options={"batch_size": 128})

# Table 1: top-1, top-5, images a second. Those of DeiT-Ti, S and B are Touvron et al.'s.
_TABLE_1: dict[str, tuple[float, float | None, float]] = {
    "DeiT-Ti": (72.2, None, 1442),
    "ConViT-Ti": (73.1, 91.7, 734),
    "DeiT-S": (79.8, None, 587),
    "ConViT-S": (81.3, 95.7, 305),
    "DeiT-B": (81.8, None, 187),
    "ConViT-B": (82.4, 95.9, 141),
    "DeiT-Ti+": (75.9, 93.2, 1036),
    "ConViT-Ti+": (76.7, 93.6, 625),
    "DeiT-S+": (79.0, 94.4, 480),
    "ConViT-S+": (82.2, 95.9, 382),
    "DeiT-B+": (77.5, 93.5, 114),
    "ConViT-B+": (82.5, 95.9, 96),
}
_SIZES, PLUS = ("Ti", "S", "B"), ("Ti+", "S+", "B+")
_POSITIONAL = (40.0, 50.0, 60.0)  # 4, 5 and 6 of 10 layers


def sized(scale: Scale, role: str, fraction: float) -> Training:
    """A model of one size; the "+" models have a recipe of their own."""
    recipe = "deit_plus" if "+" in role else None
    return scale.training(role, fraction=fraction, recipe=recipe)


def sizes(scale: Scale) -> Plan:
    """Table 1: three widths, on few images on a laptop.

    There both networks have the same heads, as the paper's "+" models do; those alone widen their
    lead with their size (+0.8, +3.2, +5.0 points; without the plus +0.9, +1.5, +0.6).
    """
    names = scale.pick(paper=(*_SIZES, *PLUS), laptop=PLUS, smoke=(PLUS[0], PLUS[-1]))
    inner = scale.pick(paper=_SIZES, laptop=PLUS, smoke=(PLUS[0], PLUS[-1]))  # Fig. 13 and 14
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    labels = {kind: scale.training(f"{kind}-S").model for kind in PAIR}
    vit, convit = labels.values()

    def run(kind: str, size: str) -> Training:
        return sized(scale, f"{kind}-{size}", fraction)

    def table(name: str, title: str, which: int | None, **how: Any) -> Sheet:
        ask = {"key": name, **how.pop("ask", {})}
        known = {}
        if which is not None:
            known = {v: [_TABLE_1[f"{k}-{s}"][which] for s in names] for k, v in labels.items()}
        how |= {"paper": known, "called": {label: kind for kind, label in labels.items()}}
        return Sheet.of_grid(name, title, names, sized_runs(names), ask=ask, corner="size", **how)

    def sized_runs(columns: Sequence[str]) -> dict[str, list[Training]]:
        return {label: [run(kind, size) for size in columns] for kind, label in labels.items()}

    def far(name: str, title: str, layers: slice) -> Sheet:
        ask = {
            "reading": looks(scale),
            "key": head_mean("nonlocality", layers=layers),
            "factor": 1.0,
        }
        how: dict[str, Any] = {"unit": "nonlocality, patches", "digits": 2, "accuracy": False}
        return Sheet.of_grid(name, title, inner, sized_runs(inner), ask=ask, corner="size", **how)

    left = dict(zip(PLUS, _POSITIONAL, strict=True)) | dict(zip(_SIZES, _POSITIONAL, strict=True))
    positional = Sheet.of_grid(
        "positional",
        "GPSA layers that still look at position at the end (Fig. 14)",
        inner,
        {convit: sized_runs(inner)[convit]},
        ask={"reading": looks(scale), "key": positional_layers},
        paper={convit: [left[size] for size in inner]},
        corner="size",
        unit="layers, %",
        accuracy=False,
        digits=0,
    )
    first_gate, last_gate = "first layer", "last GPSA layer"
    gates = Sheet(
        name="gates",
        title="Gates of the first and the last GPSA layer at the end (Fig. 14)",
        corner="layer",
        columns=inner,
        unit="gate",
        accuracy=False,
        digits=3,
        rows=[
            Row(
                label=label,
                cells=[
                    Ask(
                        training=run("ConViT", size),
                        reading=looks(scale),
                        key=head_mean("gates", layers=layers),
                        factor=1.0,
                    )
                    for size in inner
                ],
            )
            for label, layers in ((first_gate, slice(0, 1)), (last_gate, slice(-1, None)))
        ],
    )
    top1 = table("top1", "Top-1 by size (Table 1)", 0)
    speed = table(
        "speed",
        "Throughput by size, batches of 128 (Table 1)",
        2,
        ask={"key": "images_per_second", "reading": SPEED, "factor": 1.0},
        unit="images a second",
        digits=0,
        accuracy=False,
        log=True,
    )
    mean = far("nonlocality", "Mean nonlocality at the end, by size (Fig. 13)", slice(None))
    first = far("first-layer", "Nonlocality of the first layer at the end (Fig. 13)", slice(0, 1))
    tables = [
        top1,
        table("top5", "Top-5 by size (Table 1)", 1, unit="top-5, %"),
        table("best_top1", "Best top-1 during training, by size (Fig. 11 middle)", None),
        speed,
        mean,
        first,
        positional,
        gates,
    ]
    small, large, little, big = PLUS[0], PLUS[-1], inner[0], inner[-1]
    claims = claimed(
        "ConViT Table 1",
        {
            f"at size {size}, ConViT is ahead of the plain ViT": top1.above(convit, vit, size)
            for size in names
        },
    )
    claims += claimed(
        "ConViT Fig. 11",
        {
            "ConViT's lead grows with the size of the model": top1.further(
                (convit, large), (vit, large), (convit, small), (vit, small)
            )
        },
    )
    claims += claimed(
        "ConViT Table 1",
        {
            f"at size {size}, positional attention slows ConViT down": speed.above(
                vit, convit, size
            )
            for size in names
        },
    )
    steps = list(pairwise(inner)) if len(inner) > 2 else []  # the order, size by size
    for label in (vit, convit):
        later = f"the first layer of {label} ends less local when it is big"
        claims += claimed(
            "ConViT Fig. 13",
            {
                f"the bigger {label}, the less local it ends": mean.above(
                    label, label, big, little
                ),
                **{
                    f"{label} ends less local at size {more} than at {less}": mean.above(
                        label, label, more, less
                    )
                    for less, more in steps
                },
                later: first.above(label, label, big, little),
            },
        )
    text = "the bigger the model, the more layers keep looking at position"
    claims += claimed(
        "ConViT Fig. 14",
        {text: positional.above(convit, convit, big, little)}
        | {
            f"more layers keep looking at position at size {more} than at {less}": positional.above(
                convit, convit, more, less
            )
            for less, more in steps
        }
        | {
            f"at size {size}, the first layer keeps more position than the last": gates.above(
                first_gate, last_gate, size
            )
            for size in inner
        },
    )
    every = {(kind, size): run(kind, size) for kind in PAIR for size in (*names, *inner)}
    also = [
        (training, reading) for training in every.values() for reading in (CURVES, looks(scale))
    ]

    def figures(findings: Findings) -> list[Figure]:
        curves, insides = (
            {f"{short} {size}": run(kind, size) for kind, short in PAIR.items() for size in two}
            for two in ((small, large), (little, big))
        )
        gated = {k: t for k, t in insides.items() if k.startswith("ConViT")}
        return [
            parameters_figure(findings, sized_runs(names), published=scale.is_paper),
            curves_figure(findings, curves, "Learning curves by size (Fig. 11 middle)"),
            heads_figure(
                findings, insides, looks(scale), "nonlocality", "Nonlocality by size (Fig. 13)"
            ),
            each_head_figure(
                findings, gated, looks(scale), "gates", "Gates by size, head by head (Fig. 14)"
            ),
        ]

    return Plan(tables=tables, claims=claims, figures=figures, also=also)


def parameters_figure(
    findings: Findings, runs: Mapping[str, Sequence[Training]], *, published: bool
) -> Figure:
    """Fig. 2 right: top-1 over parameters; at the paper's scale beside the published points."""
    series = []
    for label, trainings in runs.items():
        points = []
        for training in trainings:
            millions = fmean(r.values["parameters"] for r in findings.of(training, SPEED)) / 1e6
            points.append((millions, findings.values(Ask(training=training))))
        points.sort(key=lambda point: point[0])
        series.append(over([x for x, _ in points], [y for _, y in points], label))
    if published:
        for family, known in {**CNNS, **TRANSFORMERS}.items():
            x, y = zip(*known, strict=True)
            series.append(Series(label=family, x=list(x), y=list(y)))
    drawn = lines(
        "Top-1 over parameters", series, x="parameters, millions", y="top-1, %", x_log=True
    )
    return Figure(
        name="sizes",
        title="Parameter efficiency (Fig. 2 right)",
        panels=(drawn,),
        reading="The higher line makes more of as many parameters.",
    )


STUDIES = (
    Study(
        name="sizes",
        title="Does locality help at every size?",
        claim="ConViT beats DeiT at every size; with equal heads by more the larger they are",
        covers=(
            "ConViT Table 1",
            "ConViT Fig. 2 right",
            "ConViT Fig. 11",
            "ConViT Fig. 13",
            "ConViT Fig. 14",
        ),
        plan=sizes,
        data=IMAGENET,
    ),
)
