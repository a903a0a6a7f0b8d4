"""Do networks of several stages behave like several networks? CKA and lesions.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 10a and D.3 (similarity of feature maps),
Fig. 10b and D.4 (accuracy lost without one unit), on CIFAR-100. The text gives no numbers.

Block structure as a number, which is ours: the mean similarity of two units of one stage above that
of two units of different stages. A ViT has one stage: its units are cut into three equal parts,
and any network whose neighbours are alike is above 0, so the claim is to be above the ViT.
"""

from typing import Any

import numpy as np

from vitascope.figure import Figure, Heat
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import (
    Ask,
    Contrast,
    Findings,
    Plan,
    Reading,
    Row,
    Sheet,
    Study,
    claimed,
)
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, looked_into
from vitascope.papers.vit.tables import lost_images
from vitascope.record import Record


def block_structure(record: Record) -> float | None:
    """Mean CKA within stages minus between them, heads left out."""
    kept = [i for i, kind in enumerate(record.values["row_kinds"]) if kind != "head"]
    stages = np.array(record.values["row_stages"])[kept]
    if len(set(stages.tolist())) == 1:
        stages = np.arange(len(kept)) * 3 // len(kept)
    similarity = np.asarray(record.values["similarity"])[np.ix_(kept, kept)]
    same = stages[:, None] == stages[None, :]
    apart = ~np.eye(len(kept), dtype=bool)
    if not (same & apart).any() or same.all():
        return None
    return float(similarity[same & apart].mean() - similarity[~same].mean())


def lost_at(where: str, *kinds: str) -> dict[str, Any]:
    """Mean accuracy lost by dropping a unit of these kinds: how to ask for it.

    ``where``: ``start`` or ``end`` (the first or last such unit of each stage that has two or
    more), ``first stage`` or ``last stage``.
    """

    def units(record: Record) -> list[int]:
        """Their places."""
        by_stage: dict[int, list[int]] = {}
        pairs = zip(record.values["kind"], record.values["stage"], strict=True)
        for place, (kind, stage) in enumerate(pairs):
            if kind in kinds:
                by_stage.setdefault(stage, []).append(place)
        if where.endswith("stage") and by_stage:
            return by_stage[(min if where.startswith("first") else max)(by_stage)]
        several = [places for places in by_stage.values() if len(places) > 1]
        return [places[0 if where == "start" else -1] for places in several]

    def key(record: Record) -> float | None:
        found = [record.values["lost"][i] for i in units(record)]
        return float(np.mean(found)) if found else None

    return {"key": key, "sample": lost_images(units)}


def stages(scale: Scale) -> Plan:
    """Fig. 10, D.3, D.4."""
    runs = looked_into(scale)
    vit, resnet, *staged = runs
    swin = staged[-1] if len(staged) > 1 else None  # a desk has AlterNet in place of PiT and Swin
    cka = Reading(name="cka", options=scale.look())
    lesion = Reading(name="lesion", options=scale.look())
    blocks = Sheet.of_runs(
        "blocks",
        "CKA within stages above CKA between them (Fig. 10a, D.3)",
        runs,
        {"difference": {"reading": cka, "key": block_structure, "factor": 1}},
        unit="CKA",
        digits=3,
        accuracy=False,
    )
    columns = ("start", "end", "first stage", "last stage")
    kinds: dict[str, tuple[str, ...]] = {vit: ("attention", "mlp"), resnet: ("convolution",)}
    kinds |= dict.fromkeys(staged, ("attention", "mlp" if swin else "convolution"))
    rows = [
        Row(
            label=f"{label}, {kind}",
            cells=[
                Ask(training=runs[label], reading=lesion, **lost_at(where, kind))
                for where in columns
            ],
        )
        for label, several in kinds.items()
        for kind in several
    ]
    lost = Sheet(
        name="lost",
        title="Accuracy lost without one unit (Fig. 10b, D.4)",
        corner="unit of",
        columns=list(columns),
        rows=rows,
        unit="lost, %",
        accuracy=False,
    )

    claims = []
    for label in (resnet, *staged):
        source = "ViT Fig. D.3" if swin and label == staged[0] else "ViT Fig. 10"
        text = f"{label} has more block structure than the ViT"
        claims += claimed(source, {text: blocks.above(label, vit)})

    def matters(row: str, where: str, elsewhere: str) -> Contrast:
        return lost.above(row, row, where, elsewhere)

    first = "in the ResNet, the first convolution of a stage matters more than the last"
    convolutions = f"{resnet}, convolution"
    found = {
        "in the ResNet, early stages matter more than late ones": matters(
            convolutions, "first stage", "last stage"
        ),
        first: matters(convolutions, "start", "end"),
    }
    if swin:
        found |= {
            "in Swin, attention matters more at the end of a stage": matters(
                f"{swin}, attention", "end", "start"
            ),
            "in Swin, MLPs matter more at the start of a stage": matters(
                f"{swin}, mlp", "start", "end"
            ),
        }
    late = {
        "in the ViT, attention matters more at the end": matters(
            f"{vit}, attention", "end", "start"
        )
    }
    claims += claimed("ViT Fig. 10", found) + claimed("ViT Fig. D.4", late)

    def figures(findings: Findings) -> list[Figure]:
        heats, panels = [], []
        for label, training in runs.items():
            records = findings.of(training, cka)
            units = tuple(str(name) for name in records[0].values["rows"])
            alike = np.mean([r.values["similarity"] for r in records], axis=0)
            heats.append(Heat(title=label, rows=units, columns=units, values=alike, label="CKA"))
            found = [record.values for record in findings.of(training, lesion)]
            series = []
            for kind in dict.fromkeys(found[0]["kind"]):
                at = [i for i, k in enumerate(found[0]["kind"]) if k == kind]
                values = [[100 * v["lost"][i] for v in found] for i in at]
                series.append(over([i + 1 for i in at], values, kind, model=False))
            panels.append(lines(label, series, x="unit", y="accuracy lost, %"))
        return [
            Figure(
                name="cka",
                title="Similarity of feature maps (Fig. 10a, D.3)",
                reading="Bright squares along the diagonal are stages that keep to themselves.",
                panels=tuple(heats),
            ),
            Figure(
                name="lesion",
                title="Accuracy lost without one unit (Fig. 10b, D.4)",
                reading="A high point is a unit that the network cannot do without.",
                panels=tuple(panels),
            ),
        ]

    return Plan(tables=[blocks, lost], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="stages",
        title="Does every stage behave like a network of its own?",
        claim="multi-stage networks have block structure; late attention and early convolutions "
        "of a stage matter most",
        covers=("ViT Fig. 10", "ViT Fig. D.3", "ViT Fig. D.4"),
        plan=stages,
        data=CIFAR,
    ),
)
