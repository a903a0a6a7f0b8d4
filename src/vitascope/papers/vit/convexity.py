"""What makes the loss of a ViT convex? Pooling, locality, patches, heads.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 6 (average pooling in place of the class
token), Fig. 7 (attention in a k x k neighbourhood), C.3 (patch sizes), C.5 and C.6 (heads, and
channels per head).

On a laptop one-pixel patches give Fig. 7 its own 8 x 8 grid, and all but Fig. 6 have two blocks
(the paper halves the depth in C.5 and C.6). The paper does not say which numbers of heads it tried.
`heads` holds the width of the network, as the released code does; `width` asks the same of a plain
ViT, whose width is heads times channels per head and grows with both.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vitascope.papers.figures import against_figure
from vitascope.papers.plan import (
    CellSpec,
    Drawing,
    Measurement,
    Plan,
    Reading,
    TableSpec,
    Training,
    drawing,
    read_claims,
    study,
)
from vitascope.papers.scale import Role, Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, trainings
from vitascope.papers.vit.tables import (
    APE,
    LATE,
    NEP,
    accuracy,
    corrupted,
    eigenvalues,
    exponent,
    spectra_figure,
    spectrum,
    training_loss,
)

_POOLING = """
[Park & Kim Fig. 6]
average pooling leaves fewer negative eigenvalues
    nep: {token} > {gap} at early
average pooling raises the accuracy
    top1: {gap} > {token} (paper: 2.7)
{time}, average pooling leaves fewer negative eigenvalues
    nep: {token} > {gap} at {time}
"""
_LOCAL = """
[{source}]
{time}, {label} has fewer negative eigenvalues than {token}
    nep: {token} > {label} at {time}
"""


@study(
    "Does average pooling make the loss of a ViT convex?",
    claim="average pooling in place of the class token suppresses negative eigenvalues "
    "and adds 2.7 points",
    covers=("Park & Kim Fig. 6",),
    data=CIFAR,
)
def pooling(scale: Scale) -> Plan:
    """Fig. 6: a ViT that reads off its class token, and one that averages its patches.

    At a desk also a ConViT and a ResNet, on a tenth of the images, after 1, 3 and 10 epochs.
    """
    desk = scale.name == "desk"
    names = ("ViT-Ti", "ViT-Ti GAP", *(("ConViT-Ti", "ResNet-50") if desk else ()))
    runs = trainings(scale, names, small=True, fraction=scale.small if desk else 1.0)
    token, gap, *local = runs
    times = {"early": spectrum(scale)}
    if desk:
        times |= {"at 30 %": spectrum(scale, 0.3), "at the end": spectrum(scale, LATE)}
    claims = read_claims(_POOLING, token=token, gap=gap, time=list(times)[1:])
    for label, source in zip(local, ("Park & Kim Fig. 7", "Park & Kim Fig. 4"), strict=False):
        claims += read_claims(_LOCAL, source=source, token=token, label=label, time=list(times))
    return Plan(
        tables=[*eigenvalues(runs, times, "Fig. 6"), accuracy(runs, "Top-1 (section 2)")],
        claims=claims,
        figures=[drawing(spectra_figure, runs, times["early"], "Hessian spectra (Fig. 6)")],
    )


_NEIGHBOURHOODS = """
[Park & Kim Fig. 7]
{near} attention has fewer negative eigenvalues than global
    kernel-nep: global > {near}
{near} attention reaches a lower training loss
    kernel-nll: global > {near}
{near} attention is more accurate
    kernel-top1: {near} > global at clean
[Park & Kim Fig. C.3]
small patches allow more negative eigenvalues than large ones
    patch-nep: {fine} > {coarse}
small patches make the eigenvalues smaller
    patch-ape: {coarse} > {fine}
large patches harm the accuracy
    patch-top1: {less_coarse} > {coarse}
"""
_TWO_KERNELS = """
[Park & Kim Fig. 7]
5 x 5 has fewer negative eigenvalues than 3 x 3
    kernel-nep: 3 x 3 > 5 x 5
5 x 5 stands corruptions better than 3 x 3
    kernel-top1: 5 x 5 > 3 x 3 at corrupted
