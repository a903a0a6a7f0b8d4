"""Does a ViT overfit small data? Training loss against test error.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 5 and C.1 (networks and shares of the
images), C.2 (epochs). The numbers beside ours are those of appendix C; the figures have more, which
the text does not give.

The training loss is the mean over the last epoch, on augmented images and mixed labels, with the
weights as they were at each step. On a laptop, small shares of the images take more epochs (as many
steps as all of them take); the paper keeps its 300 epochs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from vitascope.figure import Figure, Series
from vitascope.papers.figures import against_figure, lines
from vitascope.papers.plan import (
    HITS,
    Ask,
    Findings,
    Plan,
    Sample,
    Sheet,
    Study,
    Training,
    claimed,
)
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, augmented, trainings
from vitascope.record import Record

_PAPER = {"ResNet-18": (2.31, 22.0), "ViT-S": (2.17, 30.4), "PiT-Ti": (2.29, 24.1)}  # appendix C
_MORE = {  # of Fig. 5a at the paper's scale alone
    "Twins-S": ("twins_small_cifar", {}),
    "MLP-Mixer-Ti": ("mixer_tiny_cifar", {}),
    "ResNet-18": ("resnet_preact_18", {"stem": "cifar"}),
    "ResNeXt-50": ("resnext50_cifar", {}),
}


def error(record: Record) -> float:
    """Test error as a fraction."""
    return 1.0 - float(record.values["top1"])


def _wrong(record: Record) -> np.ndarray | None:
    right = HITS.of(record)
    return None if right is None else ~right


def _points(*records: Record) -> np.ndarray:
    """Training loss and test error of networks of one seed. (2, networks)"""
    return np.array([[r.values["train_nll"] for r in records], [error(r) for r in records]])


def rank(*records: Record) -> float | None:
    """Spearman's correlation of training loss and test error over networks of one seed."""
    points = _points(*records)
    return float(stats.spearmanr(*points).statistic) if np.ptp(points, 1).all() else None


def rank_table(where: str, runs: Sequence[Training]) -> Sheet:
    """The correlation as a table of one number."""
    first, *rest = runs
    points = Sample(kind="points", of=_points)
    return Sheet.of_runs(
        "rank",
        f"Rank correlation of training loss and test error{where}",
        {"all networks": first},
        {"rho": {"others": rest, "key": rank, "factor": 1, "sample": points}},
        corner="over",
        unit="Spearman's rho",
        digits=2,
        accuracy=False,
    )


def loss_and_error(
    name: str,
    where: str,
    corner: str,
    columns: Sequence[str],
    runs: Mapping[str, Sequence[Training]],
    paper: Mapping[str, tuple[float, float]],
) -> list[Sheet]:
    """Two tables of the same runs: training loss and test error; the paper's with one column."""
    return [
        Sheet.of_grid(
            f"{name}-nll",
            f"Training loss ({where})",
            columns,
            runs,
            ask={"key": "train_nll", "factor": 1.0},
            paper={label: [loss] for label, (loss, _) in paper.items()},
            corner=corner,
            unit="NLL, nats",
            digits=3,
            accuracy=False,
            log=True,
        ),
        Sheet.of_grid(
            f"{name}-error",
            f"Test error ({where})",
            columns,
            runs,
            ask={"key": error, "sample": Sample(kind="images", of=_wrong)},
            paper={label: [wrong] for label, (_, wrong) in paper.items()},
            corner=corner,
            unit="error, %",
        ),
    ]


