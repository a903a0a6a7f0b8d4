"""What does strong augmentation do to confidence and to the loss?

Park and Kim 2022, https://arxiv.org/abs/2202.06709, appendix F and Fig. F.1: strong augmentation
against shifted crops alone, on CIFAR-100. The strong one is the authors' at the paper's scale and
DeiT's below. A spectrum is taken on images augmented as in training.

Confidence is compared with accuracy by its mean, over all test images: the signed form of the
expected calibration error. On a laptop's 8 x 8 images the weak form varies nothing.
"""

from dataclasses import replace

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.papers.figures import lines
from vitascope.papers.plan import (
    Grid,
    Measurement,
    Plan,
    Reading,
    Results,
    Study,
    claims,
    drawing,
    per_image,
)
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, augmented
from vitascope.papers.vit.tables import APE, NEP, Runs, spectra_figure, spectrum
from vitascope.record import Record

_AUGMENTATION = """
[ViT Fig. F.1]
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


def augmentation(scale: Scale) -> Plan:
    """Fig. F.1: weak and strong augmentation, calibration and spectra."""
    both, kinds = ("ViT-Ti", "ResNet-50"), ("weak", "strong")
    names = scale.pick(paper=both, laptop=both, smoke=both[:1])
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
        claims=[claim for label in rows for claim in claims(_AUGMENTATION, label=label)],
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


STUDIES = (
    Study(
        name="augmentation",
        title="What does strong augmentation do?",
        claim="predictions become underconfident, eigenvalues smaller and more often negative",
        covers=("ViT Fig. F.1",),
        plan=augmentation,
        data=CIFAR,
    ),
)
