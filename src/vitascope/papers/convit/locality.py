"""ConViT by locality strength and number of GPSA layers, and against ungated attention (PSA).

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 8 and 12 left (locality strength and
number of GPSA layers, on the first 100 classes) and Fig. 9 (content and position summed before the
softmax, eq. 4). "Early" is the first measurement past a tenth of the training.

PSA is there twice: with queries and keys drawn as in GPSA, and as equation 5 sets them, at 0. From
there they never move (each one's gradient is a product with the other), so that network stays a
convolution with a learned window, as the paper says of its own.
"""

from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat
from vitascope.papers.convit.keys import value_at
from vitascope.papers.figures import CURVES, curves_figure, lines, over
from vitascope.papers.plan import Ask, Contrast, Findings, Plan, Row, Sheet, Study, claimed
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.record import Record

_EPOCHS = (20, 75, 130, 185, 240, 295)  # of 300, in Fig. 8 right


def strength(scale: Scale) -> Plan:
    """Fig. 8: locality strength x number of GPSA layers, and six epochs; Fig. 12 left."""
    layers = scale.pick(paper=(0, 3, 6, 9), laptop=(0, 1, 2, 3), smoke=(0, 3))
    alphas = scale.pick(paper=(0.01, 0.1, 1.0), laptop=(0.01, 0.1, 1.0), smoke=(0.01, 1.0))
    hundred = {"subset.first_classes": 100} if scale.is_paper else {}
    fraction = scale.pick(paper=1.0, laptop=scale.small)

    def made(count: int, alpha: float) -> Any:
        usual = count == layers[-1] and alpha == 1.0 and not scale.is_paper
        args: dict[str, Any] = {} if usual else {"num_gpsa_blocks": count}
        if alpha != 1.0 and count:  # without GPSA layers there is nothing to be local
            args["locality_strength"] = alpha
        return scale.training(
            "ConViT-S+", fraction=fraction, changes=hundred, recipe="deit_plus", **args
        )

    plain, some = made(0, 1.0), layers[1:]
    grid = Sheet(
        name="strength",
        title="Locality strength and number of GPSA layers (Fig. 8 left)",
        corner="locality strength",
        columns=[str(n) for n in layers],
        rows=[
            Row(
                label=f"{a:g}",
                cells=[
                    Ask(training=plain) if a == alphas[-1] else None,
                    *(Ask(training=made(n, a)) for n in some),
                ],
            )
            for a in alphas
        ],
    )
    runs = {n: made(n, 1.0) for n in layers}
    shares = [epoch / 300 for epoch in _EPOCHS]
    columns = [f"{100 * share:.0f} %" for share in shares] + ["end"]
    number = Sheet(
        name="layers",
        title="Number of GPSA layers over training (Fig. 8 right, 12 left)",
        corner="GPSA layers",
        columns=columns,
        rows=[
            Row(
                label=str(n),
                cells=[
                    *(
                        Ask(training=t, reading=CURVES, key=value_at("top1", share))
                        for share in shares
                    ),
                    Ask(training=t),
                ],
            )
            for n, t in runs.items()
        ],
    )
    none, many, early = str(layers[0]), str(layers[-1]), columns[0]
    weak, strong = f"{alphas[0]:g}", f"{alphas[-1]:g}"
    share = 1 / len(some)
    claims = claimed(
        "ConViT Fig. 8",
        {"GPSA layers raise the final accuracy": number.above(many, none, "end")},
    )
    claims += claimed(
        "ConViT Fig. 8 right",
        {
            "the lead of GPSA layers is larger early in training": number.further(
                (many, early), (none, early), (many, "end"), (none, "end")
            )
        },
    )
    stronger = {
        (alpha, str(n)): sign * share for n in some for alpha, sign in ((strong, 1), (weak, -1))
    }
    found: dict[str, Contrast] = {
        "stronger locality raises the final accuracy": grid.above(strong, weak, many),
        "stronger locality helps on average over the numbers of GPSA layers": (
            grid.name,
            stronger,
        ),
    }
    if len(some) > 1:
        text = "more GPSA layers raise the final accuracy at every strength, on average"
        found[text] = (
            grid.name,
            {
                (f"{a:g}", str(n)): sign / len(alphas)
                for a in alphas
                for n, sign in ((some[-1], 1), (some[0], -1))
            },
        )
    claims += claimed("ConViT Fig. 8 left", found)

    def figures(findings: Findings) -> list[Figure]:
        means = np.array(
            [
                [_mean(findings, ask or grid.rows[-1].cells[0]) for ask in row.cells]
                for row in grid.rows
            ]
        )
        left = Heat(
            title="top-1 at the end",
            rows=tuple(row.label for row in grid.rows),
            columns=tuple(grid.columns),
            values=means,
            label="top-1, %",
        )
        series = [
            over(
                list(layers),
                [_values(findings, row.cells[i]) for row in number.rows],
                column,
                model=False,
            )
            for i, column in enumerate(columns)
        ]
        right = lines("top-1 over training", series, x="GPSA layers", y="top-1, %")
        text = (
            "Rows are locality strengths, columns numbers of GPSA layers (without one there is no "
            "strength); lines are shares of the training."
        )
        return [
            Figure(
                name="locality",
                title="How much locality (Fig. 8)",
                reading=text,
                panels=(left, right),
            ),
            curves_figure(
                findings,
                {f"{n} GPSA layers": t for n, t in runs.items()},
                "Learning with GPSA layers (Fig. 12 left)",
            ),
        ]

    also = [(t, CURVES) for t in runs.values()]
    return Plan(tables=[number, grid], claims=claims, figures=figures, also=also)