def overfitting(scale: Scale) -> Plan:
    """Fig. 5, C.1, C.2: networks, shares of the images, epochs."""
    names = scale.pick(
        paper=("ViT-Ti", "ViT-S", "PiT-Ti", "Swin-Ti", "ResNet-50", "ResNet-101"),
        laptop=(
            "ViT-Ti",
            "ViT-Ti GAP",
            "ConViT-Ti",
            "PiT-Ti",
            "Swin-Ti",
            "ResNet-50",
            "AlterNet-50",
        ),
        smoke=("ViT-Ti", "ResNet-50"),
    )
    runs = trainings(scale, names)
    if scale.is_paper:
        runs |= {n: scale.training((spec, spec), recipe="cifar") for n, spec in _MORE.items()}
    known = {NETWORKS[n].label(scale) if n in NETWORKS else n: _PAPER[n] for n in _PAPER}
    vit, resnet = NETWORKS["ViT-Ti"].label(scale), NETWORKS["ResNet-50"].label(scale)
    shares = scale.pick(paper=(0.02, 0.06, 0.2, 0.5, 1.0), laptop=(scale.small, 1.0))
    kinds = scale.pick(paper=("strong",), laptop=("strong", "weak"), smoke=("strong",))
    by_share = {
        f"{kind} augmentation": [
            NETWORKS["ViT-Ti"].training(scale, fraction=f, **augmented(scale, kind == "strong"))
            for f in shares
        ]
        for kind in kinds
    }
    times = scale.pick(paper=(0.25, 0.5, 1.0, 2.0, 4.0), laptop=(0.25, 1.0, 2.0), smoke=(1.0, 2.0))
    usual = scale.epochs or 300
    epochs = [max(1, round(usual * factor)) for factor in times]

    def lasting(training: Training) -> list[Training]:
        return [training if n == usual else training.but(epochs=n) for n in epochs]

    by_epoch = {vit: lasting(runs[vit]), resnet: lasting(runs[resnet])}
    columns = [f"{100 * f:g} %" for f in shares], [str(n) for n in epochs]
    alone = {label: [training] for label, training in runs.items()}
    loss, wrong = loss_and_error("network", "Fig. 5a, C.1", "network", ["all images"], alone, known)
    share_loss, share_error = loss_and_error(
        "share", "ViT, Fig. 5b", "images", columns[0], by_share, {}
    )
    epoch_loss, epoch_error = loss_and_error(
        "epochs", "Fig. C.2", "epochs", columns[1], by_epoch, {}
    )
    order = rank_table(" (Fig. 5a, C.1)", list(runs.values()))
    few, full = columns[0][0], columns[0][-1]
    ends = columns[1][0], columns[1][-1]
    strong = next(iter(by_share))
    lower = "the lower the training loss, the lower the test error, over networks"
    higher = "with strong augmentation, the {} is higher on {}"
    claims = claimed(
        "ViT Fig. 5",
        {
            lower: order.sign("all networks", "rho", 1),
            "the ViT's training loss is above the ResNet's": loss.above(vit, resnet),
            "the ViT's test error is above the ResNet's": wrong.above(vit, resnet),
            higher.format("training loss", few): share_loss.above(strong, strong, few, full),
            higher.format("test error", few): share_error.above(strong, strong, few, full),
        },
    )
    claims += claimed(
        "ViT Fig. C.2",
        {
            "the ViT's training loss falls with more epochs": epoch_loss.above(vit, vit, *ends),
            "the ViT's test error falls with more epochs": epoch_error.above(vit, vit, *ends),
            **{
                f"after {n} epochs the ViT's error is above the ResNet's": epoch_error.above(
                    vit, resnet, n
                )
                for n in columns[1]
            },
        },
    )

    def figures(findings: Findings) -> list[Figure]:
        def pairs(steps: Sequence[float], trainings: Sequence[Training]) -> list[Any]:
            return [
                (step, Ask(training=t, key="train_nll", factor=1), Ask(training=t, key=error))
                for step, t in zip(steps, trainings, strict=True)
            ]

        labels = ("training loss, nats", "test error, %")
        return [
            _scatter(findings, runs),
            against_figure(
                findings,
                {k: pairs([100 * f for f in shares], t) for k, t in by_share.items()},
                x="images of each class, %",
                labels=labels,
                name="shares",
                title="A ViT on fewer images (Fig. 5b)",
                reading="Overfitting would be a training loss that falls as the error rises.",
            ),
            against_figure(
                findings,
                {k: pairs(epochs, t) for k, t in by_epoch.items()},
                x="epochs",
                labels=labels,
                name="epochs",
                title="More epochs (Fig. C.2)",
                reading="Overfitting would be an error that rises again on the right.",
            ),
        ]

    tables = [loss, wrong, share_loss, share_error, epoch_loss, epoch_error, order]
    return Plan(tables=tables, claims=claims, figures=figures)


def _scatter(findings: Findings, runs: Mapping[str, Training]) -> Figure:
    """Fig. 5a: one dot per seed, one series per network."""
    series = []
    for label, training in runs.items():
        x = findings.values(Ask(training=training, key="train_nll", factor=1))
        y = findings.values(Ask(training=training, key=error))
        series.append(Series(label=label, model=label, x=x, y=y))
    panel = lines(
        "one point per seed",
        series,
        x="training loss, nats",
        y="test error, %",
        x_log=True,
        joined=False,
    )
    reading = "Networks that learn their training images better lie further left."
    title = "Training loss and test error (Fig. 5a, C.1)"
    return Figure(name="networks", title=title, reading=reading, panels=(panel,))


STUDIES = (
    Study(
        name="overfitting",
        title="Do ViTs overfit small data?",
        claim="no: the lower the training loss, the lower the error; both rise on fewer images",
        covers=("ViT Fig. 5", "ViT Fig. C.1", "ViT Fig. C.2"),
        plan=overfitting,
        data={**CIFAR, "paper": "CIFAR-100 (cifar100:PATH); for Fig. C.1 left CIFAR-10"},
    ),
)
