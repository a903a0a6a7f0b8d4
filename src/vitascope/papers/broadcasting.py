"""Context broadcasting: ViTs with and without the mean token, where it belongs, other networks.

Hyeon-Woo et al. 2023, https://arxiv.org/abs/2210.08457, supplement. CB adds the mean token at the
end of every MLP and has no parameters; CB_S has a scale for each channel; CB_gate and CB_hybrid
take the class token besides the mean.

    broadcasting                Table S1 (distilled ViTs), Fig. S1 (training curves) and the entropy
                                of attention (section 2.4)
    broadcasting-small-images   Table S4 (CIFAR-100)
    broadcasting-robustness     Table S2 (occlusion and adversarial attack), on the distilled
                                networks of Table S1
    broadcasting-hierarchical   Table S3 (networks with stages or convolutions)
    broadcasting-places         Table S5 (the kinds in the MLP, the MSA or both), S6 (front, middle
                                or end of the MLP)

Deviations: with and without are trained alike (no repeated augmentation for Ti and S), so that
nothing but the module differs; the paper's distilled ViTs without it are DeiT's published ones.
CIFAR-100's images are resized to 224, as ConViT's are; the supplement does not say. FGSM's epsilon
is not given there: its number stands next to our 8/255. Of Table S3 only PVT-S and Swin-Ti are
legible in our copy, and the size of its PVTv2 is not named; B1 is our choice. CB_hybrid in MLP and
MSA failed in the paper; the cell stays empty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.papers.figures import CURVES, curves_figure, lines, over
from vitascope.papers.plan import (
    TOP1,
    TOP5,
    CellSpec,
    Grid,
    Measurement,
    Plan,
    Position,
    Reading,
    Results,
    Sample,
    TableSpec,
    Training,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import IMAGENET, ROLES, Role, Scale
from vitascope.record import Record

BESIDE = {**IMAGENET, "paper": "ImageNet-1k (imagenet:PATH), next to it imagenet-v2 and imagenet-a"}

_TINY: Role = (("deit_tiny_distilled", {}), ("vit_micro_distilled", ROLES["DeiT-Ti"][1][1]))
_DISTILLED: Mapping[str, str | Role] = {
    "ViT-Ti": _TINY,
    "ViT-S": "DeiT-S distilled",
    "ViT-B": "DeiT-B distilled",
}
KINDS = {"without": "", "CB": "cb", "CB_S": "cb_s"}
_TABLE_S1: dict[str, dict[str, tuple[float, ...]]] = {  # one number a kind, in their order
    "top1": {
        "ViT-Ti": (74.5, 74.7, 75.3),
        "ViT-S": (81.2, 81.3, 81.6),
        "ViT-B": (83.4, 83.5, 83.6),
    },
    "top5": {
        "ViT-Ti": (91.9, 92.3, 92.5),
        "ViT-S": (95.4, 95.6, 95.6),
        "ViT-B": (96.4, 96.5, 96.5),
    },
    "v2": {"ViT-Ti": (62.4, 62.5, 63.4), "ViT-S": (69.8, 70.2, 70.9), "ViT-B": (72.2, 72.3, 73.4)},
    "real": {
        "ViT-Ti": (82.1, 82.3, 82.8),
        "ViT-S": (86.9, 87.0, 87.3),
        "ViT-B": (88.1, 88.1, 88.3),
    },
}


def made(scale: Scale, role: str | Role, suffix: str = "", **options: Any) -> Training:
    """The network of a role with a module put in, on few images where the scale is not the paper's.

    >>> from vitascope.papers.scale import PAPER
    >>> made(PAPER, "DeiT-S", "cb:msa").model
    'deit_small+cb:msa'
    """
    options = {
        "fraction": scale.pick(paper=1.0, laptop=scale.small),
        "recipe": "broadcast",
        **options,
    }
    plain = scale.training(role, **options)
    return plain.but(model=f"{plain.model}+{suffix}") if suffix else plain


def _plain(scale: Scale, suffix: str = "") -> Training:
    """A network of Fig. S1; at a desk a ViT whose heads of 16 fit the machine, on 8 x 8 patches."""
    if scale.name != "desk":
        return made(scale, "DeiT-S", suffix)
    spec = f"vit_micro+{suffix}" if suffix else "vit_micro", {"embed_dim": 64, "num_heads": 4}
    return scale.few((spec, spec, spec), fraction=scale.small)


def taught(scale: Scale, size: str, suffix: str = "") -> Training:
    """A network of Table S1, distilled from a CNN."""
    few = scale.pick(paper=1.0, laptop=scale.small)
    teacher = "regnety_160" if scale.is_paper else scale.training("CNN teacher", fraction=few)
    recipe = "broadcast_base" if size == "ViT-B" else "broadcast"
    return made(scale, _DISTILLED[size], suffix, recipe=recipe).but(teacher=teacher)


def elsewhere(scale: Scale, name: str) -> Measurement:
    """Top-1 on another test set of ImageNet's classes, in a folder next to it.

    ReaL has the same images.
    """
    path = Path(scale.data.partition(":")[2])
    where = path / "val" if name == "imagenet-real" else path.parent / name
    return replace(TOP1, reading=Reading(name="elsewhere", options={"data": f"{name}:{where}"}))


def _entropy(record: Record) -> float:
    """Return the mean entropy over the layers."""
    return fmean(record.values["nats"])


def _nll_per_image(record: Record) -> np.ndarray | None:
    """NLL of each image; None where one rounds to infinity."""
    probability = record.arrays.get("probability")
    if probability is None or not (probability > 0).all():
        return None
    return -np.log(probability.astype(float))


_DISTILLED_CLAIMS = """
[CB Table S1]
CB helps {network}
    top1: CB > without at {network}
