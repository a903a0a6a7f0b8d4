"""Context broadcasting in other families of networks, and at other positions in a block.

Hyeon-Woo et al. 2023, https://arxiv.org/abs/2210.08457, supplement: Table S3 (networks with stages
or convolutions), S5 (the kinds in the MLP, the MSA or both), S6 (front, middle or end of the MLP).
CB_gate and CB_hybrid take the class token besides the mean.

Deviations: of Table S3 only PVT-S and Swin-Ti are legible in our copy, and the size of its PVTv2 is
not named; B1 is our choice. CB_hybrid in MLP and MSA failed in the paper; the cell stays empty.
"""

from vitascope.figure import Dots, DotSeries, Figure
from vitascope.papers.broadcasting.accuracy import made
from vitascope.papers.plan import Ask, Contrast, Findings, Plan, Row, Sheet, Study, claimed
from vitascope.papers.scale import IMAGENET, Role, Scale

# Table S3: role (the paper's, ours on small images), epochs, top-1 without and with. On images of
# 8 x 8 our Swin has two stages, patches of one pixel and windows of 4 x 4.
_TABLE_S3: dict[str, tuple[Role, int, float | None, float | None]] = {
    "PVT-S": ((("pvt_small", {}), ("pvt_micro", {})), 120, 76.7, 77.3),
    "LocalViT-Ti": ((("localvit_tiny", {}), ("localvit_micro", {})), 150, None, None),
    "PVTv2": ((("pvt_v2_b1", {}), ("pvt_micro", {})), 120, None, None),
    "Swin-Ti": (
        (
            ("swin_tiny_patch4_window7_224", {}),
            ("swin_tiny_cifar", {"embed_dim": 36, "depths": (2, 2), "num_heads": (2, 4)}),
        ),
        120,
        79.3,
        79.5,
    ),
}


def hierarchical(scale: Scale) -> Plan:
    """Table S3: networks with stages or convolutions; PVTv2 at the paper's scale alone."""
    runs, called = {}, {}
    for name, (role, epochs, *_) in _TABLE_S3.items():
        if name == "PVTv2" and not scale.is_paper:
            continue
        pair = [made(scale, role, kind) for kind in ("", "cb")]
        pair = [t.but(epochs=t.epochs or epochs) for t in pair] if scale.is_paper else pair
        label = pair[0].model + scale.pick(paper="", laptop=", small") * (name == "Swin-Ti")
        runs[label], called[label] = pair, name
    table = Sheet.of_grid(
        "top1",
        "In networks with stages or convolutions (Table S3)",
        ["without", "CB"],
        runs,
        paper={label: _TABLE_S3[name][2:] for label, name in called.items()},
        called=called,
        corner="network",
    )
    helped: dict[str, Contrast] = {
        f"CB helps {label}": table.above(label, label, "CB", "without") for label in runs
    }
    helped["CB helps on average"] = (
        table.name,
        {
            (label, column): sign / len(runs)
            for label in runs
            for column, sign in (("CB", 1), ("without", -1))
        },
    )
    return Plan(tables=[table], claims=claimed("CB Table S3", helped))


_KINDS = {"cb": "CB", "cb_gate": "CB_gate", "cb_hybrid": "CB_hybrid"}
_TABLE_S5: dict[str, dict[str, tuple[float, float] | None]] = {  # where -> top-1, top-5
    "cb": {"mlp": (80.5, 95.3), "msa": (80.1, 95.0), "both": (80.1, 95.0)},
    "cb_gate": {"mlp": (80.4, 95.1), "msa": (80.0, 95.0), "both": (80.0, 95.0)},
    "cb_hybrid": {"mlp": (80.5, 95.0), "msa": (80.4, 95.3), "both": None},
}
_TABLE_S6: dict[str, dict[str, tuple[float, float] | None]] = {  # position -> top-1, top-5
    "cb": {"front": (79.9, 94.8), "mid": (80.5, 95.2), "end": (80.5, 95.3)},
    "cb_gate": {"front": (80.3, 94.9), "mid": (80.2, 95.1), "end": (80.4, 95.1)},
    "cb_hybrid": {"front": (80.5, 95.0), "mid": (80.1, 95.1), "end": (80.3, 95.0)},
}
_DEFAULTS = ("mlp", "end")  # not said in a model's name, so that both tables share the runs


