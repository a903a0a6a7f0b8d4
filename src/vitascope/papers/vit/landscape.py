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

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import hypot
from typing import Any

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.papers.figures import lines, surfaces
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
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, trainings
from vitascope.papers.vit.spectra import LATE, eigenvalues, spectra_figure, spectrum
from vitascope.papers.vit.tables import Runs, training_loss, training_throughput
from vitascope.record import Record

PATH = Reading(name="trajectory")
THROUGHPUT = {"ResNet-50": 320, "ViT-Ti": 434, "PiT-Ti": 364, "Swin-Ti": 469}  # appendix A


# The published surfaces: NLL at the centre, its rise to the border, and the share of the 80 points
# of the border where it is not finite.
PUBLISHED: dict[str, tuple[float, float | None, float]] = {
    "ViT-Ti": (2.490, 2.67, 0.0),
    "ResNet-50": (2.194, None, 30.0),
}


def surface_of(scale: Scale, **options: Any) -> Reading:
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
    """The same of the NLL alone."""
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


def landscape(scale: Scale) -> Plan:
    """Fig. 1, 4, C.4: surfaces, paths, and spectra early and late; ViT also on few images."""
    four = ("ViT-Ti", "ResNet-50", "PiT-Ti", "Swin-Ti")
    names = scale.pick(paper=four, laptop=four, desk=four[:2], smoke=four[:2])
    few = scale.pick(paper=0.06, laptop=scale.small, desk=0.02)
    share = scale.small if scale.name == "desk" else 1.0  # a tenth stands for all, for 10 epochs
    runs = trainings(scale, names, small=True, fraction=share)
    vit, resnet, *staged = runs
    fewer = {
        f"{label}, {100 * few:g} %": NETWORKS[n].training(scale, small=True, fraction=few)
        for n, label in zip(names[:2], runs, strict=False)
    }
    vit_few, resnet_few = fewer
    early, late = spectrum(scale), spectrum(scale, LATE, half=True)
    grid = surface_of(scale)
    nep, ape = eigenvalues({**runs, **fewer}, {"early": early}, "Fig. 1c, 4, C.4c")
    _, later = eigenvalues(runs, {"early": early, "late": late}, "Fig. C.4c")
    late_ape = replace(later, name="late")
    surface = _surface_tables(scale, dict(zip(names, runs.items(), strict=True)), "Fig. 1a, C.4a")
    sharp = surface[0]
    path = Sheet.of_runs(
        "path",
        "Length of the path in polar coordinates; straight is 1 (Fig. 1b, C.4b)",
        runs,
        {"length": {"reading": PATH, "key": drawn_length, "factor": 1}},
        unit="length",
        digits=2,
        accuracy=False,
    )
    speed = training_throughput(runs, {name: THROUGHPUT[name] for name in names}, "appendix A")
    claims = claimed(
        "ViT Fig. 1",
        {
            **{
                f"the loss of the ViT rises less than the ResNet's, {column}": sharp.above(
                    resnet, vit, column
                )
                for column in sharp.columns
            },
            "the ViT goes to its optimum on a straighter path": path.above(resnet, vit),
        },
    )
    claims += claimed(
        "ViT Fig. 4",
        {
            "the ViT has more negative eigenvalues than the ResNet": nep.above(vit, resnet),
            "the ViT's positive eigenvalues are smaller than the ResNet's": ape.above(resnet, vit),
            "the ViT has fewer negative eigenvalues with more images": nep.above(vit_few, vit),
            "more images rid the ViT of more negative eigenvalues than the ResNet": nep.further(
                *((label, "early") for label in (vit_few, vit, resnet_few, resnet))
            ),
        },
    )
    if staged:
        pit, swin = staged
        claims += claimed(
            "ViT Fig. C.4",
            {
                "stages (PiT) leave fewer negative eigenvalues than the ViT has": nep.above(
                    vit, pit
                ),
                "windows (Swin) make the eigenvalues smaller than the ViT's": ape.above(vit, swin),
                **{  # neither has BatchNorm
                    f"the loss of PiT rises less than the ViT's, {column}": sharp.above(
                        vit, pit, column
                    )
                    for column in sharp.columns[:2]
                },
                "late in training Swin's eigenvalues are smaller than the ViT's": late_ape.above(
                    vit, swin, "late"
                ),
            },
        )

    def figures(findings: Findings) -> list[Figure]:
        return [
            surfaces(findings, runs, grid, "Loss surfaces (Fig. 1a, C.4a)"),
            _paths(findings, runs),
            spectra_figure(
                findings,
                {**runs, **fewer},
                early,
                "Hessian spectra early in training (Fig. 1c, 4, C.4c)",
            ),
            spectra_figure(
                findings, runs, late, "Hessian spectra late in training (Fig. C.4c)", "late"
            ),
        ]

    tables = [nep, ape, late_ape, *surface, path, speed]
    return Plan(tables=tables, claims=claims, figures=figures)


