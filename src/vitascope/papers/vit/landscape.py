"""Is the loss of a ViT flat, and is it convex? Surfaces, paths and Hessian spectra.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 1, 4 and C.4 (ViT, ResNet, PiT, Swin),
C.7 (larger ones), and the training throughputs of appendix A.

Two numbers are ours, for what the paper shows as pictures: how far the loss rises to the border of
the surface, and how long the path is as Fig. 1b draws it. The rise is of NLL + l2, which the paper
draws; of the NLL alone, since the l2 term is a bowl in any network; and of the NLL with BatchNorm's
statistics of each batch, since the running ones are wrong away from the trained weights. The text
has no numbers, but the authors published two surfaces of 21 x 21 points on CIFAR-100
(``resources/results`` of https://github.com/xxxnell/how-do-vits-work), whose NLL stands next to
ours. Their NLL is over all training images under mixup and CutMix, and their l2 term is weight
decay times the sum of the weights' norms, where ours is half the weight decay times the sum of
their squares, as the optimizer has it.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import hypot

import numpy as np

from vitascope.figure import Figure, Series, Surface
from vitascope.papers.figures import lines
from vitascope.papers.plan import (
    CellSpec,
    Measurement,
    Plan,
    Position,
    Reading,
    Results,
    TableSpec,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import Scale, percent
from vitascope.papers.vit.networks import CIFAR, NETWORKS, trainings
from vitascope.papers.vit.tables import (
    LATE,
    Runs,
    eigenvalues,
    spectra_figure,
    spectrum,
    training_loss,
    training_throughput,
)
from vitascope.record import Record

THROUGHPUT = {"ResNet-50": 320, "ViT-Ti": 434, "PiT-Ti": 364, "Swin-Ti": 469}  # appendix A


# The published surfaces: the rise of the NLL to the border, the NLL at the centre, and the share of
# the 80 points of the border where it is not finite.
PUBLISHED = {
    "rise": {"ViT-Ti": 2.67},
    "centre": {"ViT-Ti": 2.490, "ResNet-50": 2.194},
    "endless": {"ViT-Ti": 0.0, "ResNet-50": 30.0},
}


def surface_of(scale: Scale, **options: str) -> Reading:
    """The loss on a grid of points, on a few mini-batches of 16 images."""
    grid = {"points": scale.points, "num_batches": _batches(scale), **options}
    return Reading(name="landscape", options=grid)


def _batches(scale: Scale) -> int:
    return scale.pick(paper=100, laptop=4, smoke=1)


def _border(loss: np.ndarray) -> np.ndarray:
    inner = np.zeros(loss.shape, dtype=bool)
    inner[1:-1, 1:-1] = True
    return np.asarray(loss[~inner])


def _centre(loss: np.ndarray) -> float:
    return float(loss[loss.shape[0] // 2, loss.shape[1] // 2])


def _rise(loss: np.ndarray) -> float | None:
    value = float(_border(loss).mean()) - _centre(loss)
    return value if np.isfinite(value) else None


def rise(record: Record) -> float | None:
    """Mean NLL + l2 on the border of the surface above its centre; None where it is infinite."""
    return _rise(record.arrays["nll"] + record.arrays["l2"])


def rise_of_nll(record: Record) -> float | None:
    """Return the rise of the NLL alone."""
    return _rise(record.arrays["nll"])


def centre(record: Record) -> float:
    """NLL at the trained weights."""
    return _centre(record.arrays["nll"])


def endless(record: Record) -> float:
    """The share of the border's points whose loss is not finite."""
    return float((~np.isfinite(_border(record.arrays["nll"]))).mean())


