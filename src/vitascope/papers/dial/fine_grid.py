"""ConViT's lead over a ViT on fine and coarse patch grids, with few and more images.

ConViT's lead over a plain ViT was published on a 14 x 14 grid. Here two grids with few images
(fine-grid), the same with more of them (fine-grid-images), and on the fine grid with few images one
change at a time: DeiT's augmentation (fine-grid-augmentation), larger models (fine-grid-larger),
three times the training (fine-grid-longer). At a desk all but the first keep to the coarse grid,
8 x 8: the fine one takes five times as long. Small models of nine heads, whose windows are those of
a 3 x 3 kernel.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from vitascope.figure import Figure
from vitascope.papers.figures import dots_figure, shares_panel
from vitascope.papers.plan import Findings, Plan, Sheet, Study, Training, claimed
from vitascope.papers.scale import IMAGENET, Role, Scale, percent
from vitascope.papers.vit.networks import STRONG, WEAK

_KINDS = {"ViT": ("deit_small", "vit_micro"), "ConViT": ("convit_small", "convit_micro")}
_LARGER = {"ViT": "DeiT-B", "ConViT": "ConViT-B"}
_AT_A_DESK = {"ViT": "vit_mini", "ConViT": "convit_mini"}


def _patches(scale: Scale) -> tuple[int, int]:
    """The side of a patch on the fine and on the coarse grid."""
    return scale.pick(paper=(16, 32), laptop=(1, 2), desk=(2, 4), smoke=(2, 4))


def _affordable(scale: Scale) -> tuple[int, ...]:
    """The patches of studies with many runs: the coarse grid alone at a desk."""
    fine, coarse = _patches(scale)
    return scale.pick(paper=(fine, coarse), laptop=(fine, coarse), desk=(coarse,))


def _fractions(scale: Scale) -> tuple[float, float]:
    return scale.pick(paper=(0.1, 1.0), laptop=(0.1, 1.0), desk=(0.02, 0.1))


def _role(kind: str, patch: int) -> Role:
    large, small = _KINDS[kind]
    return tuple((name, {"patch_size": patch}) for name in (large, small, small))  # type: ignore[return-value]


def grids(scale: Scale) -> Plan:
    """Top-1 of both on two grids, on few images."""
    few, patches = _fractions(scale)[0], _patches(scale)
    columns = [f"patches of {patch}" for patch in patches]
    runs = {
        kind: [scale.few(_role(kind, patch), fraction=few) for patch in patches] for kind in _KINDS
    }
    title = f"Top-1 on {percent(few)} of the images"
    table = Sheet.of_grid("top1", title, columns, runs, corner="model")
    found = {
        f"with {column}, ConViT is ahead of ViT": table.above("ConViT", "ViT", column)
        for column in columns
    }
    both = [(kind, column) for column in columns for kind in ("ConViT", "ViT")]
    found["its lead is larger on the finer grid"] = table.further(*both)
    return Plan(tables=[table], claims=claimed("Fine grid", found))


def images(scale: Scale) -> Plan:
    """Top-1 of both by grid and by share of the images."""
    patches, fractions = _affordable(scale), _fractions(scale)
    runs = {
        f"{kind}, patch {patch}": [scale.few(_role(kind, patch), fraction=f) for f in fractions]
        for patch in patches
        for kind in _KINDS
    }
    few, more = map(percent, fractions)
    table = Sheet.of_grid("top1", "Top-1 by grid and images", [few, more], runs, corner="model")

    def both(patch: int, share: str) -> tuple[tuple[str, str], tuple[str, str]]:
        return (f"ConViT, patch {patch}", share), (f"ViT, patch {patch}", share)

    found = {
        f"with patches of {patch} on {share} of the images, ConViT is ahead of ViT": table.above(
            f"ConViT, patch {patch}", f"ViT, patch {patch}", share
        )
        for patch in patches
        for share in (few, more)
    }
    found |= {
        f"with patches of {patch} its lead shrinks with more images": table.further(
            *both(patch, few), *both(patch, more)
        )
        for patch in patches
    }

    def figures(findings: Findings) -> list[Figure]:
        panels = []
        for patch in patches:
            shown = [
                replace(row, label=row.label.partition(",")[0])
                for row in table.rows
                if row.label.endswith(f" {patch}")
            ]
            title = f"Patches of {patch}"
            panels.append(shares_panel(findings, title, shown, fractions, model=False))
        title, text = "The lead over grid and images", "The gap between the lines is ConViT's lead."
        return [Figure(name="grid", title=title, panels=tuple(panels), reading=text)]

    return Plan(tables=[table], claims=claimed("Fine grid", found), figures=figures)


def _usual(scale: Scale, kind: str, **how: Any) -> Training:
    """Few images, on the finest grid that is affordable."""
    return scale.few(_role(kind, _affordable(scale)[0]), fraction=_fractions(scale)[0], **how)


def _augmented(scale: Scale, strong: bool) -> Callable[[str], Training]:
    usual = scale.is_paper == strong  # the paper's recipe has DeiT's augmentation already
    changes = {} if usual else STRONG if strong else WEAK
    return lambda kind: _usual(scale, kind, changes=changes)


def _larger(scale: Scale, kind: str) -> Training:
    patch, few = _affordable(scale)[0], _fractions(scale)[0]
    if scale.name == "desk":
        spec = _AT_A_DESK[kind], {"patch_size": patch}
        return scale.few((spec, spec, spec), fraction=few)
    return scale.few(_LARGER[kind], fraction=few, patch_size=patch)


def _longer(scale: Scale, kind: str) -> Training:
    found = _usual(scale, kind)
    return found.but(epochs=3 * found.full_recipe.epochs)


def _one_change(scale: Scale, ways: Mapping[str, Callable[[str], Training]]) -> Plan:
    """Top-1 of both with few images, as usual (the first of ``ways``) and with one change."""
    usual, change = ways
    runs = {label: [way(kind) for kind in _KINDS] for label, way in ways.items()}
    title = f"Top-1 on {percent(_fractions(scale)[0])} of the images"
    table = Sheet.of_grid("changes", title, list(_KINDS), runs, corner="change")
    leads = [(label, kind) for label in ways for kind in ("ConViT", "ViT")]
    found = {
        f"{change}: ConViT is ahead of ViT": table.above(change, change, "ConViT", "ViT"),
        f"{change}: its lead is smaller": table.further(*leads),
    }

    def figures(findings: Findings) -> list[Figure]:
        text = "Each dot is one seed, with its own images."
        title = f"ConViT and ViT: {usual}, {change}"
        return [dots_figure(findings, table, table.columns, title, text)]

    return Plan(tables=[table], claims=claimed("Fine grid", found), figures=figures)


def augmentation(scale: Scale) -> Plan:
    """Top-1 of both with crops and flips, and with DeiT's augmentation."""
    ways = {"crops and flips": False, "DeiT's augmentation": True}
    return _one_change(scale, {label: _augmented(scale, strong) for label, strong in ways.items()})


