"""What locality is worth, on few images and in models of every size.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Table 1 and Fig. 2 right (sizes), Table 2
and Fig. 2 left (few images), Fig. 11 (learning curves), Fig. 13 and 14 (inside, by size). Top-1 on
ImageNet with the deit recipe; the numbers beside ours are the paper's.
"""

from vitascope.figure import Figure
from vitascope.studies.papers.figures import CURVES, LOOKS, curves_figure, heads_figure, lines, over
from vitascope.studies.papers.plan import (
    Ask,
    Claim,
    Findings,
    Plan,
    Row,
    Study,
    Table,
    Training,
)
from vitascope.studies.papers.scale import IMAGENET, Scale

__all__ = ["STUDIES"]


_KINDS = ("ViT", "ConViT")  # in figures, whose labels are short

_TABLE_2 = {  # share of the images -> DeiT-S, ConViT-S
    0.05: (34.8, 47.8), 0.1: (48.0, 59.6), 0.3: (66.1, 73.7), 0.5: (74.6, 78.2), 1.0: (79.9, 81.4),
}  # fmt: skip


def _share(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def sample_efficiency(scale: Scale) -> Plan:
    """Table 2: DeiT-S and ConViT-S on a share of each class, epochs times 1/share."""
    fractions = scale.pick(paper=tuple(_TABLE_2), laptop=tuple(_TABLE_2), smoke=(0.1, 1.0))
    rows = [
        Row(label=_name(scale, role), paper_label=role, cells=[
            Ask(training=scale.training(role, fraction=f), paper=_TABLE_2[f][i])
            for f in fractions])
        for i, role in enumerate(("DeiT-S", "ConViT-S"))
    ]  # fmt: skip
    vit, convit = (row.label for row in rows)
    least, most = _share(fractions[0]), _share(fractions[-1])
    claims = [
        Claim(source="ConViT Table 2", table="top1",
              text=f"ConViT is ahead of the plain ViT on {_share(f)} of the images",
              cells={(convit, _share(f)): 1, (vit, _share(f)): -1})
        for f in fractions
    ]  # fmt: skip
    claims.append(Claim(
        source="ConViT Table 2", table="top1",
        text="ConViT's lead grows as the images become fewer",
        cells={(convit, least): 1, (vit, least): -1, (convit, most): -1, (vit, most): 1},
    ))  # fmt: skip

    def figures(findings: Findings) -> list[Figure]:
        series = [
            over([100 * f for f in fractions],
                 [findings.values(ask) for ask in row.cells if ask is not None], row.label)
            for row in rows
        ]  # fmt: skip
        drawn = lines("Top-1 by share of the images", series,
                      x="images of each class, %", y="top-1, %", x_log=True)  # fmt: skip
        runs = {f"{name} {share}": cell.training for name, row in zip(_KINDS, rows, strict=True)
                for share, cell in zip(map(_share, fractions), row.cells, strict=True)
                if cell is not None and share in (least, most)}  # fmt: skip
        return [
            Figure(name="efficiency", title="Sample efficiency (Fig. 2 left)", panels=(drawn,),
                   reading="The higher line makes more of the same images."),
            curves_figure(findings, runs, "Learning curves (Fig. 11)"),
        ]  # fmt: skip

    also = [(cell.training, CURVES) for row in rows for cell in row.cells if cell is not None]
    columns = [_share(f) for f in fractions]
    table = Table(name="top1", title="Top-1 against the share of the images (Table 2)",
                  corner="images", columns=columns, rows=rows)  # fmt: skip
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


_SIZES = {  # Table 1: paper's top-1
    "DeiT-Ti": 72.2, "ConViT-Ti": 73.1, "DeiT-S": 79.8, "ConViT-S": 81.3,
    "DeiT-B": 81.8, "ConViT-B": 82.4,
}  # fmt: skip
_PLUS = {"DeiT-Ti+": 75.9, "ConViT-Ti+": 76.7, "DeiT-S+": 79.0, "ConViT-S+": 82.2,
         "DeiT-B+": 77.5, "ConViT-B+": 82.5}  # fmt: skip


def sizes(scale: Scale) -> Plan:
    """Table 1: three widths, on few images on a laptop.

    A laptop's networks stand for the + models, whose lead grows with their size as Fig. 11 has it;
    the lead of the others does not (0.9, 1.5 and 0.6 points).
    """
    asked = scale.pick(paper={**_SIZES, **_PLUS}, laptop=_PLUS)
    kinds = ("DeiT", "ConViT")
    names = [role.removeprefix("DeiT-") for role in asked if role.startswith("DeiT-")]
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    rows = [
        Row(label=_name(scale, f"{kind}-S"), paper_label=kind, cells=[
            Ask(training=_sized(scale, f"{kind}-{size}", fraction), paper=asked[f"{kind}-{size}"])
            for size in names])
        for kind in kinds
    ]  # fmt: skip
    vit, convit = (row.label for row in rows)
    claims = [
        Claim(source="ConViT Table 1", table="top1",
              text=f"at size {size}, ConViT is ahead of the plain ViT",
              cells={(convit, size): 1, (vit, size): -1})
        for size in names
    ]  # fmt: skip
    small, large = names[0], names[-1]
    claims.append(Claim(
        source="ConViT Fig. 11", table="top1",
        text="ConViT's lead grows with the size of the model",
        cells={(convit, large): 1, (vit, large): -1, (convit, small): -1, (vit, small): 1},
    ))  # fmt: skip
    also = [(cell.training, reading) for row in rows for cell in row.cells if cell is not None
            for reading in (CURVES, LOOKS)]  # fmt: skip

    def figures(findings: Findings) -> list[Figure]:
        series = [
            over(list(range(1, len(names) + 1)),
                 [findings.values(ask) for ask in row.cells if ask is not None], row.label)
            for row in rows
        ]  # fmt: skip
        drawn = lines(", ".join(names) + " from left to right", series, x="size", y="top-1, %")
        ends = {f"{name} {size}": row.cells[i].training  # type: ignore[union-attr]
                for name, row in zip(_KINDS, rows, strict=True)
                for i, size in ((0, small), (len(names) - 1, large))}  # fmt: skip
        shown = [
            Figure(name="sizes", title="Parameter efficiency (Fig. 2 right)", panels=(drawn,),
                   reading="The higher line makes more of the same width."),
            curves_figure(findings, ends, "Learning curves by size (Fig. 11 middle)"),
            heads_figure(findings, ends, "nonlocality", "Nonlocality by size (Fig. 13)"),
            heads_figure(findings, {k: t for k, t in ends.items() if k.startswith(_KINDS[1])},
                         "gates", "Gates by size (Fig. 14)"),
        ]  # fmt: skip
        return shown

    table = Table(name="top1", title="Top-1 by size (Table 1)", corner="size", columns=names,
                  rows=rows)  # fmt: skip
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


def _sized(scale: Scale, role: str, fraction: float) -> Training:
    recipe = "deit_plus" if "+" in role else None
    return scale.training(role, fraction=fraction, recipe=recipe)


def _name(scale: Scale, role: str) -> str:
    return scale.training(role).model


STUDIES = (
    Study(name="sample-efficiency", title="Few images: what is built-in locality worth?",
          claim="ConViT-S beats DeiT-S at every share of ImageNet, most with 5 % (+13 points)",
          covers=("ConViT Table 2", "ConViT Fig. 2 left", "ConViT Fig. 11 right"),
          plan=sample_efficiency, data=IMAGENET),
    Study(name="sizes", title="Does locality help at every size?",
          claim="ConViT beats DeiT at every size, by more the larger they are",
          covers=("ConViT Table 1", "ConViT Fig. 2 right", "ConViT Fig. 11", "ConViT Fig. 13",
                  "ConViT Fig. 14"),
          plan=sizes, data=IMAGENET),
)  # fmt: skip
