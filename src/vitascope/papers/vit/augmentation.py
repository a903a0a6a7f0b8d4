"""What does strong augmentation do to confidence and to the loss?

Park and Kim 2022, https://arxiv.org/abs/2202.06709, appendix F and Fig. F.1: strong augmentation
against shifted crops alone, on CIFAR-100. The strong one is the authors' at the paper's scale and
DeiT's below. A spectrum is taken on images augmented as in training.

Confidence is compared with accuracy by its mean, over all test images: the signed form of the
expected calibration error. On a laptop's 8 x 8 images the weak form varies nothing.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitascope.figure import Figure, Series
from vitascope.papers.figures import lines
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
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, augmented
from vitascope.papers.vit.spectra import SPECTRA, spectra_figure, spectrum
from vitascope.record import Record


def gap(record: Record) -> float:
    """Mean confidence minus accuracy, as a fraction: positive when overconfident."""
    count, confidence, accuracy = (
        np.asarray(record.values[f"bin_{name}"]) for name in ("count", "confidence", "accuracy")
    )
    return float((count * (confidence - accuracy)).sum() / count.sum())


def augmentation(scale: Scale) -> Plan:
    """Fig. F.1: weak and strong augmentation, calibration and spectra."""
    names = scale.pick(
        paper=("ViT-Ti", "ResNet-50"), laptop=("ViT-Ti", "ResNet-50"), smoke=("ViT-Ti",)
    )
    kinds = ("weak", "strong")
    runs = {
        (NETWORKS[n].label(scale), kind): NETWORKS[n].training(
            scale, **augmented(scale, kind == "strong")
        )
        for n in names
        for kind in kinds
    }
    labels = list(dict.fromkeys(label for label, _ in runs))
    calibrated = Reading(name="calibration", options=scale.look())
    early = spectrum(scale)

    def table(name: str, title: str, unit: str, asked: Mapping[str, Any], **how: Any) -> Sheet:
        rows = {label: [runs[label, kind] for kind in kinds] for label in labels}
        how |= {"corner": "augmentation", "unit": unit, "accuracy": False}
        return Sheet.of_grid(name, title, kinds, rows, ask=asked, **how)

    overconfidence = Sample(kind="images", of=lambda r: r.arrays.get("images/overconfidence"))
    negative = {"reading": early, "key": "nep", "sample": SPECTRA["nep"]}
    positive = {"reading": early, "key": "ape", "sample": SPECTRA["ape"], "factor": 1.0}
    tables = [
        table(
            "gap",
            "Mean confidence above accuracy (Fig. F.1a)",
            "gap, %",
            {"reading": calibrated, "key": gap, "sample": overconfidence},
        ),
        table("nep", "Negative eigenvalues (Fig. F.1b)", "NEP, %", negative),
        table("ape", "Mean positive eigenvalue (Fig. F.1b)", "APE", positive, digits=2, log=True),
        table("top1", "Top-1", "top-1, %", {"reading": Reading()}),
    ]
    gaps, nep, ape, _ = tables
    claims = []
    for label in labels:
        claims += claimed(
            "ViT Fig. F.1",
            {
                f"{label} is overconfident with weak augmentation": gaps.sign(label, "weak", 1),
                f"{label} is underconfident with strong augmentation": gaps.sign(
                    label, "strong", -1
                ),
                f"strong augmentation makes {label}'s eigenvalues smaller": ape.above(
                    label, label, "weak", "strong"
                ),
                f"strong augmentation makes more {label} eigenvalues negative": nep.above(
                    label, label, "strong", "weak"
                ),
            },
        )

    def figures(findings: Findings) -> list[Figure]:
        read = {f"{label}, {kind}": t for (label, kind), t in runs.items()}
        return [
            _reliability(findings, read, calibrated),
            spectra_figure(findings, read, early, "Hessian spectra (Fig. F.1b)"),
        ]

    return Plan(tables=tables, claims=claims, figures=figures)


def _reliability(findings: Findings, runs: Mapping[str, Training], reading: Reading) -> Figure:
    """Accuracy against confidence, bins of all seeds together."""
    series = [Series(label="honest", x=[0, 100], y=[0, 100])]
    for label, training in runs.items():
        found = [record.values for record in findings.of(training, reading)]
        count = np.sum([v["bin_count"] for v in found], axis=0)
        sums = {
            name: np.sum([np.multiply(v["bin_count"], v[f"bin_{name}"]) for v in found], axis=0)
            for name in ("confidence", "accuracy")
        }
        x, y = ((100 * sums[name][count > 0] / count[count > 0]).tolist() for name in sums)
        series.append(Series(label=label, model=label, x=x, y=y))
    panel = lines("bins of confidence", series, x="confidence, %", y="accuracy, %")
    said = "Below the diagonal is overconfident, above it underconfident."
    title = "Reliability (Fig. F.1a)"
    return Figure(name="reliability", title=title, panels=(panel,), reading=said)


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
