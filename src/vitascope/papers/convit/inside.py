"""Gates, nonlocality and attention maps of ConViT over training, and accuracy under masking.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 3, 5, 6, 7, 15-17 (looking inside) and
Tables 5 and 6 (masking at test time).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from vitascope.figure import Figure, Maps
from vitascope.papers.convit.measurements import ALL, gate, nonlocality
from vitascope.papers.figures import (
    CURVES,
    attention_trace,
    each_head_figure,
    heads_figure,
    windows_figure,
)
from vitascope.papers.plan import (
    CellSpec,
    Measurement,
    Plan,
    Position,
    Reading,
    Results,
    Sample,
    TableSpec,
    Training,
    drawing,
    per_image,
    read_claims,
    study,
)
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.record import Record

_SHARES = {"start": 0.0, "early": 0.1, "end": 1.0}  # of the training
_INSIDE = """
[ConViT Fig. 5]
the plain ViT's first layer becomes more local
    nonlocality: {vit}, first at start > {vit}, first at end
the plain ViT as a whole becomes more local at first
    nonlocality: {vit}, all at start > {vit}, all at early
the plain ViT's upper layers climb back later
    nonlocality: {vit}, upper half at end > {vit}, upper half at early
the plain ViT's upper layers end less local than its first
    nonlocality: {vit}, upper half > {vit}, first at end
GPSA layers escape locality
    nonlocality: {convit}, GPSA at end > {convit}, GPSA at start
ConViT ends more local than the plain ViT
    nonlocality: {vit}, all > {convit}, all at end
[ConViT Fig. 6]
gates fall in training: more attention goes to content
    gates: all GPSA layers at start > all GPSA layers at end
gates fall with depth: early layers keep more position than late ones
    depth: all heads < 0
"""
_WINDOWS = "Centres and widths of the positional heads over training (eq. 5)"
_MAPS = {  # figure -> title, when, of one image
    "initial": ("Maps before training (Fig. 3)", "before", True),
    "maps": ("Maps of one image after training (Fig. 7, 16, 17)", "after", True),
    "averaged": ("Maps averaged over images (Fig. 15)", "", False),
}


def _by_depth(record: Record) -> np.ndarray | None:
    """Layer and gate of every head at the end of the training. (2, heads)"""
    if "gates" not in record.arrays:
        return None
    gates = record.arrays["gates"][-1]  # (L, H), not a number where a layer has fewer heads
    layers = np.broadcast_to(np.arange(len(gates))[:, None], gates.shape)
    finite = np.isfinite(gates)
    return np.stack([layers[finite], gates[finite]])


def _depth_correlation(record: Record) -> float | None:
    """Spearman's correlation of gate and depth over all heads."""
    points = _by_depth(record)
    if points is None or not np.ptp(points, 1).all():
        return None
    return float(stats.spearmanr(*points).statistic)


def _networks(scale: Scale) -> tuple[Training, Training]:
    """ViT and ConViT; at a desk 8 blocks on an 8 x 8 grid, a quarter of the images seen."""
    if scale.name != "desk":
        return scale.training("DeiT-S"), scale.training("ConViT-S")

    def deep(model: str, **args: Any) -> Training:
        spec = model, {"depth": 8, **args}
        return scale.few((spec, spec, spec), fraction=0.4, seen=1 / 4)  # of 20,000 images

    return deep("vit_micro"), deep("convit_micro", num_gpsa_blocks=7)


