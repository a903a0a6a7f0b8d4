"""Context broadcasting: accuracy, losses and entropy of ViTs with and without it.

Hyeon-Woo et al. 2023, https://arxiv.org/abs/2210.08457, supplement: Table S1 (distilled ViTs), S4
(CIFAR-100), Fig. S1 (training curves) and the entropy of attention (section 2.4). CB adds the mean
token at the end of every MLP and has no parameters; CB_S has a scale for each channel. Table S2 is
in ``robustness``, Tables S3, S5 and S6 are in ``positions``.

Deviations: with and without are trained alike (no repeated augmentation for Ti and S), so that
nothing but the module differs; the paper's distilled ViTs without it are DeiT's published ones.
CIFAR-100's images are resized to 224, as ConViT's are; the supplement does not say.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.figure import Figure
from vitascope.papers.figures import CURVES, curves_figure, lines, over
from vitascope.papers.plan import (
    Findings,
    Plan,
    Reading,
    Sample,
    Sheet,
    Study,
    Training,
    claimed,
)
from vitascope.papers.scale import IMAGENET, ROLES, Role, Scale
from vitascope.record import Record

BESIDE = {**IMAGENET, "paper": "ImageNet-1k (imagenet:PATH), beside it imagenet-v2 and imagenet-a"}

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


def made(scale: Scale, role: str | Role, suffix: str = "", **how: Any) -> Training:
    """The network of a role with a module put in, on few images where the scale is not the paper's.

    >>> from vitascope.papers.scale import PAPER
    >>> made(PAPER, "DeiT-S", "cb:msa").model
    'deit_small+cb:msa'
    """
    how = {"fraction": scale.pick(paper=1.0, laptop=scale.small), "recipe": "broadcast", **how}
    found = scale.training(role, **how)
    return found.but(model=f"{found.model}+{suffix}") if suffix else found


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


def elsewhere(scale: Scale, name: str) -> Reading:
    """Another test set of ImageNet's classes, in a folder beside it; ReaL has the same images."""
    path = Path(scale.data.partition(":")[2])
    where = path / "val" if name == "imagenet-real" else path.parent / name
    return Reading(name="elsewhere", options={"data": f"{name}:{where}"})


def _entropy(record: Record) -> float:
    """Mean over the layers."""
    return fmean(record.values["nats"])


def _nll_per_image(record: Record) -> np.ndarray | None:
    """NLL of each image; None where one rounds to infinity."""
    probability = record.arrays.get("probability")
    if probability is None or not (probability > 0).all():
        return None
    return -np.log(probability.astype(float))


def _distilled(scale: Scale) -> list[Sheet]:
    """Table S1: a table per metric, for their noise differs."""
    sizes = scale.pick(paper=tuple(_DISTILLED), laptop=("ViT-S",))
    asked: dict[str, tuple[str, int | None, dict[str, Any]]] = {
        "top1": ("top-1", None, {}),
        "top5": ("top-5", None, {"key": "top5"}),
    }
    if scale.is_paper:
        asked["v2"] = ("top-1 on ImageNet-V2", 10_000, {"reading": elsewhere(scale, "imagenet-v2")})
        asked["real"] = (
            "top-1 on ImageNet-ReaL",
            46_837,
            {"reading": elsewhere(scale, "imagenet-real")},
        )
    return [
        Sheet.of_grid(
            name,
            f"Distilled from a CNN, {said} (Table S1)",
            [taught(scale, size).model for size in sizes],
            {label: [taught(scale, size, kind) for size in sizes] for label, kind in KINDS.items()},
            ask=how,
            paper={
                label: [_TABLE_S1[name][size][i] for size in sizes] for i, label in enumerate(KINDS)
            },
            called={label: label for label in KINDS},
            corner="module",
            unit="top-5, %" if name == "top5" else "top-1, %",
            num_test=count,
        )
        for name, (said, count, how) in asked.items()
    ]


def _pair(
    name: str,
    title: str,
    pair: Sequence[Training],
    column: str,
    unit: str = "top-1, %",
    **how: Any,
) -> Sheet:
    """One number of a network without and with CB."""
    accuracy = unit.endswith("%")
    return Sheet.of_runs(
        name,
        title,
        {run.model: run for run in pair},
        {column: {"factor": 100.0 if accuracy else 1.0, **how}},
        unit=unit,
        digits=1 if accuracy else 3,
        accuracy=accuracy,
    )