def drawn_length(record: Record) -> float:
    """Length of the path as Fig. 1b draws it, from r = 1 to r = 0; 1 when it is straight."""
    points = [
        (r * np.cos(a), r * np.sin(a))
        for r, a in zip(record.values["radius"], record.values["angle"], strict=True)
    ]
    return float(sum(hypot(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(points)))


PATH = Measurement(drawn_length, "length", Reading(name="trajectory"), digits=2)
_LANDSCAPE = """
[Park & Kim Fig. 1]
the loss of the ViT rises less than the ResNet's, {column}
    rise: {resnet} > {vit} at {column}
the ViT goes to its optimum on a straighter path
    path: {resnet} > {vit}
[Park & Kim Fig. 4]
the ViT has more negative eigenvalues than the ResNet
    nep: {vit} > {resnet}
the ViT's positive eigenvalues are smaller than the ResNet's
    ape: {resnet} > {vit}
the ViT has fewer negative eigenvalues with more images
    nep: {vit}, {few} > {vit}
more images rid the ViT of more negative eigenvalues than the ResNet
    nep: {vit}, {few} - {vit} > {resnet}, {few} - {resnet}
"""
_STAGED = """
[Park & Kim Fig. C.4]
stages (PiT) leave fewer negative eigenvalues than the ViT has
    nep: {vit} > {pit}
windows (Swin) make the eigenvalues smaller than the ViT's
    ape: {vit} > {swin}
the loss of PiT rises less than the ViT's, {column}
    rise: {vit} > {pit} at {column}
late in training Swin's eigenvalues are smaller than the ViT's
    late: {vit} > {swin} at late
"""


@study(
    "Is the loss of a ViT flatter, and is it convex?",
    claim="attention flattens the loss (smaller eigenvalues) but leaves it less convex",
    covers=("Park & Kim Fig. 1", "Park & Kim Fig. 4", "Park & Kim Fig. C.4"),
    data=CIFAR,
)
def landscape(scale: Scale) -> Plan:
    """Fig. 1, 4, C.4: surfaces, paths, and spectra early and late; ViT also on few images."""
    four = ("ViT-Ti", "ResNet-50", "PiT-Ti", "Swin-Ti")
    names = scale.pick(paper=four, desk=four[:2], smoke=four[:2])
    few = scale.pick(paper=0.06, laptop=scale.small, desk=0.02)
    share = scale.small if scale.name == "desk" else 1.0  # a tenth stands for all, for 10 epochs
    runs = trainings(scale, names, small=True, fraction=share)
    vit, resnet, *staged = runs
    fewer = {
        f"{label}, {percent(few)}": NETWORKS[name].training(scale, small=True, fraction=few)
        for name, label in zip(four[:2], (vit, resnet), strict=True)
    }
    early, late = spectrum(scale), spectrum(scale, LATE, half=True)
    nep, ape = eigenvalues({**runs, **fewer}, {"early": early}, "Fig. 1c, 4, C.4c")
    _, later = eigenvalues(runs, {"early": early, "late": late}, "Fig. C.4c")
    surface = _surface_tables(scale, names, runs, "Fig. 1a, C.4a")
    straight = "Length of the path in polar coordinates; straight is 1 (Fig. 1b, C.4b)"
    columns = surface[0].columns
    claims = read_claims(_LANDSCAPE, vit=vit, resnet=resnet, few=percent(few), column=columns)
    if staged:
        pit, swin = staged  # neither ViT nor PiT has BatchNorm
        claims += read_claims(_STAGED, vit=vit, pit=pit, swin=swin, column=columns[:2])
    at_first = "Hessian spectra early in training (Fig. 1c, 4, C.4c)"
    at_last = "Hessian spectra late in training (Fig. C.4c)"
    return Plan(
        tables=[
            *(nep, ape, replace(later, name="late"), *surface),
            TableSpec.of_runs("path", straight, runs, {"length": PATH}),
            training_throughput(runs, {name: THROUGHPUT[name] for name in names}, "appendix A"),
        ],
        claims=claims,
        figures=[
            drawing(_surfaces, runs, surface_of(scale), "Loss surfaces (Fig. 1a, C.4a)"),
            drawing(_paths, runs),
            drawing(spectra_figure, {**runs, **fewer}, early, at_first),
            drawing(spectra_figure, runs, late, at_last, "late"),
        ],
    )


def _surface_tables(scale: Scale, names: Sequence[str], runs: Runs, where: str) -> list[TableSpec]:
    """Return tables of the loss: its rise, its level at the trained weights, infinite points.

    Args:
        scale: The scale of the study.
        names: The paper's names of the networks.
        runs: Their labels and trainings.
        where: The figure.
    """
    running = surface_of(scale)
    rising = Measurement(rise_of_nll, "nats", running, digits=2, log=True)
    rising_with_l2 = replace(rising, key=rise)
    rising_in_batches = replace(rising, reading=surface_of(scale, batch_norm="batch"))
    at_centre = Measurement(centre, "nats", running, digits=3)
    infinite = Measurement(endless, "of the points, %", running, digits=0)
    cells: dict[str, dict[Position, CellSpec]] = {"rise": {}, "centre": {}, "endless": {}}
    for network, (label, run) in zip(names, runs.items(), strict=True):
        paper = {table: PUBLISHED[table].get(network) for table in cells}
        has_batchnorm = run.model.startswith(("resnet", "alternet"))
        in_batches = rising_in_batches if has_batchnorm else rising
        cells["rise"][label, "NLL + l2"] = CellSpec(run, rising_with_l2)
        cells["rise"][label, "NLL"] = CellSpec(run, rising, paper["rise"])
        cells["rise"][label, "NLL with batch statistics"] = CellSpec(run, in_batches)
        cells["centre"][label, "NLL"] = CellSpec(run, at_centre, paper["centre"])
        cells["endless"][label, "points"] = CellSpec(run, infinite, paper["endless"])
    images = f"on {16 * _batches(scale):,} augmented training images"
    titles = {
        "rise": f"Rise of the loss to the border of the surface, {images} ({where})",
        "centre": f"NLL at the centre of the surface, {images} ({where})",
        "endless": f"Points of the border whose NLL is not finite ({where})",
    }
    networks = dict(zip(runs, names, strict=True))
    return [
        TableSpec(
            table,
            titles[table],
            cells[table],
            paper_rows={row: name for row, name in networks.items() if name in PUBLISHED[table]},
        )
        for table in cells
    ]


def _surfaces(results: Results, runs: Runs, reading: Reading, title: str) -> Figure:
    """NLL + l2 around the weights of the first seed, above the lowest point, one panel per run."""
    panels = []
    for label, training in runs.items():
        record = results.of(training, reading)[0]
        loss = record.arrays["nll"] + record.arrays["l2"]
        loss = np.where(np.isfinite(loss), loss, np.nan)
        above = (loss - np.nanmin(loss) + 1e-3).astype(np.float32)  # above 0, for logarithms
        x, y = (record.arrays[f"axis_{i}"].tolist() for i in (0, 1))
        panels.append(
            Surface(title=label, x=x, y=y, values=above, label="NLL + l2 above its least", log=True)
        )
    text = "The loss around the weights of each run; a slower rise is a flatter loss."
    return Figure(name="surfaces", title=title, reading=text, panels=tuple(panels))


def _paths(results: Results, runs: Runs) -> Figure:
    """Fig. 1b: the kept weights of the first seed in polar coordinates."""
    series = []
    for label, training in runs.items():
        path = results.of(training, PATH.reading)[0].values
        x = [r * float(np.cos(a)) for r, a in zip(path["radius"], path["angle"], strict=True)]
        y = [r * float(np.sin(a)) for r, a in zip(path["radius"], path["angle"], strict=True)]
        series.append(Series(label=label, model=label, x=x, y=y))
    panel = lines(
        "distance to the last weights, start = 1", series, x="r cos theta", y="r sin theta"
    )
    reading = "From (1, 0) at the start to (0, 0) at the end; a straight line has no height."
    title = "Paths of the weights (Fig. 1b, C.4b)"
    return Figure(name="paths", title=title, panels=(panel,), reading=reading)


_LARGE = """
[Park & Kim Fig. C.7]
{big} reaches a lower training loss than {small}
    nll: {small} > {big}
the surface of {big} is sharper than that of {small}, {column}
    rise: {big} > {small} at {column}
early eigenvalues of {big} are smaller than of {small}
    ape: {small} > {big} at early
"""
_LATE = """
[Park & Kim Fig. C.7]
late, {big_vit} has the flatter minimum
    ape: {vit} > {big_vit} at late
late, {big_resnet} has the sharper minimum
    ape: {big_resnet} > {resnet} at late
"""


@study(
    "Is the loss of a larger network flatter?",
    claim="large networks reach lower losses and have smaller eigenvalues early in training",
    covers=("Park & Kim Fig. C.7",),
    data=CIFAR,
)
def large_models(scale: Scale) -> Plan:
    """Fig. C.7: a wider ViT and a larger ResNet; on few images on a laptop."""
    four = ("ViT-Ti", "ViT-S", "ResNet-50", "ResNet-101")
    names = scale.pick(paper=four, smoke=four[:2])
    runs = trainings(scale, names, fraction=scale.pick(paper=1.0, laptop=scale.small))
    times = {"early": spectrum(scale), "late": spectrum(scale, LATE, half=True)}
    surface = _surface_tables(scale, names, runs, "Fig. C.7b")
    columns = surface[0].columns
    vit, big_vit, *resnets = runs
    claims = read_claims(_LARGE, small=vit, big=big_vit, column=columns[:2])  # no BatchNorm
    if resnets:
        claims += read_claims(_LARGE, small=resnets[0], big=resnets[1], column=columns)
    claims += read_claims(
        _LATE, vit=vit, big_vit=big_vit, resnet=resnets[:1], big_resnet=resnets[1:]
    )
    return Plan(
        tables=[
            training_loss(runs, "Training loss at the end (Fig. C.7a)"),
            *eigenvalues(runs, times, "Fig. C.7c"),
            *surface,
        ],
        claims=claims,
        figures=[
            drawing(_surfaces, runs, surface_of(scale), "Loss surfaces by size (Fig. C.7b)"),
            drawing(spectra_figure, runs, times, "Hessian spectra by size (Fig. C.7c)"),
        ],
    )
