"""Ablation of ConViT's gates and convolutional start, and distillation from a CNN.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697. Table 3 and Fig. 12 right (gates and the
convolutional start, one taken away after the other), Table 4 and Fig. 10 (distillation, appendix
B). Top-1 on ImageNet; the numbers next to ours are the paper's.

Rows f and g freeze all of GPSA. Table 3 marks their gates as not trained and its caption says "to
0", which may mean lambda = 0 as in b; so both are there: lambda = 1, where a ConViT starts (f, g),
and lambda = 0, gates at 1/2, each next to the paper's one number. Fig. 12 right has the final
numbers of Table 3's full data in its legend, though its caption speaks of the first 100 classes:
all images are shown.
"""

from typing import Any

from vitascope.papers.convit.accuracy import sized
from vitascope.papers.convit.measurements import nonlocality
from vitascope.papers.figures import CURVES, attention_trace, curves_figure, heads_figure
from vitascope.papers.plan import Grid, Plan, drawing, read_claims, study
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


_APART = """
[ConViT Table 3]
ConViT is ahead of DeiT on {few} of the images
    top1: a ConViT > e DeiT at {few}
ConViT is ahead of DeiT on all images
    top1: a ConViT > e DeiT at 100 %
learned gates help ({few})
    top1: a ConViT > b gates frozen at {few}
the convolutional start helps ({few})
    top1: a ConViT > c no conv init at {few}
without both, GPSA is still ahead of DeiT ({few})
    top1: d b and c > e DeiT at {few}
frozen at the convolutional start, GPSA beats DeiT on {few} of the images
    top1: f conv init, GPSA frozen > e DeiT at {few}
with its gates frozen at 1/2, GPSA beats DeiT on {few} of the images
    top1: f, gates at 1/2 > e DeiT at {few}
a frozen convolution beats frozen random attention ({few})
    top1: f conv init, GPSA frozen > g random, GPSA frozen at {few}
gates and the convolutional start help together ({few})
    top1: a ConViT > d b and c at {few}
learned gates help without the convolutional start ({few})
    top1: c no conv init > d b and c at {few}
the convolutional start helps with frozen gates ({few})
    top1: b gates frozen > d b and c at {few}
with its gates frozen, GPSA is ahead of DeiT on all images
    top1: b gates frozen > e DeiT at 100 %
without both, GPSA is ahead of DeiT on all images
    top1: d b and c > e DeiT at 100 %
without the convolutional start, freezing the gates helps on all images
    top1: d b and c > c no conv init at 100 %
frozen at the convolutional start, GPSA falls behind DeiT on all images
    top1: e DeiT > f conv init, GPSA frozen at 100 %
random and frozen, GPSA falls behind DeiT on all images
    top1: e DeiT > g random, GPSA frozen at 100 %
"""


@study(
    "What makes ConViT work?",
    claim="gates and the convolutional start help together, most on few images",
    covers=("ConViT Table 3", "ConViT Fig. 12 right"),
    data=IMAGENET,
    seeds={"desk": 3},  # of 18 trainings
)
def ablation(scale: Scale) -> Plan:
    """Table 3: gating and the convolutional start, one taken away after the other."""
    few = percent(scale.small)
    rows = {}
    for label, args, *_ in _ABLATION:
        role = "DeiT-S+" if args is None else "ConViT-S+"
        rows[label] = [
            scale.affordable(role, fraction=share, recipe="deit_plus", **(args or {}))
            for share in (1.0, scale.small)
        ]
    runs = Grid(["100 %", few], rows, paper_rows={label: label for label in rows})
    paper = {label: numbers for label, _, *numbers in _ABLATION}
    whole = {label: run for label, (run, _) in rows.items()}
    title = "What makes it learn, all images (Fig. 12 right)"
    return Plan(
        tables=[runs.table("top1", "ConViT taken apart (Table 3)", paper=paper)],
        claims=read_claims(_APART, few=few),
        figures=[drawing(curves_figure, whole, title)],
        for_figures=[(training, CURVES) for training in whole.values()],
    )


_TABLE_4 = {"DeiT-S": (79.8, 80.9), "DeiT-B": (81.8, 83.0), "ConViT-S+": (82.2, 82.9)}
_TAUGHT = """
[ConViT Table 4]
distillation helps {network}
    top1: {network} at distilled > {network} at alone
[ConViT App. B]
the ViT gains more from distillation than ConViT
    top1: {vit} at distilled - {vit} at alone > {convit} at distilled - {convit} at alone
[ConViT App. B]
without distillation, {bigger} stays below ConViT
    top1: {convit} > {bigger} at alone
distilled, {bigger} passes ConViT
    top1: {bigger} > {convit} at distilled
[ConViT Fig. 10]
distillation leaves the ViT more local
    nonlocality: {vit} at alone > {vit} at distilled
"""


@study(
    "Does a CNN teacher give the same locality?",
    claim="distillation helps both, ConViT less, and leaves the ViT more local",
    covers=("ConViT Table 4", "ConViT Fig. 10"),
    data=IMAGENET,
)
def distillation(scale: Scale) -> Plan:
    """Table 4 and Fig. 10: hard distillation from a CNN."""
    fraction = scale.pick(paper=1.0, laptop=scale.small)
    roles = scale.pick(paper=tuple(_TABLE_4), laptop=("DeiT-S", "ConViT-S+"))
    teacher = "regnety_160" if scale.is_paper else scale.training("CNN teacher", fraction=fraction)
    networks = {scale.training(role).model: role for role in roles}
    rows = {
        label: [
            sized(scale, role, fraction),
            sized(scale, f"{role} distilled", fraction).but(teacher=teacher),
        ]
        for label, role in networks.items()
    }
    columns = ["alone", "distilled"]
    vit, *bigger, convit = networks
    paper = {label: _TABLE_4[role] for label, role in networks.items()}
    top1 = Grid(columns, rows, paper_rows=networks).table(
        "top1", "Hard distillation from a CNN (Table 4)", paper=paper
    )
    far = Grid(columns, {vit: rows[vit]}).table(
        "nonlocality", "Mean nonlocality of the ViT at the end (Fig. 10)", nonlocality(scale)
    )
    runs = dict(zip(("ViT alone", "ViT distilled"), rows[vit], strict=True))
    trace, title = attention_trace(scale), "Nonlocality with distillation (Fig. 10)"
    return Plan(
        tables=[top1, far],
        claims=read_claims(_TAUGHT, vit=vit, convit=convit, network=list(networks), bigger=bigger),
        figures=[drawing(heads_figure, runs, trace, "nonlocality", title)],
        for_figures=[(training, trace) for training in rows[vit]],
    )
