"""Gates, nonlocality and attention maps of ConViT over training, and accuracy under masking.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 3, 5, 6, 7, 15-17 (looking inside) and
Tables 5 and 6 (masking at test time).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from vitascope.figure import Figure
from vitascope.papers.convit.keys import head_mean
from vitascope.papers.figures import (
    CURVES,
    each_head_figure,
    heads_figure,
    looks,
    maps_panel,
)
from vitascope.papers.plan import (
    Ask,
    Findings,
    Plan,
    Reading,
    Row,
    Sample,
    Sheet,
    Study,
    Training,
    claimed,
)
from vitascope.papers.scale import IMAGENET, Scale
from vitascope.record import Record

_ALIKE = 5.0  # points; "affect performance similarly" (appendix F), 1.2 apart in Table 6


def _by_depth(record: Record) -> np.ndarray | None:
    """Layer and gate of every head at the end of the training. (2, heads)"""
    if "gates" not in record.arrays:
        return None
    gates = record.arrays["gates"][-1]  # (L, H), not a number where a layer has fewer heads
    layers = np.broadcast_to(np.arange(len(gates))[:, None], gates.shape)
    there = np.isfinite(gates)
    return np.stack([layers[there], gates[there]])


def _depth_correlation(record: Record) -> float | None:
    """Spearman's correlation of gate and depth over all heads."""
    points = _by_depth(record)
    if points is None or not np.ptp(points, 1).all():
        return None
    return float(stats.spearmanr(*points).statistic)


def _deep(scale: Scale, model: str, **args: Any) -> Training:
    """At a desk: 8 blocks on an 8 x 8 grid, a quarter of the images seen, from 20,000."""
    spec = model, {"depth": 8, **args}
    return scale.few((spec, spec, spec), fraction=0.4, seen=1 / 4)


def inside(scale: Scale) -> Plan:
    """Fig. 5 and 6 as numbers; Fig. 3, 7 and 15-17 as maps of one image and of many."""
    vit, convit = scale.training("DeiT-S"), scale.training("ConViT-S")
    if scale.name == "desk":
        vit, convit = _deep(scale, "vit_micro"), _deep(scale, "convit_micro", num_gpsa_blocks=7)
    gpsa = slice(0, scale.pick(paper=10, laptop=3, desk=7))
    first, upper = slice(0, 1), slice(scale.pick(paper=6, laptop=2, desk=4), None)
    names = (vit.model, convit.model)

    shares = {"start": 0.0, "early": 0.1, "end": 1.0}

    def table(name: str, rows: Mapping[str, tuple[Training, slice]], **how: Any) -> Sheet:
        found = []
        for label, (training, layers) in rows.items():
            keys = [head_mean(name, share, layers) for share in shares.values()]
            asks = [
                Ask(training=training, reading=looks(scale), key=key, factor=1.0) for key in keys
            ]
            found.append(Row(label=label, cells=asks))
        head: dict[str, Any] = {"corner": "layers", "columns": list(shares), "accuracy": False}
        return Sheet(name=name, rows=found, **head, **how)

    every = slice(None)
    far = table(
        "nonlocality",
        {
            f"{names[0]}, first": (vit, first),
            f"{names[0]}, upper half": (vit, upper),
            f"{names[0]}, all": (vit, every),
            f"{names[1]}, GPSA": (convit, gpsa),
            f"{names[1]}, all": (convit, every),
        },
        title="Nonlocality before and after training (Fig. 5)",
        unit="nonlocality, patches",
        digits=2,
    )
    gate = table(
        "gates",
        {
            "all GPSA layers": (convit, every),
            "first layer": (convit, first),
            "last GPSA layer": (convit, slice(gpsa.stop - 1, gpsa.stop)),
        },
        title="Gates before and after training (Fig. 6)",
        unit="gate",
        digits=3,
    )
    sample = Sample(kind="points", of=_by_depth)
    depth = Sheet.of_runs(
        "depth",
        "Rank correlation of gate and depth after training (Fig. 6)",
        {"all heads": convit},
        {
            "rho": {
                "reading": looks(scale),
                "key": _depth_correlation,
                "factor": 1.0,
                "sample": sample,
            }
        },
        corner="over",
        unit="Spearman's rho",
        digits=2,
        accuracy=False,
    )
    a, up, b, c, d = (r.label for r in far.rows)
    claims = claimed(
        "ConViT Fig. 5",
        {
            "the plain ViT's first layer becomes more local": far.above(a, a, "start", "end"),
            "the plain ViT as a whole becomes more local at first": far.above(
                b, b, "start", "early"
            ),
            "the plain ViT's upper layers climb back later": far.above(up, up, "end", "early"),
            "the plain ViT's upper layers end less local than its first": far.above(up, a, "end"),
            "GPSA layers escape locality": far.above(c, c, "end", "start"),
            "ConViT ends more local than the plain ViT": far.above(b, d, "end"),
        },
    )
    layers = gate.rows[0].label
    lower = "gates fall with depth: early layers keep more position than late ones"
    claims += claimed(
        "ConViT Fig. 6",
        {
            "gates fall in training: more attention goes to content": gate.above(
                layers, layers, "start", "end"
            ),
            lower: depth.sign("all heads", "rho", -1),
        },
    )
    maps = {
        (model.model, when, count): (
            model,
            Reading(name="maps", options={"num_images": count, "at": at}),
        )
        for model in (vit, convit)
        for when, at in (("before", 0.0), ("after", 1.0))
        for count in (1, scale.pick(paper=100, laptop=100, smoke=8))
    }

    def figures(findings: Findings) -> list[Figure]:
        runs = {training.model: training for training in (vit, convit)}
        shown = [
            heads_figure(
                findings, runs, looks(scale), "nonlocality", "Nonlocality over training (Fig. 5)"
            ),
            each_head_figure(
                findings,
                {convit.model: convit},
                looks(scale),
                "gates",
                "Gates over training, head by head (Fig. 6)",
            ),
        ]
        kinds = {
            "initial": "Maps before training (Fig. 3)",
            "maps": "Maps of one image after training (Fig. 7, 16, 17)",
            "averaged": "Maps averaged over images (Fig. 15)",
        }
        for kind, title in kinds.items():
            panels = []
            for (model, when, count), (training, reading) in maps.items():
                wanted = {
                    "initial": when == "before" and count == 1,
                    "maps": when == "after" and count == 1,
                    "averaged": count > 1,
                }[kind]
                if wanted:
                    record = findings.of(training, reading)[0]
                    panels.append(maps_panel(record, f"{model}, {when} training"))
            text = (
                "Each map is one head; rows are layers, the query is the centre patch, log scale."
            )
            shown.append(Figure(name=kind, title=title, reading=text, panels=tuple(panels)))
        return shown

    also = [(t, r) for t in (vit, convit) for r in (looks(scale), CURVES)] + list(maps.values())
    return Plan(tables=[far, gate, depth], claims=claims, figures=figures, also=also)


