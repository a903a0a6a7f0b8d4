"""Sample efficiency: ConViT against DeiT on shares of the training images.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697, Table 2, Fig. 2 left and Fig. 11 right.
Top-1 on ImageNet with the deit recipe; the numbers beside ours are the paper's. Its tables have the
accuracy at the end, its Fig. 11 the best one during training: both are here.
"""

from typing import Any

from vitascope.figure import Figure
from vitascope.papers.figures import CURVES, curves_figure, shares_panel
from vitascope.papers.plan import Findings, Plan, Sheet, Study, claimed
from vitascope.papers.scale import IMAGENET, Scale, percent

_TABLE_2 = {  # share of the images -> top-1 of DeiT-S and ConViT-S, then top-5
    0.05: ((34.8, 47.8), (57.8, 70.7)),
    0.1: ((48.0, 59.6), (71.5, 80.3)),
    0.3: ((66.1, 73.7), (86.0, 90.7)),
    0.5: ((74.6, 78.2), (91.8, 93.8)),
    1.0: ((79.9, 81.4), (95.0, 95.8)),
}


def sample_efficiency(scale: Scale) -> Plan:
    """Table 2: DeiT-S and ConViT-S on a share of each class, epochs times 1/share."""
    fractions = scale.pick(paper=tuple(_TABLE_2), laptop=tuple(_TABLE_2), smoke=(0.1, 1.0))
    columns = [percent(f) for f in fractions]
    called = {scale.training(role).model: role for role in ("DeiT-S", "ConViT-S")}
    runs = {
        label: [scale.training(role, fraction=f) for f in fractions]
        for label, role in called.items()
    }

    def table(name: str, title: str, which: int | None, **how: Any) -> Sheet:
        known = {}
        if which is not None:
            known = {v: [_TABLE_2[f][which][i] for f in fractions] for i, v in enumerate(called)}
        title = f"{title} against the share of the images (Table 2)"
        how |= {"ask": {"key": name}, "paper": known, "called": called}
        return Sheet.of_grid(name, title, columns, runs, corner="images", **how)

    tables = [
        table("top1", "Top-1", 0),
        table("top5", "Top-5", 1, unit="top-5, %"),
        table("best_top1", "Best top-1 during training,", None),
    ]
    top1, rows = tables[0], tables[0].rows
    vit, convit = called
    least, most = columns[0], columns[-1]
    claims = claimed(
        "ConViT Table 2",
        {
            **{
                f"ConViT is ahead of the plain ViT on {share} of the images": top1.above(
                    convit, vit, share
                )
                for share in columns
            },
            "ConViT's lead grows as the images become fewer": top1.further(
                (convit, least), (vit, least), (convit, most), (vit, most)
            ),
        },
    )

    def figures(findings: Findings) -> list[Figure]:
        drawn = shares_panel(findings, "Top-1 by share of the images", rows, fractions)
        runs = {
            f"{name} {share}": cell.training
            for name, row in zip(("ViT", "ConViT"), rows, strict=True)
            for share, cell in zip(columns, row.cells, strict=True)
            if cell is not None and share in (least, most)
        }
        return [
            Figure(
                name="efficiency",
                title="Sample efficiency (Fig. 2 left)",
                panels=(drawn,),
                reading="The higher line makes more of the same images.",
            ),
            curves_figure(findings, runs, "Learning curves (Fig. 11 right)"),
        ]

    also = [(cell.training, CURVES) for row in rows for cell in row.cells if cell is not None]
    return Plan(tables=tables, claims=claims, figures=figures, also=also)


STUDIES = (
    Study(
        name="sample-efficiency",
        title="Few images: what is built-in locality worth?",
        claim="ConViT-S beats DeiT-S at every share of ImageNet, most with 5 % (+13 points)",
        covers=("ConViT Table 2", "ConViT Fig. 2 left", "ConViT Fig. 11 right"),
        plan=sample_efficiency,
        data=IMAGENET,
    ),
)
