"""ConViT against DeiT: on few images, at every size, in very long training.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Top-1 on ImageNet with the deit recipe; the
numbers next to ours are the paper's. Its tables have the accuracy at the end, its Fig. 11 the best
one during training: both are here.

    sample-efficiency   Table 2, Fig. 2 left and Fig. 11 right: shares of the training images
    sizes               Table 1, Fig. 2 right and Fig. 11 middle: accuracy, cost and learning curves
                        of every size; Fig. 13 and 14: gates and nonlocality, by size
    long-training       Fig. 11 left and appendix C: CIFAR-100

Throughput is read off finished runs, which may run side by side: for a clean number take
``vitascope models --speed``.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from vitascope.figure import Figure, Series
from vitascope.papers.convit.measurements import gate, nonlocality, positional_layers, test_loss_at
from vitascope.papers.figures import (
    CURVES,
    attention_trace,
    curves_figure,
    each_head_figure,
    heads_figure,
    lines,
    over,
    shares_panel,
)
from vitascope.papers.plan import (
    BEST_TOP1,
    GAIN,
    TOP1,
    TOP5,
    CellSpec,
    Grid,
    Measurement,
    Plan,
    Reading,
    Results,
    TableSpec,
    Training,
    drawing,
    gain,
    read_claims,
    study,
)
from vitascope.papers.scale import IMAGENET, Scale, percent

PAIR = {"DeiT": "ViT", "ConViT": "ConViT"}  # the second in figures, whose labels are short
_SIZES, PLUS = ("Ti", "S", "B"), ("Ti+", "S+", "B+")

_TABLE_2 = {  # share of the images -> top-1 of DeiT-S and ConViT-S, then top-5
    0.05: ((34.8, 47.8), (57.8, 70.7)),
    0.1: ((48.0, 59.6), (71.5, 80.3)),
    0.3: ((66.1, 73.7), (86.0, 90.7)),
    0.5: ((74.6, 78.2), (91.8, 93.8)),
    1.0: ((79.9, 81.4), (95.0, 95.8)),
}

# Table 2, "Gap": of top-1 and of top-5, in percent of DeiT's
_GAPS = {0.05: (37, 22), 0.1: (24, 12), 0.3: (12, 5), 0.5: (5, 2), 1.0: (2, 1)}

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
_POSITIONAL = (40.0, 50.0, 60.0)  # 4, 5 and 6 of 10 layers

# The published networks in Fig. 2 right: (million parameters, ImageNet top-1). EfficientNet B3 to
# B7 and ViT have the same numbers in Table 1a of Liu et al. 2021 (Swin). Left out is VT (Wu et al.
# 2020), which the figure also shows: its numbers could not be checked.
Points = tuple[tuple[float, float], ...]
CNNS: dict[str, Points] = {
    # 18, 50, 101, 152: torchvision's first weights, in timm's results-imagenet.csv (tv_in1k)
    "ResNet, published": ((11.7, 69.8), (25.6, 76.1), (44.5, 77.4), (60.2, 78.3)),
    # B0 to B7: Tan and Le 2019, Table 2
    "EfficientNet, published": (
        *((5.3, 77.1), (7.8, 79.1), (9.2, 80.1), (12, 81.6)),
        *((19, 82.9), (30, 83.6), (43, 84.0), (66, 84.3)),
    ),
}
TRANSFORMERS: dict[str, Points] = {
    # B/16 and L/16 at 384 pixels, ImageNet alone: Touvron et al. 2021, Table 5
    "ViT, published": ((86, 77.9), (307, 76.5)),
    # 14, 19, 24: Yuan et al. 2021, the released models' table (github.com/yitu-opensource/T2T-ViT)
    "T2T-ViT, published": ((21.5, 81.5), (39.2, 81.9), (64.1, 82.3)),
}

SPEED = Measurement(
    "images_per_second",
    "images a second",
    Reading(name="throughput", options={"batch_size": 128}),
    digits=0,
    log=True,
)


def _gains(grid: Mapping[str, Sequence[Training]], names: Sequence[str]) -> dict[str, CellSpec]:
    """The relative gain in best top-1 of the second row over the first, by column (Fig. 11)."""
    cells = ([CellSpec(run, BEST_TOP1) for run in row] for row in grid.values())
    return {n: gain(*pair) for n, *pair in zip(names, *cells, strict=True)}


_EFFICIENCY = """
[ConViT Table 2]
ConViT is ahead of the plain ViT on {share} of the images
    top1: {convit} > {vit} at {share}
