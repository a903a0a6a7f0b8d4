"""Candidates of a comparison at several grids: every transformer of ours, at each patch size."""

from collections.abc import Sequence

from vitascope.models import takes_patches


def at_patch_sizes(models: Sequence[str], sides: Sequence[int]) -> tuple[str, ...]:
    """The models, each that takes patches of any size once per size.

    >>> at_patch_sizes(["vit_micro+lsa", "resnet_micro"], [2, 4])
    ('vit_micro+lsa+patch2', 'vit_micro+lsa+patch4', 'resnet_micro')
    """
    found: list[str] = []
    for name in models:
        cut = sides and takes_patches(name)
        found += [f"{name}+patch{side}" for side in sides] if cut else [name]
    return tuple(found)