def _surface_tables(
    scale: Scale, runs: Mapping[str, tuple[str, Training]], where: str
) -> list[Sheet]:
    """Rises of the surface, and what else is known of the published ones.

    Args:
        scale: Of the study.
        runs: By the paper's name of the network: its label and training.
        where: The figure.
    """
    running, of_batch = surface_of(scale), surface_of(scale, batch_norm="batch")
    images = f"on {16 * _batches(scale):,} augmented training images"

    def ask(run: Training, key: Any, paper: float | None = None, **how: Any) -> Ask:
        return Ask(training=run, reading=how.pop("of", running), key=key, paper=paper, **how)

    def rises(run: Training, paper: float | None) -> list[Ask]:
        normed = run.model.startswith(("resnet", "alternet"))  # the others have no BatchNorm
        return [
            ask(run, rise, factor=1),
            ask(run, rise_of_nll, paper, factor=1),
            ask(run, rise_of_nll, factor=1, of=of_batch if normed else running),
        ]

    def sheet(which: int, cells: Any, columns: Sequence[str], **how: Any) -> Sheet:
        rows = []
        for name, (label, run) in runs.items():
            paper = PUBLISHED[name][which] if name in PUBLISHED else None
            called = None if paper is None else name
            rows.append(Row(label=label, paper_label=called, cells=cells(run, paper)))
        return Sheet(corner="network", columns=columns, rows=rows, accuracy=False, **how)

    tables = [
        sheet(
            1,
            rises,
            ["NLL + l2", "NLL", "NLL with batch statistics"],
            name="rise",
            title=f"Rise of the loss to the border of the surface, {images} ({where})",
            unit="nats",
            digits=2,
            log=True,
        )
    ]
    if PUBLISHED.keys().isdisjoint(runs):
        return tables
    return [
        *tables,
        sheet(
            0,
            lambda run, paper: [ask(run, centre, paper, factor=1)],
            ["NLL"],
            name="centre",
            title=f"NLL at the centre of the surface, {images} ({where})",
            unit="nats",
            digits=3,
        ),
        sheet(
            2,
            lambda run, paper: [ask(run, endless, paper)],
            ["points"],
            name="endless",
            title=f"Points of the border whose NLL is not finite ({where})",
            unit="of the points, %",
            digits=0,
        ),
    ]


def _paths(findings: Findings, runs: Runs) -> Figure:
    """Fig. 1b: the kept weights of the first seed in polar coordinates."""
    series = []
    for label, training in runs.items():
        found = findings.of(training, PATH)[0].values
        x = [r * float(np.cos(a)) for r, a in zip(found["radius"], found["angle"], strict=True)]
        y = [r * float(np.sin(a)) for r, a in zip(found["radius"], found["angle"], strict=True)]
        series.append(Series(label=label, model=label, x=x, y=y))
    panel = lines(
        "distance to the last weights, start = 1", series, x="r cos theta", y="r sin theta"
    )
    reading = "From (1, 0) at the start to (0, 0) at the end; a straight line has no height."
    title = "Paths of the weights (Fig. 1b, C.4b)"
    return Figure(name="paths", title=title, panels=(panel,), reading=reading)


def large(scale: Scale) -> Plan:
    """Fig. C.7: a wider ViT and a larger ResNet; on few images on a laptop."""
    four = ("ViT-Ti", "ViT-S", "ResNet-50", "ResNet-101")
    names = scale.pick(paper=four, laptop=four, smoke=four[:2])
    runs = trainings(scale, names, fraction=scale.pick(paper=1.0, laptop=scale.small))
    readings = {"early": spectrum(scale), "late": spectrum(scale, LATE, half=True)}
    grid = surface_of(scale)
    nep, ape = eigenvalues(runs, readings, "Fig. C.7c")
    loss = training_loss(runs, "Training loss at the end (Fig. C.7a)")
    (sharp, *_) = surface = _surface_tables(
        scale, dict(zip(names, runs.items(), strict=True)), "Fig. C.7b"
    )
    labels, source = list(runs), "ViT Fig. C.7"
    claims = []
    for small, big in zip(labels[::2], labels[1::2], strict=True):
        claims += claimed(
            source,
            {
                f"{big} reaches a lower training loss than {small}": loss.above(small, big),
                **{
                    f"the surface of {big} is sharper than that of {small}, {column}": sharp.above(
                        big, small, column
                    )
                    for column in sharp.columns[: 3 if "resnet" in big.lower() else 2]
                },
                f"early eigenvalues of {big} are smaller than of {small}": ape.above(small, big),
            },
        )
    small, big, *resnets = labels
    claims += claimed(
        source, {f"late, {big} has the flatter minimum": ape.above(small, big, "late")}
    )
    if resnets:
        small, big = resnets
        claims += claimed(
            source, {f"late, {big} has the sharper minimum": ape.above(big, small, "late")}
        )

    def figures(findings: Findings) -> list[Figure]:
        return [
            surfaces(findings, runs, grid, "Loss surfaces by size (Fig. C.7b)"),
            spectra_figure(findings, runs, readings, "Hessian spectra by size (Fig. C.7c)"),
        ]

    return Plan(tables=[loss, nep, ape, *surface], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="landscape",
        title="Is the loss of a ViT flatter, and is it convex?",
        claim="attention flattens the loss (smaller eigenvalues) but leaves it less convex",
        covers=("ViT Fig. 1", "ViT Fig. 4", "ViT Fig. C.4"),
        plan=landscape,
        data=CIFAR,
    ),
    Study(
        name="large-models",
        title="Is the loss of a larger network flatter?",
        claim="large networks reach lower losses and have smaller eigenvalues early in training",
        covers=("ViT Fig. C.7",),
        plan=large,
        data=CIFAR,
    ),
)