CB_S helps {network}
    top1: CB_S > without at {network}
CB_S is ahead of CB in {network}
    top1: CB_S > CB at {network}
"""
_CURVES_CLAIMS = """
[CB Fig. S1]
CB raises the final top-1
    plain: {cb} > {plain}
CB lowers the training loss
    training-loss: {plain} > {cb}
CB lowers the test loss
    test-loss: {plain} > {cb}
[CB section 2.4]
CB lowers the entropy of attention
    entropy: {plain} > {cb}
"""


@study(
    "Does uniform attention help a ViT?",
    claim="CB and CB_S raise accuracy, lower both losses and free attention to be sparse",
    covers=("CB Table S1", "CB Fig. S1"),
    data=BESIDE,
    seeds={"desk": 20},  # what CB adds is small: paired seeds, many of them
)
def broadcasting(scale: Scale) -> Plan:
    """Table S1, Fig. S1 and the entropy of attention; at a desk without the distilled ones."""
    distilled = [] if scale.name == "desk" else _distilled(scale)
    networks = distilled[0].columns if distilled else []
    runs = {run.model: run for run in (_plain(scale), _plain(scale, "cb"))}
    plain, cb = runs
    entropy = Measurement(_entropy, "entropy, nats", scale.reading("entropy"), digits=3)
    loss = Measurement("train_nll", "NLL, nats", digits=3)
    per_image = Sample(kind="images", read=_nll_per_image)
    test_loss = replace(loss, key="test_nll", sample=per_image)
    ends = "At the end of the curves (Fig. S1)"
    dense = "Entropy of attention, mean of layers and heads (section 2.4)"
    return Plan(
        tables=[
            *distilled,
            TableSpec.of_runs("plain", ends, runs, {"top-1": TOP1}),
            TableSpec.of_runs("training-loss", ends, runs, {"training NLL": loss}),
            TableSpec.of_runs("test-loss", ends, runs, {"test NLL": test_loss}),
            TableSpec.of_runs("entropy", dense, runs, {"entropy": entropy}),
        ],
        claims=[
            *(
                claim
                for network in networks
                for claim in read_claims(_DISTILLED_CLAIMS, network=network)
            ),
            *read_claims(_CURVES_CLAIMS, plain=plain, cb=cb),
        ],
        figures=[
            drawing(
                curves_figure,
                runs,
                "Training curves (Fig. S1)",
                quantities=("top1", "top5", "train_nll", "test_nll"),
            ),
            drawing(_entropy_figure, runs, entropy.reading),
        ],
        for_figures=[(run, CURVES) for run in runs.values()],
    )


def _distilled(scale: Scale) -> list[TableSpec]:
    """Table S1: a table per metric, for their noise differs."""
    sizes = scale.pick(paper=tuple(_DISTILLED), laptop=("ViT-S",))
    columns = [taught(scale, size).model for size in sizes]
    rows = {kind: [taught(scale, size, suffix) for size in sizes] for kind, suffix in KINDS.items()}
    runs = Grid(columns, rows, corner="module", paper_rows={kind: kind for kind in KINDS})
    metrics: dict[str, tuple[str, Measurement, int | None]] = {
        "top1": ("top-1", TOP1, None),
        "top5": ("top-5", TOP5, None),
    }
    if scale.is_paper:
        v2, real = elsewhere(scale, "imagenet-v2"), elsewhere(scale, "imagenet-real")
        metrics["v2"] = "top-1 on ImageNet-V2", v2, 10_000
        metrics["real"] = "top-1 on ImageNet-ReaL", real, 46_837
    return [
        runs.table(
            name,
            f"Distilled from a CNN, {title} (Table S1)",
            measurement,
            {kind: [_TABLE_S1[name][size][i] for size in sizes] for i, kind in enumerate(KINDS)},
            num_test,
        )
        for name, (title, measurement, num_test) in metrics.items()
    ]


def _entropy_figure(results: Results, runs: Mapping[str, Training], reading: Reading) -> Figure:
    """Entropy of attention, a line per network."""
    series, means = [], []
    for name, training in runs.items():
        records = results.of(training, reading)
        layers = list(zip(*(r.values["nats"] for r in records), strict=True))
        series.append(over(list(range(1, len(layers) + 1)), layers, name))
        means.append(f"{fmean(map(_entropy, records)):.2f} nats in {name}")
    return Figure(
        name="entropy",
        title="How dense attention is, layer by layer (section 2.4)",
        panels=(lines("Entropy by layer", series, x="layer", y="entropy, nats"),),
        reading=f"Means over layers: {', '.join(means)}.",
    )


@study(
    "Does uniform attention help on small images?",
    claim="CB raises ViT-S from scratch on CIFAR-100 by 0.7 points",
    covers=("CB Table S4",),
    data={**IMAGENET, "paper": "CIFAR-100 (cifar100:PATH)"},
)
def broadcasting_small_images(scale: Scale) -> Plan:
    """Table S4: a ViT from scratch on all small images."""
    runs = [made(scale, "DeiT-S", suffix, fraction=1.0) for suffix in ("", "cb")]
    if scale.is_paper:
        data = scale.data if ":" in scale.data else "cifar100"
        runs = [run.but(data=data, image_size=scale.image_size or 224) for run in runs]
    plain, cb = (run.model for run in runs)
    names = {plain: "ViT-S", cb: "+ CB"}
    grid = Grid(["top-1"], {run.model: [run] for run in runs}, paper_rows=names)
    paper = {plain: [74.73], cb: [75.43]}
    return Plan(
        tables=[grid.table("top1", "From scratch on small images (Table S4)", paper=paper)],
        claims=read_claims(
            """
            [CB Table S4]
            CB raises the accuracy
                top1: {cb} > {plain}
            """,
            plain=plain,
            cb=cb,
        ),
    )


# Table S2: without, CB, CB_S
_TABLE_S2 = {
    "occluded": (74.6, 75.1, 75.1),
    "8/255": (11.8, 15.5, 13.0),
    "top-1": (21.5, 23.6, 22.6),
}
_ROBUST = """
[CB Table S2]
{kind} is ahead with the centre hidden
    occlusion: {kind} > without
{kind} is ahead under FGSM {epsilon}
    fgsm: {kind} > without at {epsilon}
{kind} is ahead on ImageNet-A
    {far}: {kind} > without
