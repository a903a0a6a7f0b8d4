"""Attention at the ends of a ResNet's stages: AlterNet.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 12a (building it up), 12b and 12c
(accuracy, corruptions, spectra on CIFAR-100), E.1 and C.1 right (ImageNet). The text gives no
numbers of these figures, and of appendix E AlterNet's training throughput.

Deviation: Fig. 12a is a search that decides on held-out images (``vitascope study buildup``);
here its networks are trained one and all, and the test set is what the table shows.
"""

from vitascope.figure import Figure
from vitascope.papers.figures import dots_figure
from vitascope.papers.plan import Findings, Plan, Study, Training, claimed
from vitascope.papers.scale import IMAGENET, Scale, Spec
from vitascope.papers.vit.networks import CIFAR, NETWORKS, looked_into, trainings
from vitascope.papers.vit.overfitting import rank_table
from vitascope.papers.vit.spectra import eigenvalues, spectra_figure, spectrum
from vitascope.papers.vit.tables import (
    accuracy,
    corrupted,
    training_loss,
    training_throughput,
)

_MORE: dict[str, Spec] = {  # of Fig. E.1 and C.1 right at the paper's scale alone
    "Twins-S": ("twins_svt_small", {}),
    "LeViT-128S": ("levit_128s", {}),
    "CoaT-Lite-Ti": ("coat_lite_tiny", {}),
    "MLP-Mixer-B": ("mixer_b16_224", {}),
    "ResNeXt-50": ("resnext50_32x4d", {}),
}


def alternet(scale: Scale) -> Plan:
    """Fig. 12b and 12c; at a desk the accuracies alone."""
    if scale.name == "desk":
        return _accuracies(scale)
    five = ("ViT-Ti", "PiT-Ti", "Swin-Ti", "ResNet-50", "AlterNet-50")
    fewer = ("ViT-Ti", "ResNet-50", "AlterNet-50")
    runs = trainings(scale, scale.pick(paper=five, laptop=five, smoke=fewer))
    vit, *_, resnet, alter = runs
    if scale.is_paper:
        runs["ResNeXt-50"] = scale.training((("resnext50_cifar", {}),) * 2, recipe="cifar")
    early = spectrum(scale)
    three = {label: runs[label] for label in (vit, resnet, alter)}
    table = corrupted(scale, runs, "Fig. 12b")
    nep, ape = eigenvalues(three, {"early": early}, "Fig. 12c")
    pair = {label: runs[label] for label in (resnet, alter)}
    known = {"ResNet-50": 473 / 1.2, "AlterNet-50": 473.0}  # "20% faster"
    speed = training_throughput(pair, known, "appendix E")
    claims = claimed(
        "ViT Fig. 12",
        {
            "AlterNet is more accurate than the ResNet": table.above(alter, resnet),
            "the ResNet is more accurate than the ViT": table.above(resnet, vit),
            "AlterNet stands corruptions better than the ResNet": table.above(
                alter, resnet, "corrupted"
            ),
            "AlterNet's positive eigenvalues are smaller than the ResNet's": ape.above(
                resnet, alter
            ),
            "AlterNet has fewer negative eigenvalues than the ViT": nep.above(vit, alter),
        },
    )
    faster = "AlterNet trains faster than the pre-activation ResNet"
    claims += claimed("ViT App. E", {faster: speed.above(alter, resnet)})

    def figures(findings: Findings) -> list[Figure]:
        return [
            dots_figure(
                findings,
                table,
                ("clean", "corrupted"),
                "Accuracy (Fig. 12b)",
                "A dot is a seed; corrupted is the mean over 15 corruptions.",
            ),
            spectra_figure(findings, three, early, "Hessian spectra early in training (Fig. 12c)"),
        ]

    return Plan(tables=[table, nep, ape, speed], claims=claims, figures=figures)


def _accuracies(scale: Scale) -> Plan:
    """Top-1 of the networks that others look into, which see all images once: the same runs."""
    runs = looked_into(scale)
    vit, resnet, alter = runs
    table = accuracy(runs, "Accuracy, all images once (Fig. 12b)")
    better = {
        "AlterNet is more accurate than the ResNet": table.above(alter, resnet),
        "the ResNet is more accurate than the ViT": table.above(resnet, vit),
    }

    def figures(findings: Findings) -> list[Figure]:
        return [dots_figure(findings, table, ("top-1",), table.title, "A dot is a seed.")]

    return Plan(tables=[table], claims=claimed("ViT Fig. 12", better), figures=figures)


