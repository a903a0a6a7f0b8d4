"""Does a ViT overfit small data, and what does strong augmentation do to its confidence and loss?

Park and Kim 2022, https://arxiv.org/abs/2202.06709.

**Overfitting.** Training loss against test error: Fig. 5 and C.1 (networks and shares of the
images), C.2 (epochs). The published numbers are those of appendix C; the figures have more, which
the text does not give. The training loss is the mean over the last epoch, on augmented images and
mixed labels, with the weights as they were at each step. On a laptop, small shares of the images
take more epochs (as many steps as all of them take); the paper keeps its 300 epochs.

**Augmentation.** Appendix F and Fig. F.1: strong augmentation against shifted crops alone, on
CIFAR-100. The strong one is the authors' at the paper's scale and DeiT's below. A spectrum is taken
on images augmented as in training. Confidence is compared with accuracy by its mean, over all test
images: the signed form of the expected calibration error. On a laptop's 8 x 8 images the weak form
varies nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from vitascope.figure import Figure, Series
from vitascope.papers.figures import against_figure, lines
from vitascope.papers.plan import (
    CORRECT,
    TRAINING_LOSS,
    CellSpec,
    Drawing,
    Grid,
    Measurement,
    Plan,
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
from vitascope.papers.scale import Scale, percent
from vitascope.papers.vit.networks import CIFAR, NETWORKS, augmented, trainings
from vitascope.papers.vit.tables import APE, NEP, Runs, spectra_figure, spectrum
from vitascope.record import Record

_PAPER: dict[str, tuple[float | None, float]] = {  # appendix C; ResNet-50: 1.9 below PiT
    "ResNet-18": (2.31, 22.0),
    "ViT-S": (2.17, 30.4),
    "PiT-Ti": (2.29, 24.1),
    "ResNet-50": (None, 22.2),
}
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
    right = CORRECT.read(record)
    return None if right is None else ~right


ERROR = Measurement(error, "error, %", sample=Sample(kind="images", read=_wrong))


def _points(*records: Record) -> np.ndarray:
    """Training loss and test error of networks of one seed. (2, networks)"""
    return np.array([[r.values["train_nll"] for r in records], [error(r) for r in records]])


def rank(*records: Record) -> float | None:
    """Spearman's correlation of training loss and test error over networks of one seed."""
    points = _points(*records)
    return float(stats.spearmanr(*points).statistic) if np.ptp(points, 1).all() else None


RANK = Measurement(rank, "Spearman's rho", digits=2, sample=Sample(kind="points", read=_points))


def rank_table(where: str, runs: Sequence[Training]) -> TableSpec:
    """The correlation as a table of one number."""
    title = f"Rank correlation of training loss and test error{where}"
    first, *others = runs
    return TableSpec(
        "rank",
        title,
        {("all networks", "rho"): CellSpec(first, RANK, others=others)},
        corner="over",
    )


def loss_and_error(
    name: str, where: str, runs: Grid, paper: Mapping[str, tuple[float | None, float]] | None = None
) -> tuple[TableSpec, TableSpec]:
    """Two tables of the same runs: training loss and test error; the paper's with one column."""
    losses, errors = (
        {label: [numbers[i]] for label, numbers in (paper or {}).items()} for i in (0, 1)
    )
    return (
        runs.table(f"{name}-nll", f"Training loss ({where})", TRAINING_LOSS, losses),
        runs.table(f"{name}-error", f"Test error ({where})", ERROR, errors),
    )


_NAMES = {
    "paper": ("ViT-Ti", "ViT-S", "PiT-Ti", "Swin-Ti", "ResNet-50", "ResNet-101"),
    "laptop": (
        "ViT-Ti",
        "ViT-Ti GAP",
        "ConViT-Ti",
        "PiT-Ti",
        "Swin-Ti",
        "ResNet-50",
        "AlterNet-50",
    ),
    "smoke": ("ViT-Ti", "ResNet-50"),
}
_OVERFITTING = """
[Park & Kim Fig. 5]
the lower the training loss, the lower the test error, over networks
    rank: all networks > 0
the ViT's training loss is above the ResNet's
    network-nll: {vit} > {resnet}
the ViT's test error is above the ResNet's
    network-error: {vit} > {resnet}
several stages lower the ViT's test error
    network-error: {vit} > {pit}
[Park & Kim App. C]
several stages bring most of what the ResNet is ahead
    network-error: {vit} - {pit} > {pit} - {resnet}
at about the same training loss, a ViT's error is above a ResNet's
    network-error: {alike[0]} > {alike[1]} at all images
without data specificity (MLP-Mixer), the test error is above the ViT's
    network-error: {mixer} > {vit}
[Park & Kim Fig. 5]
with strong augmentation, the training loss is higher on {few}
    share-nll: strong augmentation at {few} > strong augmentation at {all}
with strong augmentation, the test error is higher on {few}
    share-error: strong augmentation at {few} > strong augmentation at {all}
[Park & Kim Fig. C.2]
the ViT's training loss falls with more epochs
    epochs-nll: {vit} at {short} > {vit} at {long}
the ViT's test error falls with more epochs
    epochs-error: {vit} at {short} > {vit} at {long}
after {n} epochs the ViT's error is above the ResNet's
    epochs-error: {vit} > {resnet} at {n}
"""