def masking(scale: Scale) -> Plan:
    """Tables 5 and 6: position embeddings off, content or position of the first k layers off."""
    count = scale.pick(paper=50_000, laptop=scale.images)
    read = Reading(name="masking", options={"num_images": count})
    depth = scale.pick(paper=(3, 5, 10), laptop=(1, 2, 3))
    roles = scale.pick(paper=("DeiT-Ti", "ConViT-Ti"), laptop=("DeiT-S", "ConViT-S"))
    vit, convit = (scale.training(role) for role in roles)

    def ask(training: Any, *path: str, paper: float) -> Ask:
        def key(record: Record) -> float | None:
            value: Any = record.values
            for part in path:
                value = value[part]
            return value

        name = "/".join(("images", *path))
        right = Sample(kind="images", of=lambda record: record.arrays.get(name))
        return Ask(training=training, reading=read, key=key, paper=paper, sample=right)

    both = ((vit, "DeiT-Ti", 38.3, 72.2), (convit, "ConViT-Ti", 67.1, 73.1))
    five = Sheet(
        name="positions",
        title="Position embeddings off at test time (Table 5)",
        corner="network",
        columns=["masked", "whole"],
        num_test=count,
        rows=[
            Row(
                label=t.model,
                paper_label=role,
                cells=[ask(t, "no_positions", paper=off), ask(t, "unmasked", paper=on)],
            )
            for t, role, off, on in both
        ],
    )
    paper = {"content_masked": (62.3, 35.0, 1.3), "position_masked": (63.5, 53.1, 46.8)}
    six = Sheet(
        name="gates",
        title="Gates forced to 1 or 0 in the first layers (Table 6)",
        corner="layers masked",
        columns=["content masked", "position masked", "whole"],
        num_test=count,
        rows=[
            Row(
                label=str(k),
                paper_label=str((3, 5, 10)[i]),
                cells=[
                    *(ask(convit, name, str(k), paper=paper[name][i]) for name in paper),
                    ask(convit, "unmasked", paper=73.1),
                ],
            )
            for i, k in enumerate(depth)
        ],
    )
    early, last, names = str(depth[0]), str(depth[-1]), (vit.model, convit.model)
    whole, content, position = "whole", "content masked", "position masked"
    claims = claimed(
        "ConViT Table 5",
        {
            "the plain ViT loses more without position embeddings than ConViT": five.further(
                *((name, column) for name in names for column in five.columns[::-1])
            )
        },
    )
    alike = f"costs within {_ALIKE:g} points of what masking {{}} costs, or less"
    all_masked, *first, lost = claimed(
        "ConViT Table 6",
        {
            "with all GPSA layers masked, losing content costs more than losing position": (
                six.above(last, last, position, content)
            ),
            "in the first layers, masking content " + alike.format("position"): six.above(
                early, early, content, position
            ),
            "in the first layers, masking position " + alike.format("content"): six.above(
                early, early, position, content
            ),
            "masking position costs accuracy": six.above(last, last, whole, position),
        },
    )
    claims += [all_masked, *(replace(claim, margin=-_ALIKE) for claim in first), lost]
    return Plan(tables=[five, six], claims=claims)


STUDIES = (
    Study(
        name="locality-in-training",
        title="Does locality come and go during training?",
        claim="plain attention becomes local early on; GPSA layers escape their locality",
        covers=(
            "ConViT Fig. 3",
            "ConViT Fig. 5",
            "ConViT Fig. 6",
            "ConViT Fig. 7",
            "ConViT Fig. 15",
            "ConViT Fig. 16",
            "ConViT Fig. 17",
        ),
        plan=inside,
        data=IMAGENET,
        seeds={"desk": 3},
    ),
    Study(
        name="masking",
        title="What does a trained ConViT lean on?",
        claim="content matters more than position late; embeddings matter little to ConViT",
        covers=("ConViT Table 5", "ConViT Table 6"),
        plan=masking,
        data=IMAGENET,
    ),
)
