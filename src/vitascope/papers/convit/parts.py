"""Ablation of ConViT's gates and convolutional start, and distillation from a CNN.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Table 3 and Fig. 12 right (gates and the
convolutional start, one taken away after the other), Table 4 and Fig. 10 (distillation, appendix
B). Top-1 on ImageNet; the numbers beside ours are the paper's.

Rows f and g freeze all of GPSA. Table 3 marks their gates as not trained and its caption says "to
0", which may mean lambda = 0 as in b; so both are there: lambda = 1, where a ConViT starts (f, g),
and lambda = 0, gates at 1/2, each beside the paper's one number. Fig. 12 right has the final
numbers of Table 3's full data in its legend, though its caption speaks of the first 100 classes:
all images are shown.
"""

from typing import Any

from vitascope.figure import Figure
from vitascope.papers.convit.keys import head_mean
from vitascope.papers.convit.sizes import sized
from vitascope.papers.figures import CURVES, curves_figure, heads_figure, looks
from vitascope.papers.plan import Findings, Plan, Sheet, Study, claimed
from vitascope.papers.scale import IMAGENET, Scale, percent

# Table 3: (label, what is changed in ConViT-S+, full data, 10 %); None: DeiT
_ABLATION: tuple[tuple[str, dict[str, Any] | None, float, float], ...] = (
    ("a ConViT", {}, 82.2, 59.7),
    ("b gates frozen", {"gate_init": 0.0, "train_gates": False}, 82.0, 57.4),
    ("c no conv init", {"conv_init": False}, 81.4, 56.9),
    ("d b and c", {"conv_init": False, "gate_init": 0.0, "train_gates": False}, 81.6, 54.6),
    ("e DeiT", None, 79.1, 47.8),
    ("f conv init, GPSA frozen", {"train_gpsa": False}, 78.6, 54.3),
    ("g random, GPSA frozen", {"conv_init": False, "train_gpsa": False}, 73.7, 44.8),
    ("f, gates at 1/2", {"train_gpsa": False, "gate_init": 0.0}, 78.6, 54.3),
    ("g, gates at 1/2", {"conv_init": False, "train_gpsa": False, "gate_init": 0.0}, 73.7, 44.8),
)


def ablation(scale: Scale) -> Plan:
    """Table 3: gating and the convolutional start, one taken away after the other."""
    few = percent(scale.small)
    runs = {}
    for label, args, *_ in _ABLATION:
        role = "DeiT-S+" if args is None else "ConViT-S+"
        runs[label] = [
            scale.training(role, fraction=share, recipe="deit_plus", **(args or {}))
            for share in (1.0, scale.small)
        ]
    a, b, c, d, e, f, g, half, _ = runs
    table = Sheet.of_grid(
        "top1",
        "ConViT taken apart (Table 3)",
        ["100 %", few],
        runs,
        paper={label: numbers for label, _, *numbers in _ABLATION},
        called={label: label for label in runs},
        corner="network",
    )
    apart = {
        f"ConViT is ahead of DeiT on {few} of the images": (a, e, few),
        "ConViT is ahead of DeiT on all images": (a, e, "100 %"),
        f"learned gates help ({few})": (a, b, few),
        f"the convolutional start helps ({few})": (a, c, few),
        f"without both, GPSA is still ahead of DeiT ({few})": (d, e, few),
        f"frozen at the convolutional start, GPSA beats DeiT on {few} of the images": (f, e, few),
        f"with its gates frozen at 1/2, GPSA beats DeiT on {few} of the images": (half, e, few),
        f"a frozen convolution beats frozen random attention ({few})": (f, g, few),
    }
    claims = claimed("ConViT Table 3", {k: table.above(*cells) for k, cells in apart.items()})
    shown = {label: full for label, (full, _) in runs.items()}

    def figures(findings: Findings) -> list[Figure]:
        return [curves_figure(findings, shown, "What makes it learn, all images (Fig. 12 right)")]

    also = [(training, CURVES) for training in shown.values()]
    return Plan(tables=[table], claims=claims, figures=figures, also=also)


def distillation(scale: Scale) -> Plan:
    """Table 4 and Fig. 10: hard distillation from a CNN."""
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    plain = {"DeiT-S": (79.8, 80.9), "DeiT-B": (81.8, 83.0), "ConViT-S+": (82.2, 82.9)}
    roles = scale.pick(paper=tuple(plain), laptop=("DeiT-S", "ConViT-S+"))
    teacher = "regnety_160" if scale.is_paper else scale.training("CNN teacher", fraction=fraction)
    called = {scale.training(role).model: role for role in roles}
    runs = {}
    for label, role in called.items():
        taught = sized(scale, f"{role} distilled", fraction).but(teacher=teacher)
        runs[label] = [sized(scale, role, fraction), taught]
    columns = ["alone", "distilled"]
    table = Sheet.of_grid(
        "top1",
        "Hard distillation from a CNN (Table 4)",
        columns,
        runs,
        paper={label: plain[role] for label, role in called.items()},
        called=called,
        corner="network",
    )
    labels = list(runs)
    vit, convit = labels[0], labels[-1]
    trained = dict(zip(columns, runs[vit], strict=True))
    far = Sheet.of_grid(
        "nonlocality",
        "Mean nonlocality of the ViT at the end (Fig. 10)",
        columns,
        {vit: runs[vit]},
        ask={"reading": looks(scale), "key": head_mean("nonlocality"), "factor": 1.0},
        corner="network",
        unit="nonlocality, patches",
        digits=2,
        accuracy=False,
    )
    both = ("distilled", "alone")
    claims = claimed(
        "ConViT Table 4",
        {f"distillation helps {label}": table.above(label, label, *both) for label in runs},
    )
    claims += claimed(
        "ConViT App. B",
        {
            "the ViT gains more from distillation than ConViT": table.further(
                *((label, column) for label in (vit, convit) for column in both)
            )
        },
    )
    claims += claimed(
        "ConViT Fig. 10",
        {"distillation leaves the ViT more local": far.above(vit, vit, "alone", "distilled")},
    )

    def figures(findings: Findings) -> list[Figure]:
        runs = {f"ViT {name}": training for name, training in trained.items()}
        title = "Nonlocality with distillation (Fig. 10)"
        return [heads_figure(findings, runs, looks(scale), "nonlocality", title)]

    also = [(t, looks(scale)) for t in trained.values()]
    return Plan(tables=[table, far], claims=claims, figures=figures, also=also)


STUDIES = (
    Study(
        name="ablation",
        title="What makes ConViT work?",
        claim="gates and the convolutional start help together, most on few images",
        covers=("ConViT Table 3", "ConViT Fig. 12 right"),
        plan=ablation,
        data=IMAGENET,
    ),
    Study(
        name="distillation",
        title="Does a CNN teacher bring the same locality?",
        claim="distillation helps both, ConViT less, and leaves the ViT more local",
        covers=("ConViT Table 4", "ConViT Fig. 10"),
        plan=distillation,
        data=IMAGENET,
    ),
)