@study(
    "Does locality come and go during training?",
    claim="plain attention becomes local early on; GPSA layers escape their locality",
    covers=(
        "ConViT Fig. 3",
        "ConViT Fig. 5",
        "ConViT Fig. 6",
        "ConViT Fig. 7",
        "ConViT Fig. 15",
        "ConViT Fig. 16",
        "ConViT Fig. 17",
    ),
    data=IMAGENET,
    seeds={"desk": 3},
)
def locality_in_training(scale: Scale) -> Plan:
    """Fig. 5 and 6 as numbers; Fig. 3, 7 and 15-17 as maps of one image and of many."""
    vit, convit = _networks(scale)
    trace = attention_trace(scale)
    images = scale.pick(paper=100, smoke=8)
    maps = {
        (run, when, count): Reading(name="maps", options={"num_images": count, "at": at})
        for run in (vit.model, convit.model)
        for when, at in (("before", 0.0), ("after", 1.0))
        for count in (1, images)
    }
    runs = {vit.model: vit, convit.model: convit}
    far, gates = "Nonlocality over training (Fig. 5)", "Gates over training, head by head (Fig. 6)"
    return Plan(
        tables=_inside_tables(scale, vit, convit),
        claims=read_claims(_INSIDE, vit=vit.model, convit=convit.model),
        figures=[
            drawing(heads_figure, runs, trace, "nonlocality", far),
            drawing(each_head_figure, {convit.model: convit}, trace, "gates", gates),
            drawing(windows_figure, {convit.model: convit}, trace, _WINDOWS),
            *(drawing(_maps_figure, name, runs, maps) for name in _MAPS),
        ],
        for_figures=[
            *((run, reading) for run in (vit, convit) for reading in (trace, CURVES)),
            *((runs[model], reading) for (model, *_), reading in maps.items()),
        ],
    )


def _inside_tables(scale: Scale, vit: Training, convit: Training) -> list[TableSpec]:
    """Nonlocality and gates before, early in and after the training; gates by depth."""
    gpsa = scale.pick(paper=10, laptop=3, desk=7)  # layers
    first, upper = slice(0, 1), slice(scale.pick(paper=6, laptop=2, desk=4), None)
    layers = {
        f"{vit.model}, first": (vit, first),
        f"{vit.model}, upper half": (vit, upper),
        f"{vit.model}, all": (vit, ALL),
        f"{convit.model}, GPSA": (convit, slice(0, gpsa)),
        f"{convit.model}, all": (convit, ALL),
    }
    gated = {
        "all GPSA layers": (convit, ALL),
        "first layer": (convit, first),
        "last GPSA layer": (convit, slice(gpsa - 1, gpsa)),
    }
    far = _over_training(layers, partial(nonlocality, scale))
    gates = _over_training(gated, partial(gate, scale))
    sample = Sample(kind="points", read=_by_depth)
    trace = attention_trace(scale)
    rho = Measurement(_depth_correlation, "Spearman's rho", trace, digits=2, sample=sample)
    depth = {("all heads", "rho"): CellSpec(convit, rho)}
    by_depth = "Rank correlation of gate and depth after training (Fig. 6)"
    far_title = "Nonlocality before and after training (Fig. 5)"
    return [
        TableSpec("nonlocality", far_title, far, corner="layers"),
        TableSpec("gates", "Gates before and after training (Fig. 6)", gates, corner="layers"),
        TableSpec("depth", by_depth, depth, corner="over"),
    ]


def _over_training(
    rows: Mapping[str, tuple[Training, slice]], measurement: Callable[[float, slice], Measurement]
) -> dict[Position, CellSpec]:
    """A number of some layers before, early in and after the training."""
    return {
        (label, when): CellSpec(training, measurement(share, layers))
        for label, (training, layers) in rows.items()
        for when, share in _SHARES.items()
    }


def _maps_figure(
    results: Results,
    name: str,
    runs: Mapping[str, Training],
    maps: Mapping[tuple[str, str, int], Reading],
) -> Figure:
    """Maps of one image before or after training, or maps averaged over images."""
    title, wanted, single = _MAPS[name]
    panels = tuple(
        _maps_panel(results.of(runs[model], reading)[0], f"{model}, {when} training")
        for (model, when, count), reading in maps.items()
        if wanted in ("", when) and (count == 1) == single
    )
    text = "Each map is one head; rows are layers, the query is the centre patch, log scale."
    return Figure(name=name, title=title, reading=text, panels=panels)


def _maps_panel(record: Record, title: str) -> Maps:
    """Attention maps, one row per layer and one column per head."""
    layers = [name for name in record.values["layers"] if f"mixed/{name}" in record.arrays]
    each = [record.arrays[f"mixed/{name}"] for name in layers]  # (H, h, w) each
    heads = max(len(maps) for maps in each)
    grid = np.full((len(each), heads, *each[0].shape[1:]), np.nan, dtype=np.float32)
    for row, maps in zip(grid, each, strict=True):
        row[: len(maps)] = maps
    columns = tuple(f"head {i + 1}" for i in range(heads))
    return Maps(title=title, rows=tuple(layers), columns=columns, values=grid)


