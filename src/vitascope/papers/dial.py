"""Studies of our own: ConViT's lead by patch grid and images, and the kinds of built-in locality.

**Fine grid.** ConViT's lead over a plain ViT was published on a 14 x 14 grid. Here two grids with
few images (fine-grid), the same with more of them (fine-grid-images), and on the fine grid with few
images one change at a time: DeiT's augmentation (fine-grid-augmentation), larger models
(fine-grid-larger), three times the training (fine-grid-longer). At a desk all but the first keep to
the coarse grid, 8 x 8: the fine one takes five times as long. Small models of nine heads, whose
windows are those of a 3 x 3 kernel.

**Locality dial.** Accuracy on few images against the kind of built-in locality, from none to
convolutions. A plain ViT; the same with one change each (:mod:`vitascope.models.vit.dial`): its
weights or positions started otherwise, its attention or its patches changed; gated positions
(ConViT); neighbourhoods; and a CNN. Small models; at a desk on 1,000 images of CIFAR-10 and an
8 x 8 grid: a 16 x 16 grid takes five times as long, and the lead of ConViT on it was not measurably
different (fine-grid).
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from vitascope.figure import Figure
from vitascope.papers.figures import dots_figure, shares_panel
from vitascope.papers.plan import (
    Grid,
    Plan,
    Results,
    TableSpec,
    Training,
    drawing,
    read_claims,
    study,
)
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
    return scale.pick(paper=(fine, coarse), desk=(coarse,))


def _fractions(scale: Scale) -> tuple[float, float]:
    return scale.pick(paper=(0.1, 1.0), desk=(0.02, 0.1))


def _role(kind: str, patch: int) -> Role:
    large, small = _KINDS[kind]
    return tuple((name, {"patch_size": patch}) for name in (large, small, small))  # type: ignore[return-value]


_GRIDS = """
[Fine grid]
with patches of {patch}, ConViT is ahead of ViT
    top1: ConViT > ViT at patches of {patch}
its lead is larger on the finer grid
    top1: ConViT - ViT at patches of {fine} > ConViT - ViT at patches of {coarse}
"""


@study(
    "Is ConViT's lead on few images one of fine grids?",
    claim="ConViT leads on few images on a fine grid, less on a coarse one",
    covers=("Fine grid",),
    data=IMAGENET,
)
def fine_grid(scale: Scale) -> Plan:
    """Top-1 of both on two grids, on few images."""
    few, patches = _fractions(scale)[0], _patches(scale)
    rows = {kind: [scale.few(_role(kind, p), fraction=few) for p in patches] for kind in _KINDS}
    runs = Grid([f"patches of {patch}" for patch in patches], rows, corner="model")
    fine, coarse = patches
    return Plan(
        tables=[runs.table("top1", f"Top-1 on {percent(few)} of the images")],
        claims=read_claims(_GRIDS, patch=list(patches), fine=fine, coarse=coarse),
    )


_AHEAD = """
[Fine grid]
with patches of {patch} on {share} of the images, ConViT is ahead of ViT
    top1: ConViT, patch {patch} > ViT, patch {patch} at {share}
"""
_SHRINKS = """
[Fine grid]
with patches of {p} its lead shrinks with more images
    top1: ConViT, patch {p} - ViT, patch {p} at {few} > ConViT, patch {p} - ViT, patch {p} at {more}
"""


@study(
    "Does ConViT's lead shrink with more images?",
    claim="the lead is smaller with more images, on a fine and on a coarse grid",
    covers=("Fine grid, more images",),
    data=IMAGENET,
)
def fine_grid_images(scale: Scale) -> Plan:
    """Top-1 of both by grid and by share of the images."""
    patches, fractions = _affordable(scale), _fractions(scale)
    rows = {
        f"{kind}, patch {patch}": [scale.few(_role(kind, patch), fraction=f) for f in fractions]
        for patch in patches
        for kind in _KINDS
    }
    few, more = map(percent, fractions)
    table = Grid([few, more], rows, corner="model").table("top1", "Top-1 by grid and images")
    return Plan(
        tables=[table],
        claims=[
            *read_claims(_AHEAD, patch=list(patches), share=[few, more]),
            *read_claims(_SHRINKS, p=list(patches), few=few, more=more),
        ],
        figures=[drawing(_leads_figure, table, patches, fractions)],
    )


def _leads_figure(
    results: Results, table: TableSpec, patches: Sequence[int], fractions: Sequence[float]
) -> Figure:
    """A panel per grid, a line per network."""
    panels = []
    for patch in patches:
        rows = {kind: table.row(f"{kind}, patch {patch}") for kind in _KINDS}
        panels.append(shares_panel(results, f"Patches of {patch}", rows, fractions, model=False))
    title, text = "The lead over grid and images", "The gap between the lines is ConViT's lead."
    return Figure(name="grid", title=title, panels=tuple(panels), reading=text)


_CHANGED = """
[Fine grid]
{change}: ConViT is ahead of ViT
    changes: {change} at ConViT > {change} at ViT
{change}: its lead is smaller
    changes: {usual} at ConViT - {usual} at ViT > {change} at ConViT - {change} at ViT
