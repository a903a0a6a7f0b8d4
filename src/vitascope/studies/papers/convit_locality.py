"""How locality is used and left: gates, nonlocality, maps, masks, strength and number of layers.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 3, 5, 6, 7, 15-17 (looking inside),
Tables 5 and 6 (masking at test time), Fig. 8 and 12 left (locality strength and number of GPSA
layers, on the first 100 classes), Fig. 9 (content and position summed before the softmax, eq. 4).
"""

from typing import Any

import numpy as np

from vitascope.record import Record
from vitascope.studies.papers.drawn import curves_figure, heads_figure, lines, maps_panel, over
from vitascope.studies.plan import Ask, Claim, Figure, Findings, Plan, Reading, Row, Study, Table
from vitascope.studies.scale import Scale

__all__ = ["STUDIES"]

CURVES, LOOKS = Reading(name="curves"), Reading(name="looks")
_DATA = {"paper": "ImageNet-1k (imagenet:PATH)", "laptop": "digits (embedded)"}


def _mean(what: str, epoch: int, layers: slice = slice(None)) -> Any:
    """Mean over some layers and all heads at one of the kept epochs."""

    def key(record: Record) -> float | None:
        found = record.arrays.get(what)
        return None if found is None else float(np.nanmean(found[epoch, layers]))

    return key


def inside(scale: Scale) -> Plan:
    """Fig. 5 and 6 as numbers; Fig. 3, 7 and 15-17 as maps of one image and of many."""
    vit, convit = scale.training("DeiT-S"), scale.training("ConViT-S")
    gpsa = slice(0, scale.pick(paper=10, laptop=3))
    first = slice(0, 1)
    names = (vit.model, convit.model)

    def row(label: str, training: Any, what: str, layers: slice) -> Row:
        return Row(label=label, cells=[
            Ask(training=training, reading=LOOKS, key=_mean(what, e, layers), factor=1.0)
            for e in (0, -1)])  # fmt: skip

    far = Table(
        name="nonlocality", title="Nonlocality before and after training (Fig. 5)",
        corner="layers", columns=["start", "end"], unit="nonlocality, patches", digits=2,
        accuracy=False,
        rows=[row(f"{names[0]}, first", vit, "nonlocality", first),
              row(f"{names[0]}, all", vit, "nonlocality", slice(None)),
              row(f"{names[1]}, GPSA", convit, "nonlocality", gpsa),
              row(f"{names[1]}, all", convit, "nonlocality", slice(None))])  # fmt: skip
    gate = Table(
        name="gates", title="Gates before and after training (Fig. 6)", corner="layers",
        columns=["start", "end"], unit="gate", digits=3, accuracy=False,
        rows=[row("all GPSA layers", convit, "gates", slice(None)),
              row("first layer", convit, "gates", first),
              row("last GPSA layer", convit, "gates", slice(gpsa.stop - 1, gpsa.stop))],
    )  # fmt: skip

    def change(source: str, text: str, table: str, plus: Any, minus: Any) -> Claim:
        return Claim(source=source, text=text, table=table, cells={plus: 1, minus: -1})

    a, b, c, d = (r.label for r in far.rows)
    claims = [
        change("ConViT Fig. 5", "the plain ViT's first layer becomes more local", "nonlocality",
               (a, "start"), (a, "end")),
        change("ConViT Fig. 5", "GPSA layers escape locality", "nonlocality",
               (c, "end"), (c, "start")),
        change("ConViT Fig. 5", "ConViT ends more local than the plain ViT", "nonlocality",
               (b, "end"), (d, "end")),
        change("ConViT Fig. 6", "gates fall: more attention goes to content", "gates",
               ("all GPSA layers", "start"), ("all GPSA layers", "end")),
        change("ConViT Fig. 6", "early layers keep more position than late ones", "gates",
               ("first layer", "end"), ("last GPSA layer", "end")),
    ]  # fmt: skip
    maps = {
        (model.model, when, count): (model, Reading(name="maps", options={
            "num_images": count, "at": at}))
        for model in (vit, convit)
        for when, at in (("before", 0.0), ("after", 1.0))
        for count in (1, scale.pick(paper=100, laptop=100, smoke=8))
    }  # fmt: skip

    def figures(findings: Findings) -> tuple[list[Figure], dict[str, Any]]:
        runs = {training.model: training for training in (vit, convit)}
        shown = [
            heads_figure(findings, runs, "nonlocality", "Nonlocality over training (Fig. 5)"),
            heads_figure(findings, {convit.model: convit}, "gates", "Gates over training (Fig. 6)"),
        ]
        arrays: dict[str, Any] = {}
        kinds = {"initial": "Maps before training (Fig. 3)",
                 "maps": "Maps of one image after training (Fig. 7, 16, 17)",
                 "averaged": "Maps averaged over images (Fig. 15)"}  # fmt: skip
        for kind, title in kinds.items():
            panels = []
            for (model, when, count), (training, reading) in maps.items():
                wanted = {
                    "initial": when == "before" and count == 1,
                    "maps": when == "after" and count == 1,
                    "averaged": count > 1,
                }[kind]
                if wanted:
                    key = f"{kind}/{model}/{when}"
                    record = findings.of(training, reading)[0]
                    panel, arrays[key] = maps_panel(record, key, f"{model}, {when} training")
                    panels.append(panel)
            text = (
                "Each map is one head; rows are layers, the query is the centre patch, log scale."
            )
            shown.append({"name": kind, "title": title, "reading": text, "panels": panels})
        return shown, arrays

    also = [(t, r) for t in (vit, convit) for r in (LOOKS, CURVES)] + list(maps.values())
    return Plan(tables=[far, gate], claims=claims, figures=figures, also=also)


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

        return Ask(training=training, reading=read, key=key, paper=paper)

    both = ((vit, "DeiT-Ti", 38.3, 72.2), (convit, "ConViT-Ti", 67.1, 73.1))
    five = Table(
        name="positions", title="Position embeddings off at test time (Table 5)", corner="network",
        columns=["masked", "whole"], num_test=count,
        rows=[Row(label=t.model, paper_label=role, cells=[
            ask(t, "no_positions", paper=off), ask(t, "unmasked", paper=on)])
            for t, role, off, on in both],
    )  # fmt: skip
    paper = {"content_masked": (62.3, 35.0, 1.3), "position_masked": (63.5, 53.1, 46.8)}
    six = Table(
        name="gates", title="Gates forced to 1 or 0 in the first layers (Table 6)",
        corner="layers masked", columns=["content masked", "position masked", "whole"],
        num_test=count,
        rows=[Row(label=str(k), paper_label=str((3, 5, 10)[i]), cells=[
            *(ask(convit, name, str(k), paper=paper[name][i]) for name in paper),
            ask(convit, "unmasked", paper=73.1)]) for i, k in enumerate(depth)])  # fmt: skip
    last, names = str(depth[-1]), (vit.model, convit.model)
    claims = [
        Claim(source="ConViT Table 5", table="positions",
              text="the plain ViT loses more without position embeddings than ConViT",
              cells={(names[0], "whole"): 1, (names[0], "masked"): -1,
                     (names[1], "whole"): -1, (names[1], "masked"): 1}),
        Claim(source="ConViT Table 6", table="gates",
              text="with all GPSA layers masked, losing content costs more than losing position",
              cells={(last, "position masked"): 1, (last, "content masked"): -1}),
        Claim(source="ConViT Table 6", table="gates", text="masking position costs accuracy",
              cells={(last, "whole"): 1, (last, "position masked"): -1}),
    ]  # fmt: skip
    return Plan(tables=[five, six], claims=claims)