@study(
    "Do ViTs overfit small data?",
    claim="no: the lower the training loss, the lower the error; both rise on fewer images",
    covers=("Park & Kim Fig. 5", "Park & Kim Fig. C.1", "Park & Kim Fig. C.2"),
    data={**CIFAR, "paper": "CIFAR-100 (cifar100:PATH); for Fig. C.1 left CIFAR-10"},
)
def overfitting(scale: Scale) -> Plan:
    """Fig. 5, C.1, C.2: networks, shares of the images, epochs."""
    runs = trainings(scale, scale.pick(**_NAMES))
    if scale.is_paper:
        runs |= {n: scale.training((spec, spec), recipe="cifar") for n, spec in _MORE.items()}
    paper = {NETWORKS[n].label(scale) if n in NETWORKS else n: _PAPER[n] for n in _PAPER}
    vit, resnet = NETWORKS["ViT-Ti"].label(scale), NETWORKS["ResNet-50"].label(scale)
    networks = Grid(["all images"], {label: [run] for label, run in runs.items()})
    shares = scale.pick(paper=(0.02, 0.06, 0.2, 0.5, 1.0), laptop=(scale.small, 1.0))
    by_share = Grid([percent(f) for f in shares], _by_share(scale, shares), corner="images")
    times = scale.pick(paper=(0.25, 0.5, 1.0, 2.0, 4.0), laptop=(0.25, 1.0, 2.0), smoke=(1.0, 2.0))
    usual = scale.epochs or 300
    epochs = [max(1, round(usual * factor)) for factor in times]
    longer = {
        label: [runs[label] if n == usual else runs[label].but(epochs=n) for n in epochs]
        for label in (vit, resnet)
    }
    by_epochs = Grid([str(n) for n in epochs], longer, corner="epochs")
    few, *_, every = by_share.columns
    return Plan(
        tables=[
            *loss_and_error("network", "Fig. 5a, C.1", networks, paper),
            *loss_and_error("share", "ViT, Fig. 5b", by_share),
            *loss_and_error("epochs", "Fig. C.2", by_epochs),
            rank_table(" (Fig. 5a, C.1)", list(runs.values())),
        ],
        claims=read_claims(
            _OVERFITTING,
            vit=vit,
            resnet=resnet,
            pit=[label for label in runs if label == NETWORKS["PiT-Ti"].label(scale)],
            alike=[("ViT-S", "ResNet-18")] if scale.is_paper else [],
            mixer=[label for label in runs if label == "MLP-Mixer-Ti"],
            few=few,
            all=every,
            short=epochs[0],
            long=epochs[-1],
            n=epochs,
        ),
        figures=[
            drawing(_scatter, runs),
            _against("shares", by_share, [100 * f for f in shares]),
            _against("epochs", by_epochs, epochs),
        ],
    )


def _by_share(scale: Scale, shares: Sequence[float]) -> dict[str, list[Training]]:
    """ViTs on shares of the images; strong augmentation, and below the paper's scale weak."""
    kinds = scale.pick(paper=("strong",), laptop=("strong", "weak"), smoke=("strong",))
    vit = NETWORKS["ViT-Ti"]
    return {
        f"{kind} augmentation": [
            vit.training(scale, fraction=f, **augmented(scale, kind == "strong")) for f in shares
        ]
        for kind in kinds
    }


_AGAINST = {  # figure -> x, title, reading
    "shares": (
        "images of each class, %",
        "A ViT on fewer images (Fig. 5b)",
        "Overfitting would be a training loss that falls as the error rises.",
    ),
    "epochs": (
        "epochs",
        "More epochs (Fig. C.2)",
        "Overfitting would be an error that rises again on the right.",
    ),
}