ConViT's lead grows as the images become fewer
    top1: {convit} - {vit} at {few} > {convit} - {vit} at {all}
"""


@study(
    "Few images: what is built-in locality worth?",
    claim="ConViT-S beats DeiT-S at every share of ImageNet, most with 5 % (+13 points)",
    covers=("ConViT Table 2", "ConViT Fig. 2 left", "ConViT Fig. 11 right"),
    data=IMAGENET,
)
def sample_efficiency(scale: Scale) -> Plan:
    """Table 2: DeiT-S and ConViT-S on a share of each class, epochs times 1/share.

    At a desk every network is small and sees 100,000 images.
    """
    fractions = scale.pick(paper=tuple(_TABLE_2), smoke=(0.1, 1.0))
    shares = [percent(f) for f in fractions]

    def trained(role: str, fraction: float = 1.0) -> Training:
        return scale.affordable(role, fraction=fraction, seen=1 / 4)

    roles = {trained(role).model: role for role in ("DeiT-S", "ConViT-S")}
    rows = {label: [trained(role, f) for f in fractions] for label, role in roles.items()}
    runs = Grid(shares, rows, corner="images", paper_rows=roles)
    top1, top5 = (
        {label: [_TABLE_2[f][which][i] for f in fractions] for i, label in enumerate(roles)}
        for which in (0, 1)
    )
    where = "against the share of the images (Table 2)"
    table = runs.table("top1", f"Top-1 {where}", TOP1, top1)
    vit, convit = roles
    drawn = range(len(shares)) if scale.is_paper else (0, -1)  # in Fig. 11
    curves = {
        f"{kind} {shares[i]}": rows[label][i]
        for kind, label in (("ViT", vit), ("ConViT", convit))
        for i in drawn
    }
    fifth = runs.table("top5", f"Top-5 {where}", TOP5, top5)
    gaps = {
        (name, share): gain(each.filled[vit, share], each.filled[convit, share], _GAPS[f][i])
        for i, (name, each) in enumerate({"top-1": table, "top-5": fifth}.items())
        for f, share in zip(fractions, shares, strict=True)
    }
    gap = TableSpec(
        "gap", "ConViT's lead as a share of the ViT's accuracy (Table 2)", gaps, corner="images"
    )
    return Plan(
        tables=[
            table,
            fifth,
            runs.table("best_top1", f"Best top-1 during training, {where}", BEST_TOP1),
            gap,
        ],
        claims=read_claims(
            _EFFICIENCY, vit=vit, convit=convit, share=shares, few=shares[0], all=shares[-1]
        ),
        figures=[
            drawing(_efficiency_figure, table, gap, fractions),
            drawing(
                curves_figure,
                curves,
                "Learning curves (Fig. 11 right)",
                gains=_gains(rows, shares),
            ),
        ],
        for_figures=[(run, CURVES) for run in runs.runs],
    )


def _efficiency_figure(
    results: Results, table: TableSpec, gap: TableSpec, fractions: Sequence[float]
) -> Figure:
    rows = {label: table.row(label) for label in table.rows}
    gains = shares_panel(
        results,
        "ConViT's relative gain",
        {"ConViT over ViT": gap.row("top-1")},
        fractions,
        model=False,
        y=GAIN.unit,
    )
    return Figure(
        name="efficiency",
        title="Sample efficiency (Fig. 2 left)",
        panels=(shares_panel(results, "Top-1 by share of the images", rows, fractions), gains),
        reading="The higher line makes more of the same images; the gain is a share of the ViT's.",
    )


_BY_SIZE = """
[ConViT Table 1]
at size {size}, ConViT is ahead of the plain ViT
    top1: {convit} > {vit} at {size}