"""


@study(
    "Does uniform attention make a ViT robust?",
    claim="CB raises accuracy with the centre hidden (+0.5), on ImageNet-A and under FGSM",
    covers=("CB Table S2",),
    data=BESIDE,
)
def broadcasting_robustness(scale: Scale) -> Plan:
    """Table S2, on the distilled networks of Table S1."""
    count = scale.pick(paper=50_000, laptop=scale.images)
    look = {"num_images": count}
    hidden, attacked = Reading(name="occlusion", options=look), Reading(name="fgsm", options=look)
    tables = [
        _modules(
            scale,
            "occlusion",
            "Centre hidden, half the side, black (Table S2)",
            {"occluded": accuracy_at(hidden, "sizes", 0.5)},
            count,
        ),
        _modules(
            scale,
            "fgsm",
            "FGSM, epsilon in pixels of 0 to 1; the paper's is not given (Table S2)",
            {f"{n}/255": accuracy_at(attacked, "epsilons", n / 255) for n in (1, 8)},
            count,
        ),
    ]
    if scale.is_paper:
        far = {"top-1": elsewhere(scale, "imagenet-a")}
        tables.append(_modules(scale, "imagenet-a", "ImageNet-A (Table S2)", far, 7_500))
    names = {"epsilon": tables[1].columns, "far": [table.name for table in tables[2:]]}
    better = """
        [CB Table S2]
        CB withstands FGSM better than CB_S
            fgsm: CB > CB_S at 8/255
        """
    ahead = [claim for kind in ("CB", "CB_S") for claim in read_claims(_ROBUST, kind=kind, **names)]
    return Plan(tables=tables, claims=ahead + read_claims(better))


def accuracy_at(reading: Reading, name: str, value: float) -> Measurement:
    """Accuracy at one size of the box, or one epsilon."""

    def index(record: Record) -> int | None:
        near = (i for i, v in enumerate(record.values[name]) if abs(v - value) < 1e-6)
        return next(near, None)

    def key(record: Record) -> float | None:
        at = index(record)
        return None if at is None else record.values["accuracy"][at]

    def correct(record: Record) -> np.ndarray | None:
        at, every = index(record), record.arrays.get("images/correct")  # the clean images first
        return None if at is None or every is None else every[1 + at].astype(bool)

    return Measurement(key, reading=reading, sample=Sample(kind="images", read=correct))


def _modules(
    scale: Scale, name: str, title: str, columns: Mapping[str, Measurement], num_test: int
) -> TableSpec:
    """The distilled ViT-S without and with each module."""
    cells = {
        (kind, column): CellSpec(taught(scale, "ViT-S", suffix), measurement, paper)
        for column, measurement in columns.items()
        for (kind, suffix), paper in zip(
            KINDS.items(), _TABLE_S2.get(column, (None,) * 3), strict=True
        )
    }
    kinds = {kind: kind for kind in KINDS}
    return TableSpec(name, title, cells, corner="module", paper_rows=kinds, num_test=num_test)


# Table S3: role (the paper's, ours on small images), epochs, top-1 without and with. On images of
# 8 x 8 our Swin has two stages, patches of one pixel and windows of 4 x 4.
_TABLE_S3: dict[str, tuple[Role, int, float | None, float | None]] = {
    "PVT-S": ((("pvt_small", {}), ("pvt_micro", {})), 120, 76.7, 77.3),
    "LocalViT-Ti": ((("localvit_tiny", {}), ("localvit_micro", {})), 150, None, None),
    "PVTv2": ((("pvt_v2_b1", {}), ("pvt_micro", {})), 120, None, None),
    "Swin-Ti": (
        (
            ("swin_tiny_patch4_window7_224", {}),
            ("swin_tiny_cifar", {"embed_dim": 36, "depths": (2, 2), "num_heads": (2, 4)}),
        ),
        120,
        79.3,
        79.5,
    ),
}


_HIERARCHICAL = """
[CB Table S3]
CB helps {network}
    top1: {network} at CB > {network} at without