# Tables 5 and 6: top-1 of the masked network. "Affect performance similarly" (appendix F), of 1.2
# points in Table 6, is taken as 5 points.
_TABLE_5 = {"DeiT-Ti": (38.3, 72.2), "ConViT-Ti": (67.1, 73.1)}  # masked, whole
_TABLE_6 = {  # the first 3, 5 and 10 layers
    "content masked": ("content_masked", (62.3, 35.0, 1.3)),
    "position masked": ("position_masked", (63.5, 53.1, 46.8)),
}
_MASKED = """
[ConViT Table 5]
the plain ViT loses more without position embeddings than ConViT
    positions: {vit} at whole - {vit} at masked > {convit} at whole - {convit} at masked
[ConViT Table 6]
with all GPSA layers masked, losing content costs more than losing position
    gates: {last} at position masked > {last} at content masked
in the first layers, masking content costs within 5 points of what masking position costs, or less
    gates: {early} at content masked - {early} at position masked > -5
in the first layers, masking position costs within 5 points of what masking content costs, or less
    gates: {early} at position masked - {early} at content masked > -5
masking position costs accuracy
    gates: {last} at whole > {last} at position masked
"""


@study(
    "What does a trained ConViT lean on?",
    claim="content matters more than position late; embeddings matter little to ConViT",
    covers=("ConViT Table 5", "ConViT Table 6"),
    data=IMAGENET,
)
def masking(scale: Scale) -> Plan:
    """Tables 5 and 6: position embeddings off, content or position of the first k layers off.

    At a desk the networks of `gating`, on a tenth of the images.
    """
    count = scale.pick(paper=50_000, laptop=scale.images)
    depths = scale.pick(paper=(3, 5, 10), laptop=(1, 2, 3))
    roles = scale.pick(paper=("DeiT-Ti", "ConViT-Ti"), laptop=("DeiT-S", "ConViT-S"))
    fraction = scale.small if scale.name == "desk" else 1.0
    trained = (scale.affordable(role, fraction=fraction) for role in roles)
    runs = dict(zip(_TABLE_5, trained, strict=True))
    vit, convit = runs.values()
    reading = Reading(name="masking", options={"num_images": count})
    whole = _masked(reading, "unmasked")
    positions: dict[Position, CellSpec] = {}
    for role, run in runs.items():
        off, on = _TABLE_5[role]
        positions[run.model, "masked"] = CellSpec(run, _masked(reading, "no_positions"), off)
        positions[run.model, "whole"] = CellSpec(run, whole, on)
    gates: dict[Position, CellSpec] = {}
    for i, k in enumerate(map(str, depths)):
        for column, (name, published) in _TABLE_6.items():
            gates[k, column] = CellSpec(convit, _masked(reading, name, k), published[i])
        gates[k, "whole"] = CellSpec(convit, whole, _TABLE_5["ConViT-Ti"][1])
    return Plan(
        tables=[
            TableSpec(
                "positions",
                "Position embeddings off at test time (Table 5)",
                positions,
                paper_rows={run.model: role for role, run in runs.items()},
                num_test=count,
            ),
            TableSpec(
                "gates",
                "Gates forced to 1 or 0 in the first layers (Table 6)",
                gates,
                corner="layers masked",
                paper_rows=dict(zip(map(str, depths), ("3", "5", "10"), strict=True)),
                num_test=count,
            ),
        ],
        claims=read_claims(
            _MASKED, vit=vit.model, convit=convit.model, early=depths[0], last=depths[-1]
        ),
    )


def _masked(reading: Reading, *path: str) -> Measurement:
    """Top-1 under one kind of masking, by its place in the record."""

    def key(record: Record) -> float | None:
        value: Any = record.values
        for part in path:
            value = value[part]
        return value

    return Measurement(key, reading=reading, sample=per_image("/".join(("images", *path))))