[ConViT Fig. 11]
ConViT's lead grows with the size of the model
    top1: {convit} - {vit} at B+ > {convit} - {vit} at Ti+
[ConViT Table 1]
at size {size}, positional attention slows ConViT down
    speed: {vit} > {convit} at {size}
"""
_ONE_WIDTH_ON = """
[ConViT Table 1]
at higher throughput, ConViT {small} is ahead of the plain ViT {large}
    top1: {convit} at {small} > {vit} at {large}
at higher accuracy, ConViT {small} is faster than the plain ViT {large}
    speed: {convit} at {small} > {vit} at {large}
"""
_STABLE = """
[ConViT section 4]
the plain ViT gets worse from S+ to B+
    top1: {vit} at S+ > {vit} at B+
ConViT does not get worse from S+ to B+
    top1: {convit} at B+ > {convit} at S+
"""
_NONLOCALITY_BY_SIZE = """
[ConViT Fig. 13]
the bigger {label}, the less local it ends
    nonlocality: {label} at {big} > {label} at {little}
{label} ends less local at size {step[0]} than at {step[1]}
    nonlocality: {label} at {step[0]} > {label} at {step[1]}
the first layer of {label} ends less local when it is big
    first-layer: {label} at {big} > {label} at {little}
"""
_GATES_BY_SIZE = """
[ConViT Fig. 14]
the bigger the model, the more layers keep looking at position
    positional: {convit} at {big} > {convit} at {little}
more layers keep looking at position at size {step[0]} than at {step[1]}
    positional: {convit} at {step[0]} > {convit} at {step[1]}
at size {inner}, the first layer keeps more position than the last
    gates: first layer > last GPSA layer at {inner}