def built_up(scale: Scale) -> dict[str, Training]:
    """The networks of Fig. 12a: a label of where attention is, and the training.

    At the paper's scale ResNet-50 with four blocks in the last stage: two of attention in c4, then
    one, two, three in c3, then one in c2 beside one in c3, which is the AlterNet for CIFAR.
    """
    end = scale.pick(paper=("caca",), laptop=("ca",))[0]
    steps: dict[str, tuple[str, ...]] = scale.pick(
        paper={
            "none": ("ccc", "cccc", "cccccc", "cccc"),
            "c4": ("ccc", "cccc", "cccccc", "ccca"),
            "c4 x 2": ("ccc", "cccc", "cccccc", end),
            "c3": ("ccc", "cccc", "ccccca", end),
            "c3 x 2": ("ccc", "cccc", "cccaca", end),
            "c3 x 3": ("ccc", "cccc", "cacaca", end),
            "c2": ("ccc", "ccca", "ccccca", end),
        },
        laptop={"none": (), "c3": ("cc", "cc", end), "c2": ("cc", end, end), "c1": (end, end, end)},
        smoke={"none": (), "c3": ("cc", "cc", end)},
    )
    runs = {}
    for label, kinds in steps.items():
        if not kinds:
            runs[label] = NETWORKS["ResNet-50"].training(scale)
        elif label == "c2":
            runs[label] = NETWORKS["AlterNet-50"].training(scale)
        else:
            depths = tuple(map(len, kinds))
            runs[label] = NETWORKS["ResNet-50"].training(scale, kinds=kinds, depths=depths)
    return runs


def build_up(scale: Scale) -> Plan:
    """Fig. 12a: attention from the last stage to the first."""
    runs = built_up(scale)
    title = "Attention added from the end (Fig. 12a)"
    table = accuracy(runs, title, corner="last attention in")
    none, first, *rest = runs
    last = scale.pick(paper="c4 x 2", laptop=first)

    text = "attention at the end of the last stage raises the accuracy"
    better = {text: table.above(last, none)}
    if rest:
        text = "attention at the end of the second stage raises the accuracy further"
        better[text] = table.above("c2", scale.pick(paper="c3", laptop=first))
        worse = scale.pick(paper=("c3", "c3 x 2"), laptop=("c2", "c1"))
        text = scale.pick(
            paper="two attention blocks in the third stage lower the accuracy",
            laptop="attention in the first stage, too, lowers the accuracy",
        )
        better[text] = table.above(*worse)

    def figures(findings: Findings) -> list[Figure]:
        return [
            dots_figure(
                findings,
                table,
                ("top-1",),
                "The build-up (Fig. 12a)",
                "From left to right, one more block of attention.",
            )
        ]

    return Plan(tables=[table], claims=claimed("ViT Fig. 12", better), figures=figures)


def large_data(scale: Scale) -> Plan:
    """Fig. E.1 and C.1 right: many networks on ImageNet."""
    every = ("ViT-Ti", "ViT-S", "ConViT-Ti", "PiT-Ti", "Swin-Ti", "ResNet-50", "AlterNet-50")
    names = scale.pick(
        paper=every,
        laptop=tuple(n for n in every if n != "ViT-S"),
        smoke=("ViT-Ti", "ResNet-50", "AlterNet-50"),
    )
    runs = trainings(scale, names, imagenet=True)
    if scale.is_paper:
        runs |= {
            n: scale.training((spec, spec), recipe="imagenet_park") for n, spec in _MORE.items()
        }
    resnet, alter = (NETWORKS[n].label(scale) for n in ("ResNet-50", "AlterNet-50"))
    table = corrupted(scale, runs, "Fig. E.1")
    loss = training_loss(runs, "Training loss (Fig. C.1 right)")
    order = rank_table("", list(runs.values()))
    claims = claimed(
        "ViT Fig. E.1",
        {
            "AlterNet is more accurate than the ResNet": table.above(alter, resnet),
            "AlterNet stands corruptions better than the ResNet": table.above(
                alter, resnet, "corrupted"
            ),
        },
    )
    text = "the lower the training loss, the lower the test error, over networks"
    claims += claimed("ViT Fig. C.1 right", {text: order.sign("all networks", "rho", 1)})
    swin = NETWORKS["Swin-Ti"].label(scale)
    if scale.is_paper:  # a laptop has no large data
        text = "with much data, windows (Swin) reach a lower training loss than the ResNet"
        claims += claimed("ViT Fig. C.1 right", {text: loss.above(resnet, swin)})

    def figures(findings: Findings) -> list[Figure]:
        said = "A dot is a seed; corrupted is the mean over 15 corruptions."
        columns = ("clean", "corrupted")
        return [dots_figure(findings, table, columns, "Accuracy (Fig. E.1)", said)]

    return Plan(tables=[table, loss, order], claims=claims, figures=figures)


STUDIES = (
    Study(
        name="alternet",
        title="Does attention at the ends of stages make a ResNet better?",
        claim="AlterNet is more accurate and more robust than ResNet and ViT on CIFAR-100, and "
        "its loss is flatter than the ResNet's",
        covers=("ViT Fig. 12", "ViT Fig. 12b", "ViT Fig. 12c"),
        plan=alternet,
        data=CIFAR,
    ),
    Study(
        name="build-up",
        title="Where in a ResNet does attention help?",
        claim="attention at the ends of late stages helps; several in the third stage do not",
        covers=("ViT Fig. 12a",),
        plan=build_up,
        data=CIFAR,
    ),
    Study(
        name="large-data",
        title="Does attention help convolutions on much data?",
        claim="on ImageNet AlterNet beats ResNet-50 and is on a par with Swin",
        covers=("ViT Fig. E.1", "ViT Fig. C.1 right"),
        plan=large_data,
        data=IMAGENET,
    ),
)
