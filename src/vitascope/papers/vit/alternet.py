"""Attention at the ends of a ResNet's stages: AlterNet.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 12a (building it up), 12b and 12c
(accuracy, corruptions, spectra on CIFAR-100), E.1 and C.1 right (ImageNet). The text gives no
numbers of these figures, and of appendix E AlterNet's training throughput.

Deviation: Fig. 12a is a search that decides on held-out images (``vitascope study buildup``);
here its networks are trained one and all, and the test set is what the table shows.
"""

from vitascope.papers.figures import dots_figure
from vitascope.papers.plan import Plan, Training, drawing, read_claims, study
from vitascope.papers.scale import IMAGENET, Scale, Spec
from vitascope.papers.vit.networks import CIFAR, NETWORKS, looked_into, trainings
from vitascope.papers.vit.overfitting import rank_table
from vitascope.papers.vit.tables import (
    accuracy,
    corrupted,
    eigenvalues,
    spectra_figure,
    spectrum,
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


_THROUGHPUT = {"ResNet-50": 473 / 1.2, "AlterNet-50": 473.0}  # "20% faster"
_DOTS = "A dot is a seed; corrupted is the mean over 15 corruptions."
_ACCURATE = """
[Park & Kim Fig. 12]
AlterNet is more accurate than the ResNet
    top1: {alter} > {resnet} at {column}
the ResNet is more accurate than the ViT
    top1: {resnet} > {vit} at {column}
"""
_ALTERNET = """
[Park & Kim Fig. 12]
AlterNet stands corruptions better than the ResNet
    top1: {alter} > {resnet} at corrupted
AlterNet's positive eigenvalues are smaller than the ResNet's
    ape: {resnet} > {alter}
AlterNet has fewer negative eigenvalues than the ViT
    nep: {vit} > {alter}
[Park & Kim App. E]
AlterNet trains faster than the pre-activation ResNet
    throughput: {alter} > {resnet}
"""


@study(
    "Does attention at the ends of stages make a ResNet better?",
    claim="AlterNet is more accurate and more robust than ResNet and ViT on CIFAR-100, and "
    "its loss is flatter than the ResNet's",
    covers=("Park & Kim Fig. 12", "Park & Kim Fig. 12b", "Park & Kim Fig. 12c"),
    data=CIFAR,
)
def alternet(scale: Scale) -> Plan:
    """Fig. 12b and 12c; at a desk the accuracies alone."""
    if scale.name == "desk":
        return _accuracies(scale)
    five = ("ViT-Ti", "PiT-Ti", "Swin-Ti", "ResNet-50", "AlterNet-50")
    names = scale.pick(paper=five, smoke=("ViT-Ti", "ResNet-50", "AlterNet-50"))
    runs = trainings(scale, names)
    vit, *_, resnet, alter = labels = list(runs)
    if scale.is_paper:
        runs["ResNeXt-50"] = scale.training((("resnext50_cifar", {}),) * 2, recipe="cifar")
    early = spectrum(scale)
    three = {label: runs[label] for label in (vit, resnet, alter)}
    pair = {label: runs[label] for label in labels[-2:]}
    table = corrupted(scale, runs, "Fig. 12b")
    shown, title = ("clean", "corrupted"), "Hessian spectra early in training (Fig. 12c)"
    names_of = {"vit": vit, "resnet": resnet, "alter": alter}
    return Plan(
        tables=[
            table,
            *eigenvalues(three, {"early": early}, "Fig. 12c"),
            training_throughput(pair, _THROUGHPUT, "appendix E"),
        ],
        claims=read_claims(_ACCURATE, **names_of, column="clean")
        + read_claims(_ALTERNET, **names_of),
        figures=[
            drawing(dots_figure, table, shown, "Accuracy (Fig. 12b)", _DOTS),
            drawing(spectra_figure, three, early, title),
        ],
    )


def _accuracies(scale: Scale) -> Plan:
    """Top-1 of the networks that others look into, which see all images once: the same runs."""
    runs = looked_into(scale)
    vit, resnet, alter = runs
    table = accuracy(runs, "Accuracy, all images once (Fig. 12b)")
    return Plan(
        tables=[table],
        claims=read_claims(_ACCURATE, vit=vit, resnet=resnet, alter=alter, column="top-1"),
        figures=[drawing(dots_figure, table, ("top-1",), table.title, "A dot is a seed.")],
    )


_STEPS: dict[str, dict[str, tuple[str, ...]]] = {  # kinds of blocks, stage by stage
    "paper": {
        "none": ("ccc", "cccc", "cccccc", "cccc"),
        "c4": ("ccc", "cccc", "cccccc", "ccca"),
        "c4 x 2": ("ccc", "cccc", "cccccc", "caca"),
        "c3": ("ccc", "cccc", "ccccca", "caca"),
        "c3 x 2": ("ccc", "cccc", "cccaca", "caca"),
        "c3 x 3": ("ccc", "cccc", "cacaca", "caca"),
        "c2": ("ccc", "ccca", "ccccca", "caca"),
    },
    "laptop": {
        "none": (),
        "c3": ("cc", "cc", "ca"),
        "c2": ("cc", "ca", "ca"),
        "c1": ("ca", "ca", "ca"),
    },
    "smoke": {"none": (), "c3": ("cc", "cc", "ca")},
}


def built_up(scale: Scale) -> dict[str, Training]:
    """The networks of Fig. 12a: a label of where attention is, and the training.

    At the paper's scale ResNet-50 with four blocks in the last stage: two of attention in c4, then
    one, two, three in c3, then one in c2 next to one in c3, which is the AlterNet for CIFAR.
    """
    runs = {}
    for label, kinds in scale.pick(**_STEPS).items():
        if not kinds:
            runs[label] = NETWORKS["ResNet-50"].training(scale)
        elif label == "c2":
            runs[label] = NETWORKS["AlterNet-50"].training(scale)
        else:
            depths = tuple(map(len, kinds))
            runs[label] = NETWORKS["ResNet-50"].training(scale, kinds=kinds, depths=depths)
    return runs


_BUILD_UP = {
    "paper": """
        [Park & Kim Fig. 12]
        attention at the end of the last stage raises the accuracy
            top1: c4 x 2 > none
        attention at the end of the second stage raises the accuracy further
            top1: c2 > c3
        two attention blocks in the third stage lower the accuracy
            top1: c3 > c3 x 2
        """,
    "laptop": """
        [Park & Kim Fig. 12]
        attention at the end of the last stage raises the accuracy
            top1: c3 > none
        attention at the end of the second stage raises the accuracy further
            top1: c2 > c3
        attention in the first stage, too, lowers the accuracy
            top1: c2 > c1
        """,
    "smoke": """
        [Park & Kim Fig. 12]
        attention at the end of the last stage raises the accuracy
            top1: c3 > none
        """,
}


@study(
    "Where in a ResNet does attention help?",
    claim="attention at the ends of late stages helps; several in the third stage do not",
    covers=("Park & Kim Fig. 12a",),
    data=CIFAR,
)
def build_up(scale: Scale) -> Plan:
    """Fig. 12a: attention from the last stage to the first."""
    title = "Attention added from the end (Fig. 12a)"
    table = accuracy(built_up(scale), title, corner="last attention in")
    text = "From left to right, one more block of attention."
    return Plan(
        tables=[table],
        claims=read_claims(scale.pick(**_BUILD_UP)),
        figures=[drawing(dots_figure, table, ("top-1",), "The build-up (Fig. 12a)", text)],
    )


_LARGE_DATA = """
[Park & Kim Fig. E.1]
AlterNet is more accurate than the ResNet
    top1: {alter} > {resnet} at clean
AlterNet stands corruptions better than the ResNet
    top1: {alter} > {resnet} at corrupted
[Park & Kim App. E]
AlterNet is within a point of Swin or ahead
    top1: {alter} at clean - {swin} at clean > -1
[Park & Kim Fig. C.1 right]
the lower the training loss, the lower the test error, over networks
    rank: all networks > 0
with much data, windows (Swin) reach a lower training loss than the ResNet
    nll: {resnet} > {swin}
"""


@study(
    "Does attention help convolutions on much data?",
    claim="on ImageNet AlterNet beats ResNet-50 and is on a par with Swin",
    covers=("Park & Kim Fig. E.1", "Park & Kim Fig. C.1 right"),
    data=IMAGENET,
)
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
        for name, spec in _MORE.items():
            runs[name] = scale.training((spec, spec), recipe="imagenet_park")
    table = corrupted(scale, runs, "Fig. E.1")
    swin, resnet, alter = (
        NETWORKS[n].label(scale) for n in ("Swin-Ti", "ResNet-50", "AlterNet-50")
    )
    much = [swin] if scale.is_paper else []  # a laptop has no large data
    shown = ("clean", "corrupted")
    return Plan(
        tables=[
            table,
            training_loss(runs, "Training loss (Fig. C.1 right)"),
            rank_table("", list(runs.values())),
        ],
        claims=read_claims(_LARGE_DATA, alter=alter, resnet=resnet, swin=much),
        figures=[drawing(dots_figure, table, shown, "Accuracy (Fig. E.1)", _DOTS)],
    )