"""


def sized(scale: Scale, role: str, fraction: float = 1.0) -> Training:
    """A model of one size; the "+" models have a recipe of their own."""
    recipe = "deit_plus" if "+" in role else None
    return scale.training(role, fraction=fraction, recipe=recipe)


@study(
    "Does locality help at every size?",
    claim="ConViT beats DeiT at every size; with equal heads by more the larger they are",
    covers=(
        "ConViT Table 1",
        "ConViT Fig. 2 right",
        "ConViT Fig. 11 middle",
        "ConViT Fig. 13",
        "ConViT Fig. 14",
    ),
    data=IMAGENET,
)
def sizes(scale: Scale) -> Plan:
    """Table 1: three widths, on few images on a laptop.

    There both networks have the same heads, as the paper's "+" models do; those alone widen their
    lead with their size (+0.8, +3.2, +5.0 points; without the plus +0.9, +1.5, +0.6).
    """
    names = scale.pick(paper=(*_SIZES, *PLUS), laptop=PLUS, smoke=(PLUS[0], PLUS[-1]))
    inner = scale.pick(paper=_SIZES, laptop=PLUS, smoke=(PLUS[0], PLUS[-1]))  # Fig. 13 and 14
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    models = {kind: scale.training(f"{kind}-S").model for kind in PAIR}
    vit, convit = models.values()
    runs = {
        (kind, size): sized(scale, f"{kind}-{size}", fraction)
        for kind in PAIR
        for size in (*names, *inner)
    }
    rows = {model: [runs[kind, size] for size in names] for kind, model in models.items()}
    tables = _cost_by_size(
        Grid(names, rows, corner="size", paper_rows={vit: "DeiT", convit: "ConViT"})
    )
    inside = {model: [runs[kind, size] for size in inner] for kind, model in models.items()}
    tables += _inside_by_size(scale, inner, inside, convit)
    steps = [(more, less) for less, more in pairwise(inner)] if len(inner) > 2 else []
    ends = {"big": inner[-1], "little": inner[0], "step": steps}
    both = {"vit": vit, "convit": convit}
    plus = [size for size in PLUS if size in names]
    shown = plus if scale.is_paper else (PLUS[0], PLUS[-1])
    curves, insides = (
        {f"{short} {size}": runs[kind, size] for kind, short in PAIR.items() for size in some}
        for some in (shown, (inner[0], inner[-1]))
    )
    pairs = {kind: [runs[kind, size] for size in plus] for kind in PAIR}
    gated = {label: run for label, run in insides.items() if label.startswith("ConViT")}
    trace = attention_trace(scale)
    far, gates = "Nonlocality by size (Fig. 13)", "Gates by size, head by head (Fig. 14)"
    return Plan(
        tables=tables,
        claims=[
            *read_claims(_BY_SIZE, **both, size=list(names)),
            *(read_claims(_ONE_WIDTH_ON, **both, small="S+", large="B") if "B" in names else ()),
            *(read_claims(_STABLE, **both) if {"S+", "B+"} <= {*names} else ()),
            *read_claims(_NONLOCALITY_BY_SIZE, label=vit, **ends),
            *read_claims(_NONLOCALITY_BY_SIZE, label=convit, **ends),
            *read_claims(_GATES_BY_SIZE, convit=convit, inner=list(inner), **ends),
        ],
        figures=[
            drawing(parameters_figure, rows, published=scale.is_paper),
            drawing(
                curves_figure,
                curves,
                "Learning curves by size (Fig. 11 middle)",
                gains=_gains(pairs, plus),
            ),
            drawing(heads_figure, insides, trace, "nonlocality", far),
            drawing(each_head_figure, gated, trace, "gates", gates),
        ],
        for_figures=[(run, reading) for run in runs.values() for reading in (CURVES, trace)],
    )


def _cost_by_size(runs: Grid) -> list[TableSpec]:
    """Accuracy and throughput, with the numbers of Table 1."""
    top1, top5, speed = (
        {
            label: [_TABLE_1[f"{kind}-{size}"][i] for size in runs.columns]
            for label, kind in runs.paper_rows.items()
        }
        for i in range(3)
    )
    return [
        runs.table("top1", "Top-1 by size (Table 1)", TOP1, top1),
        runs.table("top5", "Top-5 by size (Table 1)", TOP5, top5),
        runs.table("best_top1", "Best top-1 during training, by size (Fig. 11 middle)", BEST_TOP1),
        runs.table("speed", "Throughput by size, batches of 128 (Table 1)", SPEED, speed),
    ]


def _inside_by_size(
    scale: Scale, sizes: Sequence[str], rows: Mapping[str, Sequence[Training]], convit: str
) -> list[TableSpec]:
    """Nonlocality (Fig. 13) and gates (Fig. 14) at the end of the training."""
    runs = Grid(sizes, rows, corner="size")
    gated = Grid(sizes, {convit: rows[convit]}, corner="size")
    positional = Measurement(positional_layers, "layers, %", attention_trace(scale), digits=0)
    published = dict(zip((*PLUS, *_SIZES), 2 * _POSITIONAL, strict=True))
    first, last = slice(0, 1), slice(-1, None)
    gates = {
        (label, size): CellSpec(run, gate(scale, layers=layers))
        for label, layers in (("first layer", first), ("last GPSA layer", last))
        for size, run in zip(sizes, rows[convit], strict=True)
    }
    return [
        runs.table(
            "nonlocality", "Mean nonlocality at the end, by size (Fig. 13)", nonlocality(scale)
        ),
        runs.table(
            "first-layer",
            "Nonlocality of the first layer at the end (Fig. 13)",
            nonlocality(scale, layers=first),
        ),
        gated.table(
            "positional",
            "GPSA layers that still look at position at the end (Fig. 14)",
            positional,
            {convit: [published[size] for size in sizes]},
        ),
        TableSpec(
            "gates",
            "Gates of the first and the last GPSA layer at the end (Fig. 14)",
            gates,
            corner="layer",
        ),
    ]


def parameters_figure(
    results: Results, runs: Mapping[str, Sequence[Training]], *, published: bool
) -> Figure:
    """Fig. 2 right: top-1 over parameters; at the paper's scale next to the published points."""
    series = []
    for label, trainings in runs.items():
        points = []
        for training in trainings:
            counted = results.of(training, SPEED.reading)
            millions = fmean(record.values["parameters"] for record in counted) / 1e6
            points.append((millions, results.values(CellSpec(training))))
        points.sort(key=lambda point: point[0])
        series.append(over([x for x, _ in points], [y for _, y in points], label))
    if published:
        for family, pairs in {**CNNS, **TRANSFORMERS}.items():
            x, y = zip(*pairs, strict=True)
            series.append(Series(label=family, x=list(x), y=list(y)))
    panel = lines(
        "Top-1 over parameters", series, x="parameters, millions", y="top-1, %", x_log=True
    )
    return Figure(
        name="sizes",
        title="Parameter efficiency (Fig. 2 right)",
        panels=(panel,),
        reading="The higher line makes more of as many parameters.",
    )


