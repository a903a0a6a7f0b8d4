"""Do networks of several stages behave like several networks? CKA and lesions.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 10a and D.3 (similarity of feature maps),
Fig. 10b and D.4 (accuracy lost without one unit), on CIFAR-100. The text gives no numbers.

Block structure as a number, which is ours: the mean similarity of two units of one stage above that
of two units of different stages. A ViT has one stage: its units are cut into three equal parts,
and any network whose neighbours are alike is above 0, so the claim is to be above the ViT.
"""

import numpy as np

from vitascope.figure import Figure, Heat
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import (
    CellSpec,
    Measurement,
    Plan,
    Reading,
    Results,
    TableSpec,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import Scale
from vitascope.papers.vit.networks import CIFAR, looked_into
from vitascope.papers.vit.tables import Runs, lost_images
from vitascope.record import Record

_STRUCTURE = """
[{source}]
{label} has more block structure than the ViT
    blocks: {label} > {vit}
"""
_LESIONS = """
[Park & Kim Fig. 10]
in the ResNet, early stages matter more than late ones
    lost: {resnet}, convolution at first stage > {resnet}, convolution at last stage
in the ResNet, the first convolution of a stage matters more than the last
    lost: {resnet}, convolution at start > {resnet}, convolution at end
in Swin, attention matters more at the end of a stage
    lost: {swin}, attention at end > {swin}, attention at start
in Swin, MLPs matter more at the start of a stage
    lost: {swin}, mlp at start > {swin}, mlp at end
[Park & Kim Fig. D.4]
in the ViT, attention matters more at the end
    lost: {vit}, attention at end > {vit}, attention at start
"""


def block_structure(record: Record) -> float | None:
    """Mean CKA within stages minus between them, heads left out."""
    units = [i for i, kind in enumerate(record.values["row_kinds"]) if kind != "head"]
    stages = np.array(record.values["row_stages"])[units]
    if len(set(stages.tolist())) == 1:
        stages = np.arange(len(units)) * 3 // len(units)
    similarity = np.asarray(record.values["similarity"])[np.ix_(units, units)]
    same = stages[:, None] == stages[None, :]
    apart = ~np.eye(len(units), dtype=bool)
    if not (same & apart).any() or same.all():
        return None
    return float(similarity[same & apart].mean() - similarity[~same].mean())


def lost_at(reading: Reading, where: str, *kinds: str) -> Measurement:
    """Mean accuracy lost by dropping a unit of these kinds.

    ``where``: ``start`` or ``end`` (the first or last such unit of each stage that has two or
    more), ``first stage`` or ``last stage``.
    """

    def units(record: Record) -> list[int]:
        by_stage: dict[int, list[int]] = {}
        pairs = zip(record.values["kind"], record.values["stage"], strict=True)
        for index, (kind, stage) in enumerate(pairs):
            if kind in kinds:
                by_stage.setdefault(stage, []).append(index)
        if where.endswith("stage") and by_stage:
            return by_stage[(min if where.startswith("first") else max)(by_stage)]
        several = [indices for indices in by_stage.values() if len(indices) > 1]
        return [indices[0 if where == "start" else -1] for indices in several]

    def key(record: Record) -> float | None:
        lost = [record.values["lost"][i] for i in units(record)]
        return float(np.mean(lost)) if lost else None

    return Measurement(key, "lost, %", reading, sample=lost_images(units))


@study(
    "Does every stage behave like a network of its own?",
    claim="multi-stage networks have block structure; late attention and early convolutions "
    "of a stage matter most",
    covers=("Park & Kim Fig. 10", "Park & Kim Fig. D.3", "Park & Kim Fig. D.4"),
    data=CIFAR,
)
def stages(scale: Scale) -> Plan:
    """Plan Fig. 10, D.3 and D.4: similarity of stages, and lesions."""
    runs = looked_into(scale)
    vit, resnet, *staged = runs
    swin = staged[1:]  # a desk has AlterNet in place of PiT and Swin
    cka, lesion = scale.reading("cka"), scale.reading("lesion")
    kinds: dict[str, tuple[str, ...]] = {vit: ("attention", "mlp"), resnet: ("convolution",)}
    kinds |= dict.fromkeys(staged, ("attention", "mlp" if swin else "convolution"))
    lost = {
        (f"{label}, {kind}", where): CellSpec(runs[label], lost_at(lesion, where, kind))
        for label, several in kinds.items()
        for kind in several
        for where in ("start", "end", "first stage", "last stage")
    }
    difference = Measurement(block_structure, "CKA", cka, digits=3)
    title = "CKA within stages above CKA between them (Fig. 10a, D.3)"
    claims = []
    for label in (resnet, *staged):
        source = "Park & Kim Fig. D.3" if swin and label == staged[0] else "Park & Kim Fig. 10"
        claims += read_claims(_STRUCTURE, source=source, label=label, vit=vit)
    return Plan(
        tables=[
            TableSpec.of_runs("blocks", title, runs, {"difference": difference}),
            TableSpec(
                "lost", "Accuracy lost without one unit (Fig. 10b, D.4)", lost, corner="unit of"
            ),
        ],
        claims=claims + read_claims(_LESIONS, vit=vit, resnet=resnet, swin=swin),
        figures=[drawing(_similarity, runs, cka), drawing(_lesions, runs, lesion)],
    )


def _similarity(results: Results, runs: Runs, reading: Reading) -> Figure:
    """CKA of every two units, a matrix per network, mean over seeds."""
    panels = []
    for label, training in runs.items():
        records = results.of(training, reading)
        units = tuple(str(name) for name in records[0].values["rows"])
        mean = np.mean([r.values["similarity"] for r in records], axis=0)
        panels.append(Heat(title=label, rows=units, columns=units, values=mean, label="CKA"))
    return Figure(
        name="cka",
        title="Similarity of feature maps (Fig. 10a, D.3)",
        reading="Bright squares along the diagonal are stages that keep to themselves.",
        panels=tuple(panels),
    )


def _lesions(results: Results, runs: Runs, reading: Reading) -> Figure:
    """The accuracy lost without each unit, a line per kind of unit."""
    panels = []
    for label, training in runs.items():
        seeds = [record.values for record in results.of(training, reading)]
        series = []
        for kind in dict.fromkeys(seeds[0]["kind"]):
            at = [i for i, k in enumerate(seeds[0]["kind"]) if k == kind]
            values = [[100 * v["lost"][i] for v in seeds] for i in at]
            series.append(over([i + 1 for i in at], values, kind, model=False))
        panels.append(lines(label, series, x="unit", y="accuracy lost, %"))
    return Figure(
        name="lesion",
        title="Accuracy lost without one unit (Fig. 10b, D.4)",
        reading="A high point is a unit that the network cannot do without.",
        panels=tuple(panels),
    )