CB helps on average
    top1: * at CB > * at without
"""


@study(
    "Does uniform attention help other families too?",
    claim="CB helps PVT-S (+0.6), LocalViT, PVTv2 and Swin-Ti (+0.2)",
    covers=("CB Table S3",),
    data=IMAGENET,
)
def broadcasting_hierarchical(scale: Scale) -> Plan:
    """Table S3: networks with stages or convolutions; PVTv2 at the paper's scale alone."""
    rows, names = {}, {}
    for name, (role, epochs, *_) in _TABLE_S3.items():
        if name == "PVTv2" and not scale.is_paper:
            continue
        pair = [made(scale, role, suffix) for suffix in ("", "cb")]
        pair = [t.but(epochs=t.epochs or epochs) for t in pair] if scale.is_paper else pair
        label = pair[0].model + scale.pick(paper="", laptop=", small") * (name == "Swin-Ti")
        rows[label], names[label] = pair, name
    runs = Grid(["without", "CB"], rows, paper_rows=names)
    paper = {label: _TABLE_S3[name][2:] for label, name in names.items()}
    title = (
        "In networks with stages or convolutions (Table S3; it also has 69.4, 72.5 and 76.5, "
        "row uncertain in our copy)"
    )
    return Plan(
        tables=[runs.table("top1", title, paper=paper)],
        claims=read_claims(_HIERARCHICAL, network=list(rows)),
    )


