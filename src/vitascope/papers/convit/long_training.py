"""ConViT against DeiT in very long training on small images.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697, Fig. 11 left and appendix C: CIFAR-100.
"""

from collections.abc import Mapping

from vitascope.figure import Figure
from vitascope.papers.convit.keys import value_at
from vitascope.papers.convit.sizes import PAIR, PLUS, sized
from vitascope.papers.figures import CURVES, curves_figure
from vitascope.papers.plan import Findings, Plan, Sheet, Study, Training, claimed
from vitascope.papers.scale import IMAGENET, Scale


def long_training(scale: Scale) -> Plan:
    """Fig. 11 left: the "+" models on CIFAR-100 at 224 x 224, 3,000 epochs, all else as before."""
    names = scale.pick(paper=PLUS, laptop=("S+",))
    labels = {kind: scale.training(f"{kind}-S").model for kind in PAIR}
    vit, convit = labels.values()

    def run(kind: str, size: str) -> Training:
        found = sized(scale, f"{kind}-{size}", 1.0)
        if not scale.is_paper:
            return found
        data = scale.data if ":" in scale.data else "cifar100"
        return found.but(data=data, image_size=scale.image_size or 224, epochs=scale.epochs or 3000)

    def table(name: str, title: str, known: Mapping[str, float]) -> Sheet:
        return Sheet.of_grid(
            name,
            title,
            names,
            {label: [run(kind, size) for size in names] for kind, label in labels.items()},
            ask={"key": name},
            paper={v: [known.get(f"{k}-{size}") for size in names] for k, v in labels.items()},
            called={label: kind for kind, label in labels.items()},
            corner="size",
        )

    best = table("best_top1", "Best top-1 during training (Fig. 11 left)", {"ConViT-Ti+": 82.1})
    last = table("top1", "Top-1 at the end (Fig. 11 left)", {})
    loss = Sheet.of_runs(
        "test-loss",
        "Test loss at a third of the training and at its end",
        {f"{labels[kind]} {size}": run(kind, size) for kind in PAIR for size in names},
        {
            column: {"reading": CURVES, "key": value_at("test_nll", share), "factor": 1.0}
            for column, share in (("a third", 1 / 3), ("end", 1.0))
        },
        unit="NLL, nats",
        digits=3,
        accuracy=False,
    )
    claims = claimed(
        "ConViT Fig. 11 left",
        {
            f"at size {size}, ConViT is ahead of the plain ViT": best.above(convit, vit, size)
            for size in names
        },
    )
    claims += claimed(
        "ConViT App. C",
        {
            f"{row.label} overfits after a third of the training": loss.above(
                row.label, row.label, "end", "a third"
            )
            for row in loss.rows
            if row.label.startswith(convit)
        },
    )
    runs = {f"{short} {size}": run(kind, size) for kind, short in PAIR.items() for size in names}

    def figures(findings: Findings) -> list[Figure]:
        return [curves_figure(findings, runs, "A long training (Fig. 11 left)")]

    also = [(training, CURVES) for training in runs.values()]
    return Plan(tables=[best, last, loss], claims=claims, figures=figures, also=also)


STUDIES = (
    Study(
        name="long-training",
        title="Does locality help when small images are seen very often?",
        claim="on CIFAR-100 ConViT is ahead over 3,000 epochs (82.1 % with 10M parameters) and "
        "overfits after 1,000",
        covers=("ConViT Fig. 11 left",),
        plan=long_training,
        data={**IMAGENET, "paper": "CIFAR-100 (cifar100:PATH), resized to 224"},
    ),
)