def strength(scale: Scale) -> Plan:
    """Fig. 8 and 12 left: number of GPSA layers, and locality strength."""
    layers = scale.pick(paper=(0, 3, 6, 9), laptop=(0, 1, 2, 3), smoke=(0, 3))
    alphas = scale.pick(paper=(0.01, 0.1, 1.0), laptop=(0.01, 0.1, 1.0), smoke=(0.01, 1.0))
    hundred = {"subset.first_classes": 100} if scale.is_paper else {}
    fraction = scale.pick(paper=1.0, laptop=scale.small)

    def made(**args: Any) -> Any:
        args = {} if args == {"num_gpsa_blocks": layers[-1], "locality_strength": 1.0} else args
        if scale.is_paper and not args:
            args = {"num_gpsa_blocks": layers[-1]}
        return scale.training("ConViT-S+", fraction=fraction, changes=hundred, recipe="deit_plus",
                              **args)  # fmt: skip

    runs = {n: made(num_gpsa_blocks=n, locality_strength=1.0) for n in layers}
    by_alpha = {a: made(num_gpsa_blocks=layers[-1], locality_strength=a) for a in alphas}
    early = _early_top1
    number = Table(
        name="layers", title="Number of GPSA layers (Fig. 8 right, 12 left)", corner="GPSA layers",
        columns=["early", "end"],
        rows=[Row(label=str(n), cells=[Ask(training=t, reading=CURVES, key=early),
                                       Ask(training=t)]) for n, t in runs.items()])  # fmt: skip
    alpha = Table(
        name="strength",
        title="Locality strength (Fig. 8 left)",
        corner="locality strength",
        columns=["end"],
        rows=[Row(label=f"{a:g}", cells=[Ask(training=t)]) for a, t in by_alpha.items()],
    )
    none, many = str(layers[0]), str(layers[-1])
    weak, strong = f"{alphas[0]:g}", f"{alphas[-1]:g}"
    claims = [
        Claim(source="ConViT Fig. 8", table="layers", text="GPSA layers raise the final accuracy",
              cells={(many, "end"): 1, (none, "end"): -1}),
        Claim(source="ConViT Fig. 8 right", table="layers",
              text="their lead is larger early in training",
              cells={(many, "early"): 1, (none, "early"): -1, (many, "end"): -1, (none, "end"): 1}),
        Claim(source="ConViT Fig. 8 left", table="strength",
              text="stronger locality raises the final accuracy",
              cells={(strong, "end"): 1, (weak, "end"): -1}),
    ]  # fmt: skip

    def figures(findings: Findings) -> tuple[list[Figure], dict[str, Any]]:
        series = [over(list(layers), [findings.values(row.cells[i]) for row in number.rows], label)  # type: ignore[arg-type]
                  for i, label in enumerate(number.columns)]  # fmt: skip
        drawn = lines("Accuracy against GPSA layers", series, x="GPSA layers", y="top-1, %")
        alphas_drawn = lines(
            "Accuracy against locality strength",
            [over(list(alphas), [findings.values(r.cells[0]) for r in alpha.rows], "end")],  # type: ignore[arg-type]
            x="locality strength", y="top-1, %", x_log=True)  # fmt: skip
        text = "Early is a tenth of the training; each point is a network trained from scratch."
        return [
            {"name": "locality", "title": "How much locality (Fig. 8)", "reading": text,
             "panels": [drawn, alphas_drawn]},
            curves_figure(findings, {f"{n} GPSA layers": t for n, t in runs.items()},
                          "Learning with GPSA layers (Fig. 12 left)"),
        ], {}  # fmt: skip

    also = [(t, CURVES) for t in runs.values()]
    return Plan(tables=[number, alpha], claims=claims, figures=figures, also=also)


