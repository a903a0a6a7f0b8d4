"""How much locality is best, and whether it must be gated.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Fig. 8 and 12 left (locality strength and
number of GPSA layers, on the first 100 classes) and Fig. 9 (content and position summed before the
softmax, eq. 4). "Early" is the first measurement past a tenth of the training.
"""

from typing import Any

from vitascope.figure import Figure
from vitascope.record import Record
from vitascope.studies.papers.figures import CURVES, curves_figure, lines, over
from vitascope.studies.papers.plan import Ask, Claim, Findings, Plan, Row, Study, Table
from vitascope.studies.papers.scale import IMAGENET, Scale

__all__ = ["STUDIES"]


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
              text="the lead of GPSA layers is larger early in training",
              cells={(many, "early"): 1, (none, "early"): -1, (many, "end"): -1, (none, "end"): 1}),
        Claim(source="ConViT Fig. 8 left", table="strength",
              text="stronger locality raises the final accuracy",
              cells={(strong, "end"): 1, (weak, "end"): -1}),
    ]  # fmt: skip

    def figures(findings: Findings) -> list[Figure]:
        series = [over(list(layers), [findings.values(row.cells[i]) for row in number.rows], label)  # type: ignore[arg-type]
                  for i, label in enumerate(number.columns)]  # fmt: skip
        drawn = lines("Accuracy against GPSA layers", series, x="GPSA layers", y="top-1, %")
        alphas_drawn = lines(
            "Accuracy against locality strength",
            [over(list(alphas), [findings.values(r.cells[0]) for r in alpha.rows], "end")],  # type: ignore[arg-type]
            x="locality strength", y="top-1, %", x_log=True)  # fmt: skip
        text = "Early is a tenth of the training; each point is a network trained from scratch."
        return [
            Figure(name="locality", title="How much locality (Fig. 8)", reading=text,
                   panels=(drawn, alphas_drawn)),
            curves_figure(findings, {f"{n} GPSA layers": t for n, t in runs.items()},
                          "Learning with GPSA layers (Fig. 12 left)"),
        ]  # fmt: skip

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

    def figures(findings: Findings) -> list[Figure]:
        return [curves_figure(findings, runs, "Learning curves (Fig. 9)")]

    also = [(t, CURVES) for t in runs.values()]
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


STUDIES = (
    Study(name="locality-strength", title="How much locality is best?",
          claim="more GPSA layers and stronger locality raise accuracy, most early in training",
          covers=("ConViT Fig. 8", "ConViT Fig. 12 left"), plan=strength,
          data={**IMAGENET, "paper": "ImageNet-100: first 100 classes of ImageNet-1k"}),
    Study(name="gating", title="Is the gate needed?",
          claim="summing content and position before the softmax helps early and hurts in the end",
          covers=("ConViT Fig. 9",), plan=plain_psa, data=IMAGENET),
)  # fmt: skip