"""


def _one_change(
    scale: Scale,
    usual: str,
    as_usual: Callable[[str], Training],
    change: str,
    changed: Callable[[str], Training],
) -> Plan:
    """Top-1 of both with few images, as usual and with one change."""
    rows = {usual: [as_usual(k) for k in _KINDS], change: [changed(k) for k in _KINDS]}
    few = percent(_fractions(scale)[0])
    table = Grid([*_KINDS], rows, corner="change").table("changes", f"Top-1 on {few} of the images")
    title = f"ConViT and ViT: {usual}, {change}"
    text = "Each dot is one seed, with its own images."
    return Plan(
        tables=[table],
        claims=read_claims(_CHANGED, usual=usual, change=change),
        figures=[drawing(dots_figure, table, table.columns, title, text)],
    )


def _usual(scale: Scale, kind: str, **options: Any) -> Training:
    """Few images, on the finest grid that is affordable."""
    return scale.few(_role(kind, _affordable(scale)[0]), fraction=_fractions(scale)[0], **options)


def _larger(scale: Scale, kind: str) -> Training:
    patch, few = _affordable(scale)[0], _fractions(scale)[0]
    if scale.name == "desk":
        spec = _AT_A_DESK[kind], {"patch_size": patch}
        return scale.few((spec, spec, spec), fraction=few)
    return scale.few(_LARGER[kind], fraction=few, patch_size=patch)


def _longer(scale: Scale, kind: str) -> Training:
    usual = _usual(scale, kind)
    return usual.but(epochs=3 * usual.full_recipe.epochs)


@study(
    "Does DeiT's augmentation change ConViT's lead on few images?",
    claim="the lead stands under DeiT's augmentation, and is smaller",
    covers=("Fine grid, augmentation",),
    data=IMAGENET,
)
def fine_grid_augmentation(scale: Scale) -> Plan:
    """Top-1 of both with crops and flips, and with DeiT's augmentation."""
    # the paper's recipe has DeiT's augmentation already
    weak, strong = (WEAK, {}) if scale.is_paper else ({}, STRONG)
    return _one_change(
        scale,
        "crops and flips",
        lambda kind: _usual(scale, kind, changes=weak),
        "DeiT's augmentation",
        lambda kind: _usual(scale, kind, changes=strong),
    )


@study(
    "Do larger models change ConViT's lead on few images?",
    claim="the lead stands in larger models, and is smaller",
    covers=("Fine grid, larger models",),
    data=IMAGENET,
)
def fine_grid_larger(scale: Scale) -> Plan:
    """Top-1 of both as small as usual, and larger."""
    usual, changed = partial(_usual, scale), partial(_larger, scale)
    return _one_change(scale, "usual models", usual, "larger models", changed)


@study(
    "Does longer training close ConViT's lead on few images?",
    claim="the lead stands after three times the training, and is smaller",
    covers=("Fine grid, longer training",),
    data=IMAGENET,
)
def fine_grid_longer(scale: Scale) -> Plan:
    """Top-1 of both trained as long as usual, and three times as long."""
    usual, changed = partial(_usual, scale), partial(_longer, scale)
    return _one_change(scale, "usual training", usual, "three times as long", changed)


_CHANGES = ("mimetic", "sincos", "impulse", "lsa", "spt", "stem", "rope")
_OTHERS = {  # at the paper's scale, and small
    "gated": ("convit_tiny", "convit_micro"),
    "neighbourhood": ("convolutional_vit_tiny", "convolutional_vit_micro"),
    "convolutions": ("resnet_preact_18", "resnet_micro"),
}


_DIAL = """
[Locality dial]
{kind} is ahead of a plain ViT on {few} of the images
    top1: {kind} > plain at {few}
{mimetic} is ahead of +sincos, its table alone, on {few} of the images
    top1: {mimetic} > +sincos at {few}
the lead of {kind} shrinks with more images
    top1: {kind} - plain at {few} > {kind} - plain at {more}
"""


@study(
    "How much locality, put in how?",
    claim="every way to put locality into a ViT helps on few images, less on more",
    covers=("Locality dial",),
    data=IMAGENET,
    seeds={"desk": 3},
)
def locality_dial(scale: Scale) -> Plan:
    """Top-1 of every kind of locality against the number of images."""
    fractions = scale.pick(paper=(0.05, 0.1, 1.0), laptop=(0.1, 1.0), desk=(0.02,))
    changes = scale.pick(paper=_CHANGES, smoke=("impulse", "lsa"))
    others = scale.pick(paper=_OTHERS, smoke={"gated": _OTHERS["gated"]})
    patch: dict[str, Any] = scale.pick(paper={}, laptop={"patch_size": 2}, desk={"patch_size": 4})
    networks = {"plain": ("deit_tiny", "vit_micro")}
    networks |= {f"+{name}": (f"deit_tiny+{name}", f"vit_micro+{name}") for name in changes}
    networks |= others
    rows = {}
    for label, (large, small) in networks.items():
        cut = {} if label == "convolutions" else patch
        role: Role = ((large, {}), (small, cut), (small, cut))
        rows[label] = [scale.few(role, fraction=f) for f in fractions]
    shares = [percent(f) for f in fractions]
    table = Grid(shares, rows, corner="locality").table("top1", "Top-1 of every kind of locality")
    title = "The dial of locality"
    if len(fractions) == 1:
        text = "Each dot is one seed; above those of plain, its kind of locality helps."
        figure = drawing(dots_figure, table, shares, title, text)
    else:
        figure = drawing(_dial_figure, table, fractions, title)
    return Plan(
        tables=[table],
        claims=read_claims(
            _DIAL,
            kind=[label for label in networks if label != "plain"],
            few=shares[0],
            # +mimetic and +sincos start with the same table of positions
            mimetic=[label for label in networks if label == "+mimetic"],
            more=shares[1:][-1:],
        ),
        figures=[figure],
    )


def _dial_figure(
    results: Results, table: TableSpec, fractions: Sequence[float], title: str
) -> Figure:
    rows = {label: table.row(label) for label in table.rows}
    panel = shares_panel(results, "Top-1 by share of the images", rows, fractions, model=False)
    text = "A line above that of plain attention: its kind of locality helps."
    return Figure(name="dial", title=title, panels=(panel,), reading=text)
