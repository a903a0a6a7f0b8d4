"""Context broadcasting: accuracy under occlusion and adversarial attack.

Hyeon-Woo et al. 2023, https://arxiv.org/abs/2210.08457, supplement, Table S2, on the distilled
networks of Table S1. FGSM's epsilon is not given there: its number stands beside our 8/255.
"""

from typing import Any

import numpy as np

from vitascope.papers.broadcasting.accuracy import BESIDE, KINDS, elsewhere, taught
from vitascope.papers.plan import Ask, Plan, Reading, Row, Sample, Sheet, Study, claimed
from vitascope.papers.scale import Scale
from vitascope.record import Record


def _under(what: str, value: float) -> dict[str, Any]:
    """Accuracy at one size of the box, or one epsilon: how to ask for it."""

    def place(record: Record) -> int | None:
        near = (i for i, v in enumerate(record.values[what]) if abs(v - value) < 1e-6)
        return next(near, None)

    def key(record: Record) -> float | None:
        at = place(record)
        return None if at is None else record.values["accuracy"][at]

    def right(record: Record) -> np.ndarray | None:
        at, every = place(record), record.arrays.get("images/correct")  # the clean images first
        return None if at is None or every is None else every[1 + at].astype(bool)

    return {"key": key, "sample": Sample(kind="images", of=right)}


def robustness(scale: Scale) -> Plan:
    """Table S2, on the distilled networks of Table S1."""
    count = scale.pick(paper=50_000, laptop=scale.images)
    look = {"num_images": count}
    hidden, attacked = Reading(name="occlusion", options=look), Reading(name="fgsm", options=look)
    Columns = dict[str, tuple[dict[str, Any], tuple[float | None, ...]]]
    asked: dict[str, tuple[str, int, Columns]] = {
        "occlusion": (
            "Centre hidden, half the side, black (Table S2)",
            count,
            {"occluded": ({"reading": hidden, **_under("sizes", 0.5)}, (74.6, 75.1, 75.1))},
        ),
        "fgsm": (
            "FGSM, epsilon in pixels of 0 to 1; the paper's is not given (Table S2)",
            count,
            {
                "1/255": ({"reading": attacked, **_under("epsilons", 1 / 255)}, (None,) * 3),
                "8/255": ({"reading": attacked, **_under("epsilons", 8 / 255)}, (11.8, 15.5, 13.0)),
            },
        ),
    }
    if scale.is_paper:
        asked["imagenet-a"] = (
            "ImageNet-A (Table S2)",
            7_500,
            {
                "top-1": ({"reading": elsewhere(scale, "imagenet-a")}, (21.5, 23.6, 22.6)),
            },
        )
    tables = [
        Sheet(
            name=name,
            title=title,
            corner="module",
            columns=list(columns),
            num_test=tested,
            rows=[
                Row(
                    label=label,
                    paper_label=label,
                    cells=[
                        Ask(training=taught(scale, "ViT-S", kind), paper=paper[i], **how)
                        for how, paper in columns.values()
                    ],
                )
                for i, (label, kind) in enumerate(KINDS.items())
            ],
        )
        for name, (title, tested, columns) in asked.items()
    ]
    words = {"occlusion": "with the centre hidden", "imagenet-a": "on ImageNet-A"}
    found = {
        f"{kind} is ahead {words.get(table.name, f'under FGSM {column}')}": table.above(
            kind, "without", column
        )
        for kind in ("CB", "CB_S")
        for table in tables
        for column in table.columns
    }
    fgsm = tables[1]
    found["CB withstands FGSM better than CB_S"] = fgsm.above("CB", "CB_S", "8/255")
    return Plan(tables=tables, claims=claimed("CB Table S2", found))


STUDIES = (
    Study(
        name="broadcasting-robustness",
        title="Does uniform attention make a ViT robust?",
        claim="CB raises accuracy with the centre hidden (+0.5), on ImageNet-A and under FGSM",
        covers=("CB Table S2",),
        plan=robustness,
        data=BESIDE,
    ),
)
