"""Accuracy on corrupted images in studies: a table of networks.

Park and Kim 2022, https://arxiv.org/abs/2202.06709, section 2 and Fig. 12. They read CIFAR-100-C
and ImageNet-C as published; here the corruptions are made from the test images.
"""

from collections.abc import Mapping

from vitascope.studies.papers.plan import Ask, Reading, Row, Sample, Sheet, Training
from vitascope.studies.papers.scale import Scale

__all__ = ["corrupted"]


def corrupted(scale: Scale, runs: Mapping[str, Training], where: str, name: str = "top1") -> Sheet:
    """Top-1 on clean images, and its mean over 15 corruptions and their severities."""
    reading = Reading(name="corruption", options=scale.look())
    share = Sample(kind="images", of=lambda record: record.arrays.get("images/share"))
    rows = [
        Row(
            label=label,
            cells=[Ask(training=t), Ask(training=t, reading=reading, key="mean", sample=share)],
        )
        for label, t in runs.items()
    ]
    return Sheet(
        name=name,
        title=f"Accuracy and robustness ({where})",
        corner="network",
        columns=["clean", "corrupted"],
        rows=rows,
    )