"""
_THREE_PATCHES = """
[Park & Kim Fig. C.3]
the smallest patches harm the accuracy too
    patch-top1: {less_fine} > {fine}
"""


@study(
    "Do locality and larger patches make the loss convex?",
    claim="5 x 5 attention has fewer negative eigenvalues and a lower error than global",
    covers=("Park & Kim Fig. 7", "Park & Kim Fig. C.3"),
    data=CIFAR,
)
def convexity(scale: Scale) -> Plan:
    """Fig. 7 and C.3: neighbourhoods and patch sizes."""
    patches = scale.pick(paper=(2, 4, 8), laptop=(1, 2, 4), desk=(4, 8, 16), smoke=(2, 4))
    kernels = scale.pick(paper=(3, 5), smoke=(3,))
    grid = scale.pick(paper=4, laptop=1, desk=4, smoke=2)  # the patch of Fig. 7
    by_kernel = {f"{k} x {k}": _neighbourhood(scale, k, grid) for k in kernels}
    by_kernel["global"] = _patched(scale, grid)
    by_patch = {f"patch {p}": _patched(scale, p) for p in patches}
    early = spectrum(scale, half=True)
    fine, *_, coarse = sides = list(by_patch)
    claims = read_claims(
        _NEIGHBOURHOODS,
        near=f"{kernels[-1]} x {kernels[-1]}",
        fine=fine,
        coarse=coarse,
        less_coarse=sides[-2],
    )
    if len(kernels) > 1:
        claims += read_claims(_TWO_KERNELS)
    if len(patches) > 2:
        claims += read_claims(_THREE_PATCHES, fine=fine, less_fine=sides[1])
    return Plan(
        tables=[
            *eigenvalues(by_kernel, {"early": early}, "Fig. 7", "kernel-"),
            *eigenvalues(by_patch, {"early": early}, "Fig. C.3", "patch-"),
            corrupted(scale, by_kernel, "Fig. 7", "kernel-top1"),
            training_loss(by_kernel, "Training loss (Fig. 7)", "kernel-nll"),
            accuracy(by_patch, "Top-1 (Fig. C.3)", "patch-top1"),
            training_loss(by_patch, "Training loss (Fig. C.3)", "patch-nll"),
        ],
        claims=claims,
        figures=[
            drawing(spectra_figure, runs, early, title, name)
            for runs, name, title in (
                (by_kernel, "kernels", "Spectra by neighbourhood (Fig. 7)"),
                (by_patch, "patches", "Spectra by patch size (Fig. C.3)"),
            )
        ],
    )


def _patched(scale: Scale, patch: int) -> Training:
    """A ViT with patches of this side."""
    depth: dict[str, Any] = scale.pick(paper={}, laptop={"depth": 2})
    share = scale.small if scale.name == "desk" else 1.0
    return NETWORKS["ViT-Ti"].training(scale, small=True, fraction=share, patch_size=patch, **depth)


def _neighbourhood(scale: Scale, kernel: int, patch: int) -> Training:
    """A ViT whose attention is limited to a neighbourhood."""
    micro = ("convolutional_vit_micro", {"depth": 2})
    large = ("convolutional_vit_tiny", {"img_size": 32, "qkv_bias": False})
    role: Role = large, micro, micro
    share = scale.small if scale.name == "desk" else 1.0
    return scale.few(role, recipe="cifar", fraction=share, kernel_size=kernel, patch_size=patch)


WIDTH = "Width of a ViT"  # no figure of the paper: claims of our own
_EXPONENTS = {  # the paper's figure, its exponent of APE, and what is varied
    "heads": ("Fig. C.5", -0.562, "heads"),
    "channels": ("Fig. C.6", -0.796, "channels of a head"),
}
_HEADS = """
[{source}]
more {step}{also}, fewer negative eigenvalues
    {step}-nep: {low} > {high}
APE falls as {step} grow{also}
    {step}-exponent: APE against {step} < 0