def _early_top1(record: Record) -> float | None:
    """Top-1 at the first measurement past a tenth of the training."""
    epochs, top1 = record.values["epoch"], record.values["top1"]
    return next((t for e, t in zip(epochs, top1, strict=True) if e >= 0.1 * epochs[-1]), None)


def plain_psa(scale: Scale) -> Plan:
    """Fig. 9: ConViT-B with PSA in place of GPSA against DeiT-B."""
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    roles = ("DeiT-B", "ConViT-B") if scale.is_paper else ("DeiT-S", "ConViT-S")
    vit, convit = (scale.training(role, fraction=fraction) for role in roles)
    psa = convit.but(model_args={"attention": "psa"})
    runs = {"plain ViT": vit, "PSA": psa, "GPSA": convit}
    table = Table(
        name="top1", title="Summed or gated position (Fig. 9)", corner="attention",
        columns=["early", "end"],
        rows=[Row(label=name, cells=[Ask(training=t, reading=CURVES, key=_early_top1),
                                     Ask(training=t)]) for name, t in runs.items()])  # fmt: skip
    claims = [
        Claim(source="ConViT Fig. 9", table="top1", text="PSA is ahead of the plain ViT early on",
              cells={("PSA", "early"): 1, ("plain ViT", "early"): -1}),
        Claim(source="ConViT Fig. 9", table="top1", text="in the end the plain ViT passes PSA",
              cells={("plain ViT", "end"): 1, ("PSA", "end"): -1}),
        Claim(source="ConViT App. A", table="top1", text="gates are better than the sum in the end",
              cells={("GPSA", "end"): 1, ("PSA", "end"): -1}),
    ]  # fmt: skip

    def figures(findings: Findings) -> tuple[list[Figure], dict[str, Any]]:
        return [curves_figure(findings, runs, "Learning curves (Fig. 9)")], {}

    also = [(t, CURVES) for t in runs.values()]
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


STUDIES = (
    Study(name="locality-in-training", title="Does locality come and go during training?",
          claim="plain attention becomes local early on; GPSA layers escape their locality",
          covers=("ConViT Fig. 3", "ConViT Fig. 5", "ConViT Fig. 6", "ConViT Fig. 7",
                  "ConViT Fig. 15", "ConViT Fig. 16", "ConViT Fig. 17"),
          plan=inside, data=_DATA),
    Study(name="masking", title="What does a trained ConViT lean on?",
          claim="content matters more than position late; embeddings matter little to ConViT",
          covers=("ConViT Table 5", "ConViT Table 6"), plan=masking, data=_DATA),
    Study(name="locality-strength", title="How much locality is best?",
          claim="more GPSA layers and stronger locality raise accuracy, most early in training",
          covers=("ConViT Fig. 8", "ConViT Fig. 12 left"), plan=strength,
          data={**_DATA, "paper": "ImageNet-100: first 100 classes of ImageNet-1k"}),
    Study(name="gating", title="Is the gate needed?",
          claim="summing content and position before the softmax helps early and hurts in the end",
          covers=("ConViT Fig. 9",), plan=plain_psa, data=_DATA),
)  # fmt: skip