def places(scale: Scale) -> Plan:
    """Tables S5 and S6: which module, and where."""
    kinds = scale.pick(paper=tuple(_KINDS), laptop=tuple(_KINDS), smoke=("cb", "cb_gate"))
    asked = scale.pick(
        paper=(("mlp", "msa", "both"), ("front", "mid", "end")),
        laptop=(("mlp", "msa", "both"), ("front", "mid", "end")),
        smoke=(("mlp", "msa"), ("front", "end")),
    )
    without = made(scale, "DeiT-S")
    tables = []
    for name, title, numbers, wanted in (
        ("blocks", "In the MLP, the MSA or both (Table S5)", _TABLE_S5, asked[0]),
        ("positions", "At the front, middle or end of the MLP (Table S6)", _TABLE_S6, asked[1]),
    ):
        for i, (key, unit) in enumerate((("top1", "top-1, %"), ("top5", "top-5, %"))):
            first: list[Ask | None] = [Ask(training=without, key=key, paper=(79.9, 95.0)[i])]
            rows = [
                Row(label="without", paper_label="ViT-S", cells=[*first, *[None] * len(wanted)])
            ]
            for kind in kinds:
                cells: list[Ask | None] = [None]
                for place in wanted:
                    paper = numbers[kind][place]
                    suffix = kind if place in _DEFAULTS else f"{kind}:{place}"
                    cells.append(
                        paper
                        and Ask(training=made(scale, "DeiT-S", suffix), key=key, paper=paper[i])
                    )
                rows.append(Row(label=_KINDS[kind], paper_label="+ " + _KINDS[kind], cells=cells))
            tables.append(
                Sheet(
                    name=f"{name}-{key}",
                    title=title,
                    corner="module",
                    rows=rows,
                    unit=unit,
                    columns=["none", *wanted],
                )
            )
    blocks, _, positions, _ = tables
    claims = []
    for kind in (_KINDS[k] for k in kinds):
        claims += claimed(
            "CB Table S5",
            {
                f"{kind} in the MLP helps": blocks.above(kind, "without", "mlp", "none"),
                f"{kind} is better in the MLP than in the MSA": blocks.above(
                    kind, kind, "mlp", "msa"
                ),
            },
        )
        best, least = ("front", "end") if kind == "CB_hybrid" else ("end", "front")
        text = f"{kind} is better at the {best} than at the {least}"
        claims += claimed("CB Table S6", {text: positions.above(kind, kind, best, least)})

    def figures(findings: Findings) -> list[Figure]:
        panels = tuple(_dots(table, findings) for table in tables if table.name.endswith("top1"))
        text = "Each dot is one seed; the module's name is the colour, its place the group."
        title = "Which module, and where (Tables S5 and S6)"
        return [Figure(name="places", title=title, reading=text, panels=panels)]

    return Plan(tables=tables, claims=claims, figures=figures)


def _dots(table: Sheet, findings: Findings) -> Dots:
    """A table as dots: columns are groups, rows are series."""
    series = tuple(
        DotSeries(
            label=row.label,
            paper=[None if ask is None else ask.paper for ask in row.cells],
            values=[[] if ask is None else findings.values(ask) for ask in row.cells],
        )
        for row in table.rows
    )
    return Dots(title=table.title, y_label=table.unit, groups=tuple(table.columns), series=series)


STUDIES = (
    Study(
        name="broadcasting-hierarchical",
        title="Does uniform attention help other families too?",
        claim="CB helps PVT-S (+0.6), LocalViT, PVTv2 and Swin-Ti (+0.2)",
        covers=("CB Table S3",),
        plan=hierarchical,
        data=IMAGENET,
    ),
    Study(
        name="broadcasting-places",
        title="Where does uniform attention belong?",
        claim="the mean token at the end of the MLP is the best place; gates bring nothing more",
        covers=("CB Table S5", "CB Table S6"),
        plan=places,
        data=IMAGENET,
    ),
)
