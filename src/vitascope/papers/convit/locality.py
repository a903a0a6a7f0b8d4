"""ConViT by locality strength and number of GPSA layers, and against ungated attention (PSA).

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 8 and 12 left (locality strength and
number of GPSA layers, on the first 100 classes) and Fig. 9 (content and position summed before the
softmax, eq. 4). "Early" is the first measurement past a tenth of the training.

PSA is there twice: with queries and keys drawn as in GPSA, and as equation 5 sets them, at 0. From
there they never move (each one's gradient is a product with the other), so that network stays a
convolution with a learned window, as the paper says of its own.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat
from vitascope.papers.convit.measurements import top1_at
from vitascope.papers.figures import CURVES, curves_figure, lines, over
from vitascope.papers.plan import (
    TOP1,
    Grid,
    Measurement,
    Plan,
    Results,
    TableSpec,
    Training,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.record import Record

_EPOCHS = (20, 75, 130, 185, 240, 295)  # of 300, in Fig. 8 right
_STRENGTH = """
[ConViT Fig. 8]
GPSA layers raise the final accuracy
    layers: {many} > 0 at end
[ConViT Fig. 8 right]
the lead of GPSA layers is larger early in training
    layers: {many} - 0 at {early} > {many} - 0 at end
[ConViT Fig. 8 left]
stronger locality raises the final accuracy
    strength: {strong} > {weak} at {many}
stronger locality helps on average over the numbers of GPSA layers
    strength: {strong} at * > {weak} at *
"""
_MORE_LAYERS = """
[ConViT Fig. 8 left]
more GPSA layers raise the final accuracy at every strength, on average
    strength: * at {many} > * at {some}
"""


@study(
    "How much locality is best?",
    claim="more GPSA layers and stronger locality raise accuracy, most early in training",
    covers=("ConViT Fig. 8", "ConViT Fig. 12 left"),
    data={**IMAGENET, "paper": "ImageNet-100: first 100 classes of ImageNet-1k"},
)
def locality_strength(scale: Scale) -> Plan:
    """Fig. 8: locality strength x number of GPSA layers, and six epochs; Fig. 12 left."""
    layers = scale.pick(paper=(0, 3, 6, 9), laptop=(0, 1, 2, 3), smoke=(0, 3))
    alphas = scale.pick(paper=(0.01, 0.1, 1.0), smoke=(0.01, 1.0))
    runs = {n: _with_layers(scale, n, alphas[-1], layers[-1]) for n in layers}
    rows: dict[str, list[Training | None]] = {
        f"{a:g}": [None, *(_with_layers(scale, n, a, layers[-1]) for n in layers[1:])]
        for a in alphas
    }
    rows[f"{alphas[-1]:g}"][0] = runs[0]  # without GPSA layers there is nothing to be local
    grid = Grid([str(n) for n in layers], rows, corner="locality strength").table(
        "strength", "Locality strength and number of GPSA layers (Fig. 8 left)"
    )
    shares = [epoch / 300 for epoch in _EPOCHS]
    over_training = TableSpec.of_runs(
        "layers",
        "Number of GPSA layers over training (Fig. 8 right, 12 left)",
        {str(n): training for n, training in runs.items()},
        {**{f"{100 * share:.0f} %": top1_at(share) for share in shares}, "end": TOP1},
        corner="GPSA layers",
    )
    names = {
        "many": layers[-1],
        "early": over_training.columns[0],
        "weak": f"{alphas[0]:g}",
        "strong": f"{alphas[-1]:g}",
    }
    claims = read_claims(_STRENGTH, **names)
    if len(layers) > 2:
        claims += read_claims(_MORE_LAYERS, **names, some=layers[1])
    curves = {f"{n} GPSA layers": training for n, training in runs.items()}
    return Plan(
        tables=[over_training, grid],
        claims=claims,
        figures=[
            drawing(_strength_figure, grid, over_training, layers),
            drawing(curves_figure, curves, "Learning with GPSA layers (Fig. 12 left)"),
        ],
        for_figures=[(training, CURVES) for training in runs.values()],
    )


def _with_layers(scale: Scale, count: int, alpha: float, most: int) -> Training:
    """A ConViT of so many GPSA layers and this locality strength; on a laptop on few images."""
    usual = count == most and alpha == 1.0 and not scale.is_paper
    args: dict[str, Any] = {} if usual else {"num_gpsa_blocks": count}
    if alpha != 1.0:
        args["locality_strength"] = alpha
    return scale.training(
        "ConViT-S+",
        fraction=scale.pick(paper=1.0, laptop=scale.small),
        changes={"subset.first_classes": 100} if scale.is_paper else {},
        recipe="deit_plus",
        **args,
    )


def _strength_figure(
    results: Results, grid: TableSpec, over_training: TableSpec, layers: Sequence[int]
) -> Figure:
    """Fig. 8: a heat map of the strengths, and a line per share of the training."""
    without = grid.row(grid.rows[-1])[0]  # has no strength: the same in every row
    values = [[results.values(cell or without) for cell in grid.row(label)] for label in grid.rows]
    left = Heat(
        title="top-1 at the end",
        rows=tuple(grid.rows),
        columns=tuple(grid.columns),
        values=np.array([[fmean(each) if each else np.nan for each in row] for row in values]),
        label="top-1, %",
    )
    series = [
        over(
            list(layers),
            [results.values(over_training.cells[label, column]) for label in over_training.rows],
            column,
            model=False,
        )
        for column in over_training.columns
    ]
    text = (
        "Rows are locality strengths, columns numbers of GPSA layers (without one there is no "
        "strength); lines are shares of the training."
    )
    return Figure(
        name="locality",
        title="How much locality (Fig. 8)",
        reading=text,
        panels=(left, lines("top-1 over training", series, x="GPSA layers", y="top-1, %")),
    )


_GATING = """
[ConViT Fig. 9]
PSA is ahead of the plain ViT early on
    top1: PSA > plain ViT at early
