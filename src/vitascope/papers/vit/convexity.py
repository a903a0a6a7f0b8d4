"""What makes the loss of a ViT convex? Pooling, locality, patches, heads.

Park and Kim 2022, https://arxiv.org/abs/2202.06709. Fig. 6 (average pooling in place of the class
token), Fig. 7 (attention in a k x k neighbourhood), C.3 (patch sizes), C.5 and C.6 (heads, and
channels per head).

On a laptop one-pixel patches give Fig. 7 its own 8 x 8 grid, and all but Fig. 6 have two blocks
(the paper halves the depth in C.5 and C.6). The paper does not say which numbers of heads it tried.
`heads` holds the width of the network, as the released code does; `width` asks the same of a plain
ViT, whose width is heads times channels per head and grows with both.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vitascope.figure import Figure
from vitascope.papers.figures import against_figure
from vitascope.papers.plan import Ask, Findings, Plan, Sheet, Study, Training, claimed
from vitascope.papers.scale import Role, Scale
from vitascope.papers.vit.networks import CIFAR, NETWORKS, trainings
from vitascope.papers.vit.spectra import (
    LATE,
    eigenvalues,
    exponent,
    spectra_figure,
    spectrum,
)
from vitascope.papers.vit.tables import accuracy, corrupted, training_loss


def pooling(scale: Scale) -> Plan:
    """Fig. 6: a ViT that reads off its class token, and one that averages its patches.

    At a desk a ConViT and a ResNet beside them, on a tenth of the images, after 1, 3 and 10 epochs.
    """
    desk = scale.name == "desk"
    names = ("ViT-Ti", "ViT-Ti GAP", *(("ConViT-Ti", "ResNet-50") if desk else ()))
    runs = trainings(scale, names, small=True, fraction=scale.small if desk else 1.0)
    token, gap, *local = runs
    early = spectrum(scale)
    times = {"early": early}
    if desk:
        times |= {"at 30 %": spectrum(scale, 0.3), "at the end": spectrum(scale, LATE)}
    nep, ape = eigenvalues(runs, times, "Fig. 6")
    top1 = accuracy(runs, "Top-1 (section 2)")
    fewer, better = claimed(
        "ViT Fig. 6",
        {
            "average pooling leaves fewer negative eigenvalues": nep.above(token, gap),
            "average pooling raises the accuracy": top1.above(gap, token),
        },
    )
    claims = [fewer, replace(better, paper=2.7)]
    claims += claimed(
        "ViT Fig. 6",
        {
            f"{time}, average pooling leaves fewer negative eigenvalues": nep.above(
                token, gap, time
            )
            for time in list(times)[1:]
        },
    )
    for label, source in zip(local, ("ViT Fig. 7", "ViT Fig. 4"), strict=False):
        claims += claimed(
            source,
            {
                f"{time}, {label} has fewer negative eigenvalues than {token}": nep.above(
                    token, label, time
                )
                for time in times
            },
        )

    def figures(findings: Findings) -> list[Figure]:
        return [spectra_figure(findings, runs, early, "Hessian spectra (Fig. 6)")]

    return Plan(tables=[nep, ape, top1], claims=claims, figures=figures)


def bias(scale: Scale) -> Plan:
    """Fig. 7 and C.3: neighbourhoods and patch sizes."""
    small: dict[str, Any] = {"depth": 2}
    patches = scale.pick(paper=(2, 4, 8), laptop=(1, 2, 4), desk=(4, 8, 16), smoke=(2, 4))
    kernels = scale.pick(paper=(3, 5), laptop=(3, 5), smoke=(3,))
    grid = scale.pick(paper=4, laptop=1, desk=4, smoke=2)  # the patch of Fig. 7
    size = scale.pick(paper={"img_size": 32, "qkv_bias": False}, laptop={})
    share = scale.small if scale.name == "desk" else 1.0

    def vit(patch: int) -> Training:
        args = {"fraction": share, "patch_size": patch, **scale.pick(paper={}, laptop=small)}
        return NETWORKS["ViT-Ti"].training(scale, small=True, **args)

    micro = ("convolutional_vit_micro", small)
    local: Role = ("convolutional_vit_tiny", size), micro, micro

    def near_by(k: int) -> Training:
        args = {"fraction": share, "kernel_size": k, "patch_size": grid}
        return scale.few(local, recipe="cifar", **args)

    by_kernel = {f"{k} x {k}": near_by(k) for k in kernels}
    by_kernel["global"] = vit(grid)
    by_patch = {f"patch {p}": vit(p) for p in patches}
    early = spectrum(scale, half=True)
    read = {"early": early}
    kernel_nep, kernel_ape = eigenvalues(by_kernel, read, "Fig. 7", "kernel-")
    patch_nep, patch_ape = eigenvalues(by_patch, read, "Fig. C.3", "patch-")
    kernel_top1 = corrupted(scale, by_kernel, "Fig. 7", "kernel-top1")
    kernel_loss = training_loss(by_kernel, "Training loss (Fig. 7)", "kernel-nll")
    patch_top1 = accuracy(by_patch, "Top-1 (Fig. C.3)", "patch-top1")
    patch_loss = training_loss(by_patch, "Training loss (Fig. C.3)", "patch-nll")
    near, fine, coarse = f"{kernels[-1]} x {kernels[-1]}", *list(by_patch)[:: len(by_patch) - 1]
    fewer = f"{near} attention has fewer negative eigenvalues than global"
    claims = claimed(
        "ViT Fig. 7",
        {
            fewer: kernel_nep.above("global", near),
            f"{near} attention reaches a lower training loss": kernel_loss.above("global", near),
            f"{near} attention is more accurate": kernel_top1.above(near, "global"),
        },
    )
    claims += claimed(
        "ViT Fig. C.3",
        {
            "small patches allow more negative eigenvalues than large ones": patch_nep.above(
                fine, coarse
            ),
            "small patches make the eigenvalues smaller": patch_ape.above(coarse, fine),
            "large patches harm the accuracy": patch_top1.above(list(by_patch)[-2], coarse),
        },
    )
    if len(kernels) > 1:
        claims += claimed(
            "ViT Fig. 7",
            {
                "5 x 5 has fewer negative eigenvalues than 3 x 3": kernel_nep.above(
                    "3 x 3", "5 x 5"
                ),
                "5 x 5 stands corruptions better than 3 x 3": kernel_top1.above(
                    "5 x 5", "3 x 3", "corrupted"
                ),
            },
        )
    if len(patches) > 2:
        text = "the smallest patches harm the accuracy too"
        claims += claimed("ViT Fig. C.3", {text: patch_top1.above(list(by_patch)[1], fine)})

    def figures(findings: Findings) -> list[Figure]:
        return [
            spectra_figure(findings, runs, early, title, name)
            for runs, name, title in (
                (by_kernel, "kernels", "Spectra by neighbourhood (Fig. 7)"),
                (by_patch, "patches", "Spectra by patch size (Fig. C.3)"),
            )
        ]

    tables = [kernel_nep, kernel_ape, patch_nep, patch_ape]
    tables += [kernel_top1, kernel_loss, patch_top1, patch_loss]
    return Plan(tables=tables, claims=claims, figures=figures)


WIDTH = "Width of a ViT"  # no figure of the paper: claims of our own


def heads(scale: Scale) -> Plan:
    """Fig. C.5 and C.6: number of heads, and channels per head, with exponents of APE."""
    return _of_heads(scale, wider=False)


def width(scale: Scale) -> Plan:
    """The same in a ViT that is as wide as its heads together."""
    return _of_heads(scale, wider=True)


def _of_heads(scale: Scale, *, wider: bool) -> Plan:
    depth = scale.pick(paper=6, laptop=2)
    usual = scale.pick(paper=(3, 64), laptop=(9, 8), desk=(9, 16))
    counts: Sequence[int] = scale.pick(paper=(1, 3, 6, 12), laptop=(3, 9, 18), smoke=(3, 9))
    channels: Sequence[int] = scale.pick(
        paper=(16, 32, 64, 128), laptop=(4, 8, 16), desk=(8, 16, 32), smoke=(4, 8)
    )
    early = spectrum(scale, half=True)

    def vit(number: int, each: int) -> Training:
        same = (number, each) == usual and not scale.is_paper
        args: dict[str, Any] = scale.pick(
            paper={}, laptop={"patch_size": 2}, desk={"patch_size": 4}
        )
        if not same:
            size = {"embed_dim": number * each} if wider else {"head_dim": each}
            args |= {"num_heads": number, **size}
        return NETWORKS["ViT-Ti"].training(scale, depth=depth, **args)

    families = {
        "heads": ({n: vit(n, usual[1]) for n in counts}, "ViT Fig. C.5", -0.562),
        "channels": ({c: vit(usual[0], c) for c in channels}, "ViT Fig. C.6", -0.796),
    }
    words = {"heads": "heads", "channels": "channels of a head"}
    tables, claims = [], []
    for name, (runs, source, paper) in families.items():
        labelled = {f"{step} {name}": t for step, t in runs.items()}
        where = WIDTH if wider else source.removeprefix("ViT ")
        nep, ape = eigenvalues(labelled, {"early": early}, where, f"{name}-")
        first, *rest = runs.values()
        fitted = {"key": exponent([float(step) for step in runs]), "others": rest}
        beside = {} if wider else {"paper": paper}
        law = Sheet.of_runs(
            f"{name}-exponent",
            f"Exponent of APE ({where})",
            {f"APE against {name}": first},
            {"exponent": {**fitted, "reading": early, **beside, "factor": 1}},
            corner="law",
            unit="exponent",
            digits=2,
            accuracy=False,
        )
        tables += [nep, ape, law]
        low, *_, high = labelled
        also = " and the width with them" if wider else " at one width"
        claims += claimed(
            WIDTH if wider else source,
            {
                f"more {name}{also}, fewer negative eigenvalues": nep.above(low, high),
                f"APE falls as {name} grow{also}": law.sign(law.rows[0].label, "exponent", -1),
            },
        )

    def figures(findings: Findings) -> list[Figure]:
        shown: list[Figure] = []
        for name, (runs, source, paper) in families.items():
            what, where = words[name], WIDTH if wider else source.removeprefix("ViT ")

            def ask(training: Training, key: str, factor: float) -> Ask:
                return Ask(training=training, reading=early, key=key, factor=factor)

            pairs = [
                (float(step), ask(t, "nep", 100.0), ask(t, "ape", 1.0)) for step, t in runs.items()
            ]
            said = f"The paper fits APE with an exponent of {paper} and sees NEP fall"
            said += ", at one width." if wider else "."
            shown.append(
                against_figure(
                    findings,
                    {"ViT": pairs},
                    x=what,
                    labels=("NEP, %", "APE"),
                    name=name,
                    title=f"Convexity and flatness by {what} ({where})",
                    reading=said,
                )
            )
            labelled = {f"{step} {name}": t for step, t in runs.items()}
            title = f"Spectra by {what} ({where})"
            shown.append(spectra_figure(findings, labelled, early, title, f"{name}-spectra"))
        return shown

    return Plan(tables=tables, claims=claims, figures=figures)


STUDIES = (
    Study(
        name="pooling",
        title="Does average pooling make the loss of a ViT convex?",
        claim="average pooling in place of the class token suppresses negative eigenvalues "
        "and adds 2.7 points",
        covers=("ViT Fig. 6",),
        plan=pooling,
        data=CIFAR,
    ),
    Study(
        name="convexity",
        title="Do locality and larger patches make the loss convex?",
        claim="5 x 5 attention has fewer negative eigenvalues and a lower error than global",
        covers=("ViT Fig. 7", "ViT Fig. C.3"),
        plan=bias,
        data=CIFAR,
    ),
    Study(
        name="heads",
        title="Do heads make the loss flat and convex?",
        claim="NEP and APE fall with heads (exponent of APE -0.56) and channels a head (-0.80)",
        covers=("ViT Fig. C.5", "ViT Fig. C.6"),
        plan=heads,
        data=CIFAR,
    ),
    Study(
        name="width",
        title="Does width make the loss flat and convex?",
        claim="NEP and APE also fall where a ViT grows wider with its heads",
        covers=(WIDTH,),
        plan=width,
        data=CIFAR,
    ),
)
