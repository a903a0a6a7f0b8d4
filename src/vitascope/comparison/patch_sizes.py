"""Candidates of a comparison at several grids: every transformer of ours, at each patch size."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from vitascope.models import takes_patches

_SUFFIX = "+patch"


class FinerGrid(NamedTuple):
    """A model at two grids, the finer one with smaller patches."""

    model: str
    fine: int  # the side of a patch, in pixels
    coarse: int

    @property
    def names(self) -> tuple[str, str]:
        """Names of both candidates, the finer one first."""
        return f"{self.model}{_SUFFIX}{self.fine}", f"{self.model}{_SUFFIX}{self.coarse}"


def at_patch_sizes(models: Sequence[str], sides: Sequence[int]) -> tuple[str, ...]:
    """The models, each that takes patches of any size once per size.

    >>> at_patch_sizes(["vit_micro+lsa", "resnet_micro"], [2, 4])
    ('vit_micro+lsa+patch2', 'vit_micro+lsa+patch4', 'resnet_micro')
    """
    names: list[str] = []
    for name in models:
        cut = sides and takes_patches(name)
        names += [f"{name}{_SUFFIX}{side}" for side in sides] if cut else [name]
    return tuple(names)


def finer_grids(names: Iterable[str]) -> Iterator[FinerGrid]:
    """Every candidate with the one on the next coarser grid.

    >>> [grid.names for grid in finer_grids(["vit_micro+patch4", "cnn", "vit_micro+patch2"])]
    [('vit_micro+patch2', 'vit_micro+patch4')]
    """
    sides: dict[str, list[int]] = {}
    for name in names:
        model, suffix, side = name.rpartition(_SUFFIX)
        if suffix and side.isdecimal():
            sides.setdefault(model, []).append(int(side))
    for model, sizes in sides.items():
        for fine, coarse in pairwise(sorted(sizes)):
            yield FinerGrid(model, fine, coarse)