in the end the plain ViT passes PSA
    top1: plain ViT > PSA at end
in the end the plain ViT passes PSA that starts without content (eq. 5)
    top1: plain ViT > PSA, eq. 5 at end
[ConViT App. A]
gates are better than the sum in the end
    top1: GPSA > PSA at end
"""


def _early_top1(record: Record) -> float | None:
    """Top-1 at the first measurement past a tenth of the training."""
    epochs, top1 = record.values["epoch"], record.values["top1"]
    return next((t for e, t in zip(epochs, top1, strict=True) if e >= 0.1 * epochs[-1]), None)


@study(
    "Is the gate needed?",
    claim="summing content and position before the softmax helps early and hurts in the end",
    covers=("ConViT Fig. 9",),
    data=IMAGENET,
)
def gating(scale: Scale) -> Plan:
    """Fig. 9: ConViT-B with PSA in place of GPSA against DeiT-B.

    At a desk ten epochs of a tenth of the images, so that there is an early measurement: an epoch
    that is lengthened to see as many images is measured once, at its end.
    """
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    roles = ("DeiT-B", "ConViT-B") if scale.is_paper else ("DeiT-S", "ConViT-S")
    changes = {"scale_epochs": False} if scale.name == "desk" else {}
    vit, convit = (scale.affordable(role, fraction=fraction, changes=changes) for role in roles)
    psa = convit.but(model_args={"attention": "psa"})
    fixed = psa.but(model_args={"content_std": 0.0})
    runs = {"plain ViT": vit, "PSA": psa, "PSA, eq. 5": fixed, "GPSA": convit}
    columns = {"early": Measurement(_early_top1, reading=CURVES), "end": TOP1}
    title = "Summed or gated position (Fig. 9)"
    return Plan(
        tables=[TableSpec.of_runs("top1", title, runs, columns, corner="attention")],
        claims=read_claims(_GATING),
        figures=[drawing(curves_figure, runs, "Learning curves (Fig. 9)")],
        for_figures=[(training, CURVES) for training in runs.values()],
    )