"""


@study(
    "Do heads make the loss flat and convex?",
    claim="NEP and APE fall with heads (exponent of APE -0.56) and channels a head (-0.80)",
    covers=("Park & Kim Fig. C.5", "Park & Kim Fig. C.6"),
    data=CIFAR,
)
def heads(scale: Scale) -> Plan:
    """Fig. C.5 and C.6: number of heads, and channels per head, with exponents of APE."""
    return _of_heads(scale, wider=False)


@study(
    "Does width make the loss flat and convex?",
    claim="NEP and APE also fall where a ViT grows wider with its heads",
    covers=(WIDTH,),
    data=CIFAR,
)
def width(scale: Scale) -> Plan:
    """Repeat ``heads`` in a ViT whose width grows with its heads."""
    return _of_heads(scale, wider=True)


def _of_heads(scale: Scale, *, wider: bool) -> Plan:
    early = spectrum(scale, half=True)
    also = " and the width with them" if wider else " at one width"
    tables, claims, figures = [], [], []
    for step, runs in _varied(scale, wider).items():
        figure, paper, _ = _EXPONENTS[step]
        where, source = (WIDTH, WIDTH) if wider else (figure, f"Park & Kim {figure}")
        labelled = {f"{n} {step}": run for n, run in runs.items()}
        low, *_, high = labelled
        law = Measurement(exponent([float(n) for n in runs]), "exponent", early, digits=2)
        first, *others = runs.values()
        cell = CellSpec(first, law, None if wider else paper, others)
        title = f"Exponent of APE ({where})"
        tables += [
            *eigenvalues(labelled, {"early": early}, where, f"{step}-"),
            TableSpec(
                f"{step}-exponent", title, {(f"APE against {step}", "exponent"): cell}, corner="law"
            ),
        ]
        claims += read_claims(_HEADS, source=source, step=step, also=also, low=low, high=high)
        figures += _figures_of_heads(step, runs, early, where, wider)
    return Plan(tables=tables, claims=claims, figures=figures)


def _varied(scale: Scale, wider: bool) -> dict[str, dict[int, Training]]:
    """ViTs by their number of heads, and by the channels of each."""
    counts = scale.pick(paper=(1, 3, 6, 12), laptop=(3, 9, 18), smoke=(3, 9))
    channels = scale.pick(paper=(16, 32, 64, 128), laptop=(4, 8, 16), smoke=(4, 8))
    usual = scale.pick(paper=(3, 64), laptop=(9, 8))
    few: dict[str, Any] = scale.pick(paper={}, desk={"small": True, "fraction": scale.small})
    patch: dict[str, Any] = scale.pick(paper={}, laptop={"patch_size": 2}, desk={"patch_size": 4})

    def vit(number: int, each: int) -> Training:
        args = dict(patch)
        if (number, each) != usual or scale.is_paper:
            size = {"embed_dim": number * each} if wider else {"head_dim": each}
            args |= {"num_heads": number, **size}
        depth = scale.pick(paper=6, laptop=2)
        return NETWORKS["ViT-Ti"].training(scale, depth=depth, **few, **args)

    return {
        "heads": {n: vit(n, usual[1]) for n in counts},
        "channels": {n: vit(usual[0], n) for n in channels},
    }


def _figures_of_heads(
    step: str, runs: Mapping[int, Training], early: Reading, where: str, wider: bool
) -> list[Drawing]:
    """NEP and APE against what is varied, and the spectra."""
    _, paper, quantity = _EXPONENTS[step]
    nep, ape = replace(NEP, reading=early), replace(APE, reading=early)
    points = [(float(n), CellSpec(run, nep), CellSpec(run, ape)) for n, run in runs.items()]
    text = f"The paper fits APE with an exponent of {paper} and sees NEP fall"
    labelled = {f"{n} {step}": run for n, run in runs.items()}
    title = f"Spectra by {quantity} ({where})"
    return [
        drawing(
            against_figure,
            {"ViT": points},
            x=quantity,
            labels=("NEP, %", "APE"),
            name=step,
            title=f"Convexity and flatness by {quantity} ({where})",
            reading=f"{text}, at one width." if wider else f"{text}.",
        ),
        drawing(spectra_figure, labelled, early, title, f"{step}-spectra"),
    ]
