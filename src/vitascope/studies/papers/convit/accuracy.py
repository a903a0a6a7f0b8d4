"""What locality is worth, on few images and in models of every size.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Table 1 and Fig. 2 right (sizes), Table 2
and Fig. 2 left (few images), Fig. 11 (learning curves, left on CIFAR-100), Fig. 13 and 14 (inside,
by size). Top-1 on ImageNet with the deit recipe; the numbers beside ours are the paper's. Its
tables have the accuracy at the end, its Fig. 11 the best one during training: both are here.

A GPSA layer counts as positional while the mean of its gates is above 0.1; the paper says that 4, 5
and 6 of the 10 layers still pay attention to position (Ti, S, B), and no threshold. Throughput is
read off finished runs, which may run side by side: for a clean number take ``vitascope bench
throughput``.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.record import Record
from vitascope.studies.papers.convit.published import CNNS, TRANSFORMERS
from vitascope.studies.papers.figures import (
    CURVES,
    LOOKS,
    curves_figure,
    each_head_figure,
    heads_figure,
    lines,
    over,
)
from vitascope.studies.papers.plan import (
    Ask,
    Claim,
    Findings,
    Plan,
    Reading,
    Row,
    Sheet,
    Study,
    Training,
    ahead,
)
from vitascope.studies.papers.scale import IMAGENET, Scale

__all__ = ["STUDIES", "last_mean", "parameters_figure", "positional_layers"]


_KINDS = ("ViT", "ConViT")  # in figures, whose labels are short
_PAIR = ("DeiT", "ConViT")
SPEED = Reading(name="throughput", options={"batch_size": 128})

_TABLE_2 = {  # share of the images -> top-1 of DeiT-S and ConViT-S, then top-5
    0.05: ((34.8, 47.8), (57.8, 70.7)),
    0.1: ((48.0, 59.6), (71.5, 80.3)),
    0.3: ((66.1, 73.7), (86.0, 90.7)),
    0.5: ((74.6, 78.2), (91.8, 93.8)),
    1.0: ((79.9, 81.4), (95.0, 95.8)),
}


def _share(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def sample_efficiency(scale: Scale) -> Plan:
    """Table 2: DeiT-S and ConViT-S on a share of each class, epochs times 1/share."""
    fractions = scale.pick(paper=tuple(_TABLE_2), laptop=tuple(_TABLE_2), smoke=(0.1, 1.0))
    columns = [_share(f) for f in fractions]

    def table(name: str, title: str, which: int | None, **how: Any) -> Sheet:
        rows = [
            Row(
                label=_name(scale, role),
                paper_label=role,
                cells=[
                    Ask(
                        training=scale.training(role, fraction=f),
                        key=name,
                        paper=None if which is None else _TABLE_2[f][which][i],
                    )
                    for f in fractions
                ],
            )
            for i, role in enumerate(("DeiT-S", "ConViT-S"))
        ]
        title = f"{title} against the share of the images (Table 2)"
        return Sheet(name=name, title=title, corner="images", columns=columns, rows=rows, **how)

    tables = [
        table("top1", "Top-1", 0),
        table("top5", "Top-5", 1, unit="top-5, %"),
        table("best_top1", "Best top-1 during training,", None),
    ]
    rows = tables[0].rows
    vit, convit = (row.label for row in rows)
    least, most = columns[0], columns[-1]
    claims = [
        ahead(
            "ConViT Table 2",
            f"ConViT is ahead of the plain ViT on {share} of the images",
            "top1",
            (convit, share),
            (vit, share),
        )
        for share in columns
    ]
    claims.append(
        Claim(
            source="ConViT Table 2",
            table="top1",
            text="ConViT's lead grows as the images become fewer",
            cells={(convit, least): 1, (vit, least): -1, (convit, most): -1, (vit, most): 1},
        )
    )

    def figures(findings: Findings) -> list[Figure]:
        series = [
            over(
                [100 * f for f in fractions],
                [findings.values(ask) for ask in row.cells if ask is not None],
                row.label,
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
        runs = {
            f"{name} {share}": cell.training
            for name, row in zip(_KINDS, rows, strict=True)
            for share, cell in zip(columns, row.cells, strict=True)
            if cell is not None and share in (least, most)
        }
        return [
            Figure(
                name="efficiency",
                title="Sample efficiency (Fig. 2 left)",
                panels=(drawn,),
                reading="The higher line makes more of the same images.",
            ),
            curves_figure(findings, runs, "Learning curves (Fig. 11 right)"),
        ]

    also = [(cell.training, CURVES) for row in rows for cell in row.cells if cell is not None]
    return Plan(tables=tables, claims=claims, figures=figures, also=also)


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
_SIZES, _PLUS = ("Ti", "S", "B"), ("Ti+", "S+", "B+")
_POSITIONAL = (40.0, 50.0, 60.0)  # 4, 5 and 6 of 10 layers


def positional_layers(record: Record) -> float:
    """The share of GPSA layers whose gates are above 0.1 on average at the end."""
    return float((np.nanmean(record.arrays["gates"][-1], axis=-1) > 0.1).mean())


def last_mean(what: str, layers: slice = slice(None)) -> Any:
    """Gates or nonlocality at the end: the mean over some layers and all heads."""

    def key(record: Record) -> float | None:
        found = record.arrays.get(what)
        return None if found is None else float(np.nanmean(found[-1, layers]))

    return key


def sizes(scale: Scale) -> Plan:
    """Table 1: three widths, on few images on a laptop.

    There both networks have the same heads, as the paper's "+" models do; those alone widen their
    lead with their size (+0.8, +3.2, +5.0 points; without the plus +0.9, +1.5, +0.6).
    """
    names = scale.pick(paper=(*_SIZES, *_PLUS), laptop=_PLUS, smoke=(_PLUS[0], _PLUS[-1]))
    inner = scale.pick(paper=_SIZES, laptop=_PLUS, smoke=(_PLUS[0], _PLUS[-1]))  # Fig. 13 and 14
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    labels = {kind: _name(scale, f"{kind}-S") for kind in _PAIR}
    vit, convit = labels.values()

    def run(kind: str, size: str) -> Training:
        return _sized(scale, f"{kind}-{size}", fraction)

    def table(name: str, title: str, which: int | None, **how: Any) -> Sheet:
        asked = {key: how.pop(key) for key in ("key", "reading", "factor") if key in how}
        rows = [
            Row(
                label=labels[kind],
                paper_label=kind,
                cells=[
                    Ask(
                        training=run(kind, size),
                        **{"key": name, **asked},
                        paper=None if which is None else _TABLE_1[f"{kind}-{size}"][which],
                    )
                    for size in names
                ],
            )
            for kind in _PAIR
        ]
        return Sheet(name=name, title=title, corner="size", columns=names, rows=rows, **how)

    def far(name: str, title: str, layers: slice) -> Sheet:
        rows = [
            Row(
                label=labels[kind],
                cells=[
                    Ask(
                        training=run(kind, size),
                        reading=LOOKS,
                        key=last_mean("nonlocality", layers),
                        factor=1.0,
                    )
                    for size in inner
                ],
            )
            for kind in _PAIR
        ]
        return Sheet(
            name=name,
            title=title,
            corner="size",
            columns=inner,
            rows=rows,
            digits=2,
            unit="nonlocality, patches",
            accuracy=False,
        )

    left = dict(zip(_PLUS, _POSITIONAL, strict=True)) | dict(zip(_SIZES, _POSITIONAL, strict=True))
    positional = Sheet(
        name="positional",
        title="GPSA layers that still look at position at the end (Fig. 14)",
        corner="size",
        columns=inner,
        unit="layers, %",
        accuracy=False,
        digits=0,
        rows=[
            Row(
                label=convit,
                cells=[
                    Ask(
                        training=run("ConViT", size),
                        reading=LOOKS,
                        key=positional_layers,
                        paper=left[size],
                    )
                    for size in inner
                ],
            )
        ],
    )
    tables = [
        table("top1", "Top-1 by size (Table 1)", 0),
        table("top5", "Top-5 by size (Table 1)", 1, unit="top-5, %"),
        table("best_top1", "Best top-1 during training, by size (Fig. 11 middle)", None),
        table(
            "speed",
            "Throughput by size, batches of 128 (Table 1)",
            2,
            key="images_per_second",
            reading=SPEED,
            factor=1.0,
            unit="images a second",
            digits=0,
            accuracy=False,
            log=True,
        ),
        far("nonlocality", "Mean nonlocality at the end, by size (Fig. 13)", slice(None)),
        far("first-layer", "Nonlocality of the first layer at the end (Fig. 13)", slice(0, 1)),
        positional,
    ]
    claims = [
        ahead(
            "ConViT Table 1",
            f"at size {size}, ConViT is ahead of the plain ViT",
            "top1",
            (convit, size),
            (vit, size),
        )
        for size in names
    ]
    small, large = _PLUS[0], _PLUS[-1]
    claims.append(
        Claim(
            source="ConViT Fig. 11",
            table="top1",
            text="ConViT's lead grows with the size of the model",
            cells={(convit, large): 1, (vit, large): -1, (convit, small): -1, (vit, small): 1},
        )
    )
    claims += [
        ahead(
            "ConViT Table 1",
            f"at size {size}, positional attention slows ConViT down",
            "speed",
            (vit, size),
            (convit, size),
        )
        for size in names
    ]
    little, big = inner[0], inner[-1]
    for label in (vit, convit):
        claims += [
            ahead(
                "ConViT Fig. 13",
                f"the bigger {label}, the less local it ends",
                "nonlocality",
                (label, big),
                (label, little),
            ),
            ahead(
                "ConViT Fig. 13",
                f"the first layer of {label} ends less local when it is big",
                "first-layer",
                (label, big),
                (label, little),
            ),
        ]
    claims.append(
        ahead(
            "ConViT Fig. 14",
            "the bigger the model, the more layers keep looking at position",
            "positional",
            (convit, big),
            (convit, little),
        )
    )
    every = {(kind, size): run(kind, size) for kind in _PAIR for size in (*names, *inner)}
    also = [(training, reading) for training in every.values() for reading in (CURVES, LOOKS)]

    def figures(findings: Findings) -> list[Figure]:
        short = dict(zip(_PAIR, _KINDS, strict=True))
        curves = {
            f"{short[kind]} {size}": run(kind, size) for kind in _PAIR for size in (small, large)
        }
        insides = {
            f"{short[kind]} {size}": run(kind, size) for kind in _PAIR for size in (little, big)
        }
        gated = {k: t for k, t in insides.items() if k.startswith(_KINDS[1])}
        return [
            parameters_figure(
                findings,
                {labels[kind]: [run(kind, size) for size in names] for kind in _PAIR},
                published=scale.is_paper,
            ),
            curves_figure(findings, curves, "Learning curves by size (Fig. 11 middle)"),
            heads_figure(findings, insides, "nonlocality", "Nonlocality by size (Fig. 13)"),
            each_head_figure(findings, gated, "gates", "Gates by size, head by head (Fig. 14)"),
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


def long_training(scale: Scale) -> Plan:
    """Fig. 11 left: the "+" models on CIFAR-100 at 224 x 224, 3,000 epochs, all else as before."""
    names = scale.pick(paper=_PLUS, laptop=("S+",))
    labels = {kind: _name(scale, f"{kind}-S") for kind in _PAIR}
    vit, convit = labels.values()

    def run(kind: str, size: str) -> Training:
        found = _sized(scale, f"{kind}-{size}", 1.0)
        if not scale.is_paper:
            return found
        data = scale.data if ":" in scale.data else "cifar100"
        return found.but(data=data, image_size=scale.image_size or 224, epochs=scale.epochs or 3000)

    def table(name: str, title: str, known: Mapping[str, float], **how: Any) -> Sheet:
        rows = [
            Row(
                label=labels[kind],
                paper_label=kind,
                cells=[
                    Ask(training=run(kind, size), key=name, paper=known.get(f"{kind}-{size}"))
                    for size in names
                ],
            )
            for kind in _PAIR
        ]
        return Sheet(name=name, title=title, corner="size", columns=names, rows=rows, **how)

    best = table("best_top1", "Best top-1 during training (Fig. 11 left)", {"ConViT-Ti+": 82.1})
    last = table("top1", "Top-1 at the end (Fig. 11 left)", {})
    loss = Sheet(
        name="test-loss",
        title="Test loss at a third of the training and at its end",
        corner="network",
        columns=["a third", "end"],
        unit="NLL, nats",
        digits=3,
        accuracy=False,
        rows=[
            Row(
                label=f"{labels[kind]} {size}",
                cells=[
                    Ask(training=run(kind, size), reading=CURVES, key=_test_loss(share), factor=1.0)
                    for share in (1 / 3, 1.0)
                ],
            )
            for kind in _PAIR
            for size in names
        ],
    )
    claims = [
        ahead(
            "ConViT Fig. 11 left",
            f"at size {size}, ConViT is ahead of the plain ViT",
            "best_top1",
            (convit, size),
            (vit, size),
        )
        for size in names
    ]
    claims += [
        ahead(
            "ConViT App. C",
            f"{row.label} overfits after a third of the training",
            "test-loss",
            (row.label, "end"),
            (row.label, "a third"),
        )
        for row in loss.rows
        if row.label.startswith(convit)
    ]
    runs = {
        f"{short} {size}": run(kind, size)
        for kind, short in zip(_PAIR, _KINDS, strict=True)
        for size in names
    }

    def figures(findings: Findings) -> list[Figure]:
        return [curves_figure(findings, runs, "A long training (Fig. 11 left)")]

    also = [(training, CURVES) for training in runs.values()]
    return Plan(tables=[best, last, loss], claims=claims, figures=figures, also=also)


def _test_loss(share: float) -> Any:
    """The test loss at the measured epoch nearest to a share of the training."""

    def key(record: Record) -> float | None:
        epochs = record.values["epoch"]
        at = min(range(len(epochs)), key=lambda i: abs(epochs[i] - share * epochs[-1]))
        return record.values["test_nll"][at]  # type: ignore[no-any-return]

    return key


def _sized(scale: Scale, role: str, fraction: float) -> Training:
    recipe = "deit_plus" if "+" in role else None
    return scale.training(role, fraction=fraction, recipe=recipe)


def _name(scale: Scale, role: str) -> str:
    return scale.training(role).model


STUDIES = (
    Study(
        name="sample-efficiency",
        title="Few images: what is built-in locality worth?",
        claim="ConViT-S beats DeiT-S at every share of ImageNet, most with 5 % (+13 points)",
        covers=("ConViT Table 2", "ConViT Fig. 2 left", "ConViT Fig. 11 right"),
        plan=sample_efficiency,
        data=IMAGENET,
    ),
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
    Study(
        name="long-training",
        title="Does locality help when small images are seen very often?",
        claim="on CIFAR-100 ConViT is ahead over 3,000 epochs (82.1 % with 10M parameters) and "
        "overfits after 1,000",
        covers=("ConViT Fig. 11 left",),
        plan=long_training,
        data={**IMAGENET, "paper": "CIFAR-100 (cifar100:PATH), resized to 224"},
    ),
)