_LONG_TRAINING = """
[ConViT Fig. 11 left]
at size {size}, ConViT is ahead of the plain ViT
    best_top1: {convit} > {vit} at {size}
[ConViT App. C]
{convit} {size} overfits after a third of the training
    test-loss: {convit} {size} at end > {convit} {size} at a third
"""


@study(
    "Does locality help when small images are seen very often?",
    claim="on CIFAR-100 ConViT is ahead over 3,000 epochs (82.1 % with 10M parameters) and "
    "overfits after 1,000",
    covers=("ConViT Fig. 11 left",),
    data={**IMAGENET, "paper": "CIFAR-100 (cifar100:PATH), resized to 224"},
)
def long_training(scale: Scale) -> Plan:
    """Fig. 11 left: the "+" models on CIFAR-100 at 224 x 224, 3,000 epochs, all else as before."""
    names = scale.pick(paper=PLUS, laptop=("S+",))
    models = {scale.training(f"{kind}-S").model: kind for kind in PAIR}
    vit, convit = models
    rows = {m: [_very_long(scale, f"{kind}-{s}") for s in names] for m, kind in models.items()}
    runs = Grid(names, rows, corner="size", paper_rows=models)
    best = {convit: [82.1 if size == "Ti+" else None for size in names]}
    loss = TableSpec.of_runs(
        "test-loss",
        "Test loss at a third of the training and at its end",
        {f"{model} {s}": run for model in rows for s, run in zip(names, rows[model], strict=True)},
        {"a third": test_loss_at(1 / 3), "end": test_loss_at(1.0)},
    )
    curves = {
        f"{PAIR[kind]} {size}": run
        for model, kind in models.items()
        for size, run in zip(names, rows[model], strict=True)
    }
    return Plan(
        tables=[
            runs.table("best_top1", "Best top-1 during training (Fig. 11 left)", BEST_TOP1, best),
            runs.table("top1", "Top-1 at the end (Fig. 11 left)"),
            loss,
        ],
        claims=read_claims(_LONG_TRAINING, vit=vit, convit=convit, size=list(names)),
        figures=[
            drawing(
                curves_figure, curves, "A long training (Fig. 11 left)", gains=_gains(rows, names)
            )
        ],
        for_figures=[(run, CURVES) for run in runs.runs],
    )


def _very_long(scale: Scale, role: str) -> Training:
    """3,000 epochs on small images, at the paper's scale."""
    usual = sized(scale, role)
    if not scale.is_paper:
        return usual
    data = scale.data if ":" in scale.data else "cifar100"
    return usual.but(data=data, image_size=scale.image_size or 224, epochs=scale.epochs or 3000)