def _values(findings: Findings, ask: Ask | None) -> list[float]:
    return findings.values(ask) if ask is not None else []


def _mean(findings: Findings, ask: Ask | None) -> float:
    values = _values(findings, ask)
    return fmean(values) if values else float("nan")


def _early_top1(record: Record) -> float | None:
    """Top-1 at the first measurement past a tenth of the training."""
    epochs, top1 = record.values["epoch"], record.values["top1"]
    return next((t for e, t in zip(epochs, top1, strict=True) if e >= 0.1 * epochs[-1]), None)


def plain_psa(scale: Scale) -> Plan:
    """Fig. 9: ConViT-B with PSA in place of GPSA against DeiT-B."""
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    roles = ("DeiT-B", "ConViT-B") if scale.is_paper else ("DeiT-S", "ConViT-S")
    vit, convit = (scale.training(role, fraction=fraction) for role in roles)
    psa = convit.but(model_args={"attention": "psa"})
    fixed = psa.but(model_args={"content_std": 0.0})
    runs = {"plain ViT": vit, "PSA": psa, "PSA, eq. 5": fixed, "GPSA": convit}
    table = Sheet.of_runs(
        "top1",
        "Summed or gated position (Fig. 9)",
        runs,
        {"early": {"reading": CURVES, "key": _early_top1}, "end": {}},
        corner="attention",
    )
    fixed_too = "in the end the plain ViT passes PSA that starts without content (eq. 5)"
    claims = claimed(
        "ConViT Fig. 9",
        {
            "PSA is ahead of the plain ViT early on": table.above("PSA", "plain ViT", "early"),
            "in the end the plain ViT passes PSA": table.above("plain ViT", "PSA", "end"),
            fixed_too: table.above("plain ViT", "PSA, eq. 5", "end"),
        },
    )
    claims += claimed(
        "ConViT App. A",
        {"gates are better than the sum in the end": table.above("GPSA", "PSA", "end")},
    )

    def figures(findings: Findings) -> list[Figure]:
        return [curves_figure(findings, runs, "Learning curves (Fig. 9)")]

    also = [(t, CURVES) for t in runs.values()]
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


STUDIES = (
    Study(
        name="locality-strength",
        title="How much locality is best?",
        claim="more GPSA layers and stronger locality raise accuracy, most early in training",
        covers=("ConViT Fig. 8", "ConViT Fig. 12 left"),
        plan=strength,
        data={**IMAGENET, "paper": "ImageNet-100: first 100 classes of ImageNet-1k"},
    ),
    Study(
        name="gating",
        title="Is the gate needed?",
        claim="summing content and position before the softmax helps early and hurts in the end",
        covers=("ConViT Fig. 9",),
        plan=plain_psa,
        data=IMAGENET,
    ),
)
