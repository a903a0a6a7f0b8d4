"""How locality is used and left: gates, nonlocality, attention maps, and what masking costs.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 3, 5, 6, 7, 15-17 (looking inside) and
Tables 5 and 6 (masking at test time).
"""

from typing import Any

import numpy as np
from scipy import stats

from vitascope.figure import Figure
from vitascope.record import Record
from vitascope.studies.papers.figures import (
    CURVES,
    LOOKS,
    each_head_figure,
    heads_figure,
    maps_panel,
)
from vitascope.studies.papers.plan import (
    Ask,
    Claim,
    Findings,
    Plan,
    Reading,
    Row,
    Sample,
    Sheet,
    Study,
)
from vitascope.studies.papers.scale import IMAGENET, Scale

__all__ = ["STUDIES"]


_ALIKE = 5.0  # points; "affect performance similarly" (appendix F), 1.2 apart in Table 6


def _mean(what: str, epoch: int, layers: slice = slice(None)) -> Any:
    """Mean over some layers and all heads at one of the kept epochs."""

    def key(record: Record) -> float | None:
        found = record.arrays.get(what)
        return None if found is None else float(np.nanmean(found[epoch, layers]))

    return key


def _early(what: str, layers: slice = slice(None)) -> Any:
    """The same at the kept epoch nearest to a tenth of the training."""

    def key(record: Record) -> float | None:
        epochs = record.values["epochs"]
        near = min(range(len(epochs)), key=lambda i: abs(epochs[i] - 0.1 * epochs[-1]))
        found: float | None = _mean(what, near, layers)(record)
        return found

    return key


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


def inside(scale: Scale) -> Plan:
    """Fig. 5 and 6 as numbers; Fig. 3, 7 and 15-17 as maps of one image and of many."""
    vit, convit = scale.training("DeiT-S"), scale.training("ConViT-S")
    gpsa = slice(0, scale.pick(paper=10, laptop=3))
    first, upper = slice(0, 1), slice(scale.pick(paper=6, laptop=2), None)
    names = (vit.model, convit.model)

    def row(label: str, training: Any, what: str, layers: slice) -> Row:
        keys = (_mean(what, 0, layers), _early(what, layers), _mean(what, -1, layers))
        return Row(
            label=label,
            cells=[Ask(training=training, reading=LOOKS, key=key, factor=1.0) for key in keys],
        )

    far = Sheet(
        name="nonlocality",
        title="Nonlocality before and after training (Fig. 5)",
        corner="layers",
        columns=["start", "early", "end"],
        unit="nonlocality, patches",
        digits=2,
        accuracy=False,
        rows=[
            row(f"{names[0]}, first", vit, "nonlocality", first),
            row(f"{names[0]}, upper half", vit, "nonlocality", upper),
            row(f"{names[0]}, all", vit, "nonlocality", slice(None)),
            row(f"{names[1]}, GPSA", convit, "nonlocality", gpsa),
            row(f"{names[1]}, all", convit, "nonlocality", slice(None)),
        ],
    )
    gate = Sheet(
        name="gates",
        title="Gates before and after training (Fig. 6)",
        corner="layers",
        columns=["start", "early", "end"],
        unit="gate",
        digits=3,
        accuracy=False,
        rows=[
            row("all GPSA layers", convit, "gates", slice(None)),
            row("first layer", convit, "gates", first),
            row("last GPSA layer", convit, "gates", slice(gpsa.stop - 1, gpsa.stop)),
        ],
    )
    depth = Sheet(
        name="depth",
        title="Rank correlation of gate and depth after training (Fig. 6)",
        corner="over",
        columns=["rho"],
        unit="Spearman's rho",
        digits=2,
        accuracy=False,
        rows=[
            Row(
                label="all heads",
                cells=[
                    Ask(
                        training=convit,
                        reading=LOOKS,
                        key=_depth_correlation,
                        factor=1.0,
                        sample=Sample(kind="points", of=_by_depth),
                    )
                ],
            )
        ],
    )

    def change(source: str, text: str, table: str, plus: Any, minus: Any) -> Claim:
        return Claim(source=source, text=text, table=table, cells={plus: 1, minus: -1})

    a, up, b, c, d = (r.label for r in far.rows)
    claims = [
        change(
            "ConViT Fig. 5",
            "the plain ViT's first layer becomes more local",
            "nonlocality",
            (a, "start"),
            (a, "end"),
        ),
        change(
            "ConViT Fig. 5",
            "the plain ViT as a whole becomes more local at first",
            "nonlocality",
            (b, "start"),
            (b, "early"),
        ),
        change(
            "ConViT Fig. 5",
            "the plain ViT's upper layers climb back later",
            "nonlocality",
            (up, "end"),
            (up, "early"),
        ),
        change(
            "ConViT Fig. 5",
            "the plain ViT's upper layers end less local than its first",
            "nonlocality",
            (up, "end"),
            (a, "end"),
        ),
        change(
            "ConViT Fig. 5", "GPSA layers escape locality", "nonlocality", (c, "end"), (c, "start")
        ),
        change(
            "ConViT Fig. 5",
            "ConViT ends more local than the plain ViT",
            "nonlocality",
            (b, "end"),
            (d, "end"),
        ),
        change(
            "ConViT Fig. 6",
            "gates fall in training: more attention goes to content",
            "gates",
            ("all GPSA layers", "start"),
            ("all GPSA layers", "end"),
        ),
        Claim(
            source="ConViT Fig. 6",
            table="depth",
            text="gates fall with depth: early layers keep more position than late ones",
            cells={("all heads", "rho"): -1},
        ),
    ]
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
            heads_figure(findings, runs, "nonlocality", "Nonlocality over training (Fig. 5)"),
            each_head_figure(
                findings,
                {convit.model: convit},
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

    also = [(t, r) for t in (vit, convit) for r in (LOOKS, CURVES)] + list(maps.values())
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
            return value  # type: ignore[no-any-return]

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
    claims = [
        Claim(
            source="ConViT Table 5",
            table="positions",
            text="the plain ViT loses more without position embeddings than ConViT",
            cells={
                (names[0], "whole"): 1,
                (names[0], "masked"): -1,
                (names[1], "whole"): -1,
                (names[1], "masked"): 1,
            },
        ),
        Claim(
            source="ConViT Table 6",
            table="gates",
            text="with all GPSA layers masked, losing content costs more than losing position",
            cells={(last, "position masked"): 1, (last, "content masked"): -1},
        ),
        Claim(
            source="ConViT Table 6",
            table="gates",
            text="in the first layers, masking content "
            f"costs within {_ALIKE:g} points of what masking position costs, or less",
            cells={(early, "content masked"): 1, (early, "position masked"): -1},
            margin=-_ALIKE,
        ),
        Claim(
            source="ConViT Table 6",
            table="gates",
            text="in the first layers, masking position "
            f"costs within {_ALIKE:g} points of what masking content costs, or less",
            cells={(early, "position masked"): 1, (early, "content masked"): -1},
            margin=-_ALIKE,
        ),
        Claim(
            source="ConViT Table 6",
            table="gates",
            text="masking position costs accuracy",
            cells={(last, "whole"): 1, (last, "position masked"): -1},
        ),
    ]
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
