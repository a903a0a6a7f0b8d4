"""ConViT's lead over a ViT on fine and coarse patch grids, with few and more images.

ConViT's lead over a plain ViT was published on a 14 x 14 grid. Here two grids with few images
(fine-grid), the same with more of them (fine-grid-images), and on the fine grid with few images one
change at a time: DeiT's augmentation, larger models, three times the training (fine-grid-changes).
At a desk the last two keep to the coarse grid, 8 x 8: the fine one takes five times as long.
Small models of nine heads, whose windows are those of a 3 x 3 kernel.
"""

from dataclasses import replace

from vitascope.figure import Figure
from vitascope.studies.papers.figures import dots_figure, shares_panel
from vitascope.studies.papers.plan import Findings, Plan, Sheet, Study, Training, claimed
from vitascope.studies.papers.scale import IMAGENET, Role, Scale, percent
from vitascope.studies.papers.vit.networks import augmented

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


def changes(scale: Scale) -> Plan:
    """Top-1 of both with few images, one change at a time."""
    patch, few = _affordable(scale)[0], _fractions(scale)[0]

    def usual(kind: str) -> Training:
        return scale.few(_role(kind, patch), fraction=few)

    def larger(kind: str) -> Training:
        if scale.name == "desk":
            spec = _AT_A_DESK[kind], {"patch_size": patch}
            return scale.few((spec, spec, spec), fraction=few)
        return scale.few(_LARGER[kind], fraction=few, patch_size=patch)

    def augmenting(kind: str) -> Training:
        return scale.few(_role(kind, patch), fraction=few, changes=augmented(scale, strong=True))

    def longer(kind: str) -> Training:
        found = usual(kind)
        return found.but(epochs=3 * found.full_recipe.epochs)

    ways = {"as it is": usual, "larger models": larger, "three times as long": longer}
    if not scale.is_paper:  # whose recipe is DeiT's
        ways["DeiT's augmentation"] = augmenting
    runs = {label: [way(kind) for kind in _KINDS] for label, way in ways.items()}
    title = f"Top-1 on {percent(few)} of the images, patches of {patch}"
    table = Sheet.of_grid("changes", title, list(_KINDS), runs, corner="change")
    cells = {label: ((label, "ConViT"), (label, "ViT")) for label in ways}
    found = {
        f"ConViT is ahead of ViT: {label}": table.above(label, label, "ConViT", "ViT")
        for label in ways
    }
    found |= {
        f"its lead shrinks: {label}": table.further(*cells["as it is"], *cells[label])
        for label in list(ways)[1:]
    }

    def figures(findings: Findings) -> list[Figure]:
        text = "Each dot is one seed, with its own images."
        title = "ConViT and ViT, one change at a time"
        return [dots_figure(findings, table, table.columns, title, text)]

    return Plan(tables=[table], claims=claimed("Fine grid", found), figures=figures)


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
        name="fine-grid-changes",
        title="What changes ConViT's lead on few images?",
        claim="the lead stands under other augmentation, in larger models and longer training",
        covers=("Fine grid, one change at a time",),
        plan=changes,
        data=IMAGENET,
    ),
)