_MODULES = {"": "without", "cb": "CB", "cb_gate": "CB_gate", "cb_hybrid": "CB_hybrid"}
_TABLE_S5: dict[str, dict[str, tuple[float, float] | None]] = {  # where -> top-1, top-5
    "cb": {"mlp": (80.5, 95.3), "msa": (80.1, 95.0), "both": (80.1, 95.0)},
    "cb_gate": {"mlp": (80.4, 95.1), "msa": (80.0, 95.0), "both": (80.0, 95.0)},
    "cb_hybrid": {"mlp": (80.5, 95.0), "msa": (80.4, 95.3), "both": None},
}
_TABLE_S6: dict[str, dict[str, tuple[float, float] | None]] = {  # position -> top-1, top-5
    "cb": {"front": (79.9, 94.8), "mid": (80.5, 95.2), "end": (80.5, 95.3)},
    "cb_gate": {"front": (80.3, 94.9), "mid": (80.2, 95.1), "end": (80.4, 95.1)},
    "cb_hybrid": {"front": (80.5, 95.0), "mid": (80.1, 95.1), "end": (80.3, 95.0)},
}
_DEFAULTS = ("mlp", "end")  # left out of a model's name, so that both tables share the runs


_PLACES = """
[CB Table S5]
{module} in the MLP helps
    blocks-top1: {module} at mlp > without at none
{module} in the MSA helps
    blocks-top1: {module} at msa > without at none
{module} is better in the MLP than in the MSA
    blocks-top1: {module} at mlp > {module} at msa
[CB Table S6]
{module} is better at the {best} than at the {worst}
    positions-top1: {module} at {best} > {module} at {worst}
"""


@study(
    "Where does uniform attention belong?",
    claim="the mean token at the end of the MLP is the best place; gates bring nothing more",
    covers=("CB Table S5", "CB Table S6"),
    data=IMAGENET,
)
def broadcasting_places(scale: Scale) -> Plan:
    """Tables S5 and S6: which module, and where."""
    every = ("cb", "cb_gate", "cb_hybrid")
    kinds = scale.pick(paper=every, smoke=("cb", "cb_gate"))
    blocks = scale.pick(paper=("mlp", "msa", "both"), smoke=("mlp", "msa"))
    positions = scale.pick(paper=("front", "mid", "end"), smoke=("front", "end"))
    module = "In the MLP, the MSA or both (Table S5)"
    position = "At the front, middle or end of the MLP (Table S6)"
    tables = [
        *_by_place(scale, "blocks", module, _TABLE_S5, kinds, blocks),
        *_by_place(scale, "positions", position, _TABLE_S6, kinds, positions),
    ]
    claims = []
    for kind in kinds:
        best, worst = ("front", "end") if kind == "cb_hybrid" else ("end", "front")
        claims += read_claims(_PLACES, module=_MODULES[kind], best=best, worst=worst)
    drawn = [table for table in tables if table.name.endswith("top1")]
    return Plan(tables=tables, claims=claims, figures=[drawing(_places_figure, drawn)])


def _by_place(
    scale: Scale,
    name: str,
    title: str,
    published: Mapping[str, Mapping[str, tuple[float, float] | None]],
    kinds: Sequence[str],
    wanted: Sequence[str],
) -> list[TableSpec]:
    """Top-1 and top-5 without a module, and with each kind in each place."""
    tables = []
    for i, measurement in enumerate((TOP1, TOP5)):
        cells: dict[Position, CellSpec | None] = {
            ("without", "none"): CellSpec(made(scale, "DeiT-S"), measurement, (79.9, 95.0)[i])
        }
        for kind in kinds:
            for position in wanted:
                suffix = kind if position in _DEFAULTS else f"{kind}:{position}"
                paper, run = published[kind][position], made(scale, "DeiT-S", suffix)
                cells[_MODULES[kind], position] = paper and CellSpec(run, measurement, paper[i])
        names = {_MODULES[kind]: "+ " + _MODULES[kind] for kind in kinds} | {"without": "ViT-S"}
        key = f"{name}-{measurement.key}"
        tables.append(TableSpec(key, title, cells, corner="module", paper_rows=names))
    return tables


def _places_figure(results: Results, tables: Sequence[TableSpec]) -> Figure:
    """Tables as dots: columns are groups, rows are series."""
    panels = []
    for table in tables:
        series = tuple(
            DotSeries(
                label=label,
                paper=[cell.paper if cell else None for cell in table.row(label)],
                values=[results.values(cell) for cell in table.row(label)],
            )
            for label in table.rows
        )
        groups = tuple(table.columns)
        panels.append(Dots(title=table.title, y_label=TOP1.unit, groups=groups, series=series))
    text = "Each dot is one seed; the module's name is the colour, its place the group."
    title = "Which module, and where (Tables S5 and S6)"
    return Figure(name="places", title=title, reading=text, panels=tuple(panels))