def larger(scale: Scale) -> Plan:
    """Top-1 of both as small as usual, and larger."""
    ways = {"usual models": partial(_usual, scale), "larger models": partial(_larger, scale)}
    return _one_change(scale, ways)


def longer(scale: Scale) -> Plan:
    """Top-1 of both trained as long as usual, and three times as long."""
    ways = {
        "usual training": partial(_usual, scale),
        "three times as long": partial(_longer, scale),
    }
    return _one_change(scale, ways)


STUDIES = (
    Study(
        name="fine-grid",
        title="Is ConViT's lead on few images one of fine grids?",
        claim="ConViT leads on few images on a fine grid, less on a coarse one",
        covers=("Fine grid",),
        plan=grids,
        data=IMAGENET,
    ),
    Study(
        name="fine-grid-images",
        title="Does ConViT's lead shrink with more images?",
        claim="the lead is smaller with more images, on a fine and on a coarse grid",
        covers=("Fine grid, more images",),
        plan=images,
        data=IMAGENET,
    ),
    Study(
        name="fine-grid-augmentation",
        title="Does DeiT's augmentation change ConViT's lead on few images?",
        claim="the lead stands under DeiT's augmentation, and is smaller",
        covers=("Fine grid, augmentation",),
        plan=augmentation,
        data=IMAGENET,
    ),
    Study(
        name="fine-grid-larger",
        title="Do larger models change ConViT's lead on few images?",
        claim="the lead stands in larger models, and is smaller",
        covers=("Fine grid, larger models",),
        plan=larger,
        data=IMAGENET,
    ),
    Study(
        name="fine-grid-longer",
        title="Does longer training close ConViT's lead on few images?",
        claim="the lead stands after three times the training, and is smaller",
        covers=("Fine grid, longer training",),
        plan=longer,
        data=IMAGENET,
    ),
)