def broadcasting(scale: Scale) -> Plan:
    """Table S1, Fig. S1 and the entropy of attention; at a desk without the distilled ones."""
    distilled = [] if scale.name == "desk" else _distilled(scale)
    claims = claimed(
        "CB Table S1",
        {
            text.format(column): table.above(first, second, column)
            for table in distilled[:1]
            for column in table.columns
            for first, second, text in (
                ("CB", "without", "CB helps {}"),
                ("CB_S", "without", "CB_S helps {}"),
                ("CB_S", "CB", "CB_S is ahead of CB in {}"),
            )
        },
    )
    pair = [_plain(scale), _plain(scale, "cb")]
    before, after = (training.model for training in pair)
    read = Reading(name="entropy", options=scale.look())
    ends = "At the end of the curves (Fig. S1)"
    top1 = _pair("plain", ends, pair, "top-1")
    training = _pair("training-loss", ends, pair, "training NLL", "NLL, nats", key="train_nll")
    surprise = Sample(kind="images", of=_nll_per_image)
    test = _pair("test-loss", ends, pair, "test NLL", "NLL, nats", key="test_nll", sample=surprise)
    dense = _pair(
        "entropy",
        "Entropy of attention, mean of layers and heads (section 2.4)",
        pair,
        "entropy",
        "entropy, nats",
        reading=read,
        key=_entropy,
    )
    claims += claimed(
        "CB Fig. S1",
        {
            "CB raises the final top-1": top1.above(after, before),
            "CB lowers the training loss": training.above(before, after),
            "CB lowers the test loss": test.above(before, after),
        },
    )
    claims += claimed(
        "CB section 2.4", {"CB lowers the entropy of attention": dense.above(before, after)}
    )

    def figures(findings: Findings) -> list[Figure]:
        runs = {training.model: training for training in pair}
        series, means = [], []
        for name, training in runs.items():
            records = findings.of(training, read)
            layers = list(zip(*(r.values["nats"] for r in records), strict=True))
            series.append(over(list(range(1, len(layers) + 1)), layers, name))
            means.append(f"{fmean(map(_entropy, records)):.2f} nats in {name}")
        drawn = lines("Entropy by layer", series, x="layer", y="entropy, nats")
        return [
            curves_figure(findings, runs, "Training curves (Fig. S1)"),
            Figure(
                name="entropy",
                title="How dense attention is, layer by layer (section 2.4)",
                panels=(drawn,),
                reading=f"Means over layers: {', '.join(means)}.",
            ),
        ]

    tables = [*distilled, top1, training, test, dense]
    also = [(run, CURVES) for run in pair]
    return Plan(tables=tables, claims=claims, figures=figures, also=also)


def small_images(scale: Scale) -> Plan:
    """Table S4: a ViT from scratch on all small images."""
    runs = [made(scale, "DeiT-S", kind, fraction=1.0) for kind in ("", "cb")]
    if scale.is_paper:
        data = scale.data if ":" in scale.data else "cifar100"
        runs = [run.but(data=data, image_size=scale.image_size or 224) for run in runs]
    plain, broadcast = (run.model for run in runs)
    table = Sheet.of_grid(
        "top1",
        "From scratch on small images (Table S4)",
        ["top-1"],
        {run.model: [run] for run in runs},
        paper={plain: [74.73], broadcast: [75.43]},
        called={plain: "ViT-S", broadcast: "+ CB"},
        corner="network",
    )
    claims = {"CB raises the accuracy": table.above(broadcast, plain)}
    return Plan(tables=[table], claims=claimed("CB Table S4", claims))


STUDIES = (
    Study(
        name="broadcasting",
        title="Does uniform attention help a ViT?",
        claim="CB and CB_S raise accuracy, lower both losses and free attention to be sparse",
        covers=("CB Table S1", "CB Fig. S1"),
        plan=broadcasting,
        data=BESIDE,
        seeds={"desk": 20},  # what CB brings is small: paired seeds, many of them
    ),
    Study(
        name="broadcasting-small-images",
        title="Does uniform attention help on small images?",
        claim="CB raises ViT-S from scratch on CIFAR-100 by 0.7 points",
        covers=("CB Table S4",),
        plan=small_images,
        data={**IMAGENET, "paper": "CIFAR-100 (cifar100:PATH)"},
    ),
)
