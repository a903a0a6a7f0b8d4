"""Gates, nonlocality and attention maps of ConViT over training, and accuracy under masking.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 3, 5, 6, 7, 15-17 (looking inside) and
Tables 5 and 6 (masking at test time).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy import stats

from vitascope.figure import Figure, Maps, Panel
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
_ORDER = """
[ConViT Fig. 5]
ConViT's second layer ends more local than its first
    order: first > second
ConViT's second layer ends more local than its last
    order: last > second
"""
_WINDOWS = "Centres and widths of the positional heads over training (eq. 5)"
_RED = (214, 39, 40)


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
    averaged = {
        (run, when): Reading(name="maps", options={"num_images": images, "at": at})
        for run in (vit.model, convit.model)
        for when, at in (("before", 0.0), ("after", 1.0))
    }
    single = {"num_images": 1, "at": 1.0}
    seeds = [{}, {"seed": 101}, {"seed": 102}][: scale.pick(paper=3, smoke=2)]  # of the images
    trained = [Reading(name="maps", options={**single, **seed}) for seed in seeds]
    untrained = Reading(name="maps", options={**single, "at": 0.0})
    runs = {vit.model: vit, convit.model: convit}
    far, gates = "Nonlocality over training (Fig. 5)", "Gates over training, head by head (Fig. 6)"
    tables = _inside_tables(scale, vit, convit)
    claims = read_claims(_INSIDE, vit=vit.model, convit=convit.model)
    if scale.is_paper:
        layers = {"first": slice(0, 1), "second": slice(1, 2), "last": slice(-1, None)}
        order: dict[Position, CellSpec | None] = {
            (name, "end"): CellSpec(convit, nonlocality(scale, layers=which))
            for name, which in layers.items()
        }
        tables.append(TableSpec("order", "ConViT's layers in the end (Fig. 5)", order))
        claims += read_claims(_ORDER)
    return Plan(
        tables=tables,
        claims=claims,
        figures=[
            drawing(heads_figure, runs, trace, "nonlocality", far),
            drawing(each_head_figure, {convit.model: convit}, trace, "gates", gates),
            drawing(windows_figure, {convit.model: convit}, trace, _WINDOWS),
            drawing(_initial_figure, vit, untrained),
            drawing(_trained_figure, runs, trained),
            drawing(_averaged_figure, runs, averaged),
        ],
        for_figures=[
            *((run, reading) for run in (vit, convit) for reading in (trace, CURVES)),
            *((runs[model], reading) for (model, _), reading in averaged.items()),
            *((run, reading) for run in (vit, convit) for reading in (*trained, untrained)),
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


def _initial_figure(results: Results, vit: Training, untrained: Reading) -> Figure:
    """Fig. 3: an image, an untrained attention layer, and heads that start as a convolution."""
    from vitascope.inspection.first_maps import initial_maps

    record = results.of(vit, untrained)[0]
    first = _maps_panel(record, "(b) untrained self-attention, first layer", layers=1)
    panels: list[Panel] = [*_photograph(record, "(a) "), first]
    side = first.values.shape[-1]
    if first.query is not None and first.values.shape[-2] == side:
        down, across = (round(at) for at in first.query)
        drawn_maps = initial_maps(side=side, query=(down, across))
        panels += [
            replace(
                first,
                title=f"({letter}) positional, α = {strength:g}",
                rows=("head",),
                columns=tuple(f"{index + 1}" for index in range(maps.shape[0])),
                values=maps[None],
            )
            for letter, strength, maps in zip(
                "cd", drawn_maps.strengths, drawn_maps.maps, strict=True
            )
        ]
    return Figure(
        name="initial",
        title="Attention before training (Fig. 3)",
        reading="Plain attention depends on the image; positional attention is alike for all.",
        how="Ringed: the query patch; each row on a log scale of its own.",
        panels=tuple(panels),
    )


def _trained_figure(
    results: Results, runs: Mapping[str, Training], readings: Sequence[Reading]
) -> Figure:
    """Fig. 7, 16 and 17: several images, each with the maps of every layer and head."""
    panels: list[Panel] = []
    for number, reading in enumerate(readings, start=1):
        records = {model: results.of(run, reading)[0] for model, run in runs.items()}
        panels += _photograph(next(iter(records.values())), f"image {number}: ")
        panels += [_maps_panel(r, f"{model}, image {number}") for model, r in records.items()]
    return Figure(
        name="maps",
        title="Maps of single images after training (Fig. 7, 16, 17)",
        reading="Each map is one head; rows are layers, log scale.",
        how="Ringed: the query patch, in the image a red box; numbers: the gate of a head.",
        panels=tuple(panels),
    )


def _averaged_figure(
    results: Results, runs: Mapping[str, Training], readings: Mapping[tuple[str, str], Reading]
) -> Figure:
    """Fig. 15: maps averaged over images, before and after training."""
    panels = tuple(
        _maps_panel(results.of(runs[model], reading)[0], f"{model}, {when} training")
        for (model, when), reading in readings.items()
    )
    text = "Each map is one head; rows are layers, the query is the centre patch, log scale."
    title = "Maps averaged over images (Fig. 15)"
    return Figure(name="averaged", title=title, reading=text, panels=panels)


def _maps_panel(record: Record, title: str, layers: int | None = None) -> Maps:
    """Attention maps of the first ``layers``, with gates: one row per layer, a column per head."""
    names = [name for name in record.values["layers"] if f"mixed/{name}" in record.arrays][:layers]
    each = [record.arrays[f"mixed/{name}"] for name in names]  # (H, h, w) each
    heads = max(len(maps) for maps in each)
    grid = np.full((len(each), heads, *each[0].shape[1:]), np.nan, dtype=np.float32)
    for row, maps in zip(grid, each, strict=True):
        row[: len(maps)] = maps
    columns = tuple(f"head {i + 1}" for i in range(heads))
    gates = [record.arrays.get(f"gate/{name}", np.array([])) for name in names]
    labels = tuple(tuple(f"{gate:.2f}" for gate in row) for row in gates)
    return Maps(
        title=title,
        rows=tuple(names),
        columns=columns,
        values=grid,
        query=_query(record),
        labels=labels if any(labels) else (),
    )


def _query(record: Record) -> tuple[float, float] | None:
    """Return the position of the query patch on the map: down, across."""
    at = next((at for at in record.values["query"] if at is not None), None)
    return None if at is None else (float(at[0]), float(at[1]))


def _photograph(record: Record, title: str) -> list[Panel]:
    """The image with a red box around the query patch; none where an earlier reading kept none."""
    query, image = _query(record), record.arrays.get("image")
    if query is None or image is None:
        return []
    maps = next(array for name, array in record.arrays.items() if name.startswith("mixed/"))
    grey = np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image
    return [
        Maps(
            title=f"{title}query patch in red",
            rows=(),
            columns=("",),
            values=np.zeros((0, 1, *maps.shape[1:])),
            photographs=boxed(grey, query, maps.shape[1:])[None] / 255,
        )
    ]


def boxed(image: np.ndarray, query: tuple[float, float], grid: Sequence[int]) -> np.ndarray:
    """An image (H, W, 3) with a red box around one cell of a grid, small ones enlarged.

    >>> boxed(np.zeros((64, 64, 3), np.uint8), (1, 0), (2, 2))[[32, 40, 20], [0, 10, 0]].tolist()
    [[214, 39, 40], [0, 0, 0], [0, 0, 0]]
    """
    times = -(-64 // min(image.shape[:2]))
    shown = image.repeat(times, axis=0).repeat(times, axis=1).copy()
    thick = max(1, min(shown.shape[:2]) // 64)
    cell = [shown.shape[axis] / grid[axis] for axis in (0, 1)]
    top, left = (round(query[axis] * cell[axis]) for axis in (0, 1))
    inside = shown[top : top + round(cell[0]), left : left + round(cell[1])]
    middle = inside[thick:-thick, thick:-thick].copy()
    inside[:] = _RED
    inside[thick:-thick, thick:-thick] = middle
    return shown


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
    "What does a trained ConViT depend on?",
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