def _against(name: str, runs: Grid, steps: Sequence[float]) -> Drawing:
    """Training loss and test error against what the columns vary."""
    points = {
        label: [
            (step, CellSpec(run, TRAINING_LOSS), CellSpec(run, ERROR))
            for step, run in zip(steps, row, strict=True)
            if run is not None
        ]
        for label, row in runs.rows.items()
    }
    x, title, reading = _AGAINST[name]
    labels = ("training loss, nats", "test error, %")
    options = {"x": x, "labels": labels, "title": title, "name": name, "reading": reading}
    return drawing(against_figure, points, **options)


def _scatter(results: Results, runs: Runs) -> Figure:
    """Fig. 5a: one dot per seed, one series per network."""
    series = []
    for label, training in runs.items():
        x = results.values(CellSpec(training, TRAINING_LOSS))
        y = results.values(CellSpec(training, ERROR))
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


_AUGMENTATION = """
[Park & Kim Fig. F.1]
{label} is overconfident with weak augmentation
    gap: {label} at weak > 0
{label} is underconfident with strong augmentation
    gap: {label} at strong < 0
strong augmentation makes {label}'s eigenvalues smaller
    ape: {label} at weak > {label} at strong
strong augmentation makes more {label} eigenvalues negative
    nep: {label} at strong > {label} at weak
"""


def gap(record: Record) -> float:
    """Mean confidence minus accuracy, as a fraction: positive when overconfident."""
    count, confidence, accuracy = (
        np.asarray(record.values[f"bin_{name}"]) for name in ("count", "confidence", "accuracy")
    )
    return float((count * (confidence - accuracy)).sum() / count.sum())


@study(
    "What does strong augmentation do?",
    claim="predictions become underconfident, eigenvalues smaller and more often negative",
    covers=("Park & Kim Fig. F.1",),
    data=CIFAR,
)
def augmentation(scale: Scale) -> Plan:
    """Fig. F.1: weak and strong augmentation, calibration and spectra."""
    both, kinds = ("ViT-Ti", "ResNet-50"), ("weak", "strong")
    names = scale.pick(paper=both, smoke=both[:1])
    rows = {
        NETWORKS[name].label(scale): [
            NETWORKS[name].training(scale, **augmented(scale, kind == "strong")) for kind in kinds
        ]
        for name in names
    }
    runs = Grid(kinds, rows, corner="augmentation")
    labelled = {
        f"{label}, {kind}": run
        for label, row in rows.items()
        for kind, run in zip(kinds, row, strict=True)
    }
    early, calibrated = spectrum(scale), scale.reading("calibration")
    confidence = Measurement(gap, "gap, %", calibrated, sample=per_image("images/overconfidence"))
    nep, ape = replace(NEP, reading=early), replace(APE, reading=early)
    return Plan(
        tables=[
            runs.table("gap", "Mean confidence above accuracy (Fig. F.1a)", confidence),
            runs.table("nep", "Negative eigenvalues (Fig. F.1b)", nep),
            runs.table("ape", "Mean positive eigenvalue (Fig. F.1b)", ape),
            runs.table("top1", "Top-1"),
        ],
        claims=[claim for label in rows for claim in read_claims(_AUGMENTATION, label=label)],
        figures=[
            drawing(_reliability, labelled, calibrated),
            drawing(spectra_figure, labelled, early, "Hessian spectra (Fig. F.1b)"),
        ],
    )


def _reliability(results: Results, runs: Runs, reading: Reading) -> Figure:
    """Accuracy against confidence, bins of all seeds together."""
    series = [Series(label="honest", x=[0, 100], y=[0, 100])]
    for label, training in runs.items():
        seeds = [record.values for record in results.of(training, reading)]
        count = np.sum([v["bin_count"] for v in seeds], axis=0)
        sums = {
            name: np.sum([np.multiply(v["bin_count"], v[f"bin_{name}"]) for v in seeds], axis=0)
            for name in ("confidence", "accuracy")
        }
        x, y = ((100 * sums[name][count > 0] / count[count > 0]).tolist() for name in sums)
        series.append(Series(label=label, model=label, x=x, y=y))
    panel = lines("bins of confidence", series, x="confidence, %", y="accuracy, %")
    text = "Below the diagonal is overconfident, above it underconfident."
    title = "Reliability (Fig. F.1a)"
    return Figure(name="reliability", title=title, panels=(panel,), reading=text)
