"""Suffixes of model names, which combine: ``vit_mini+impulse+spt+cb_s:mid``.

    NAME[+CHANGE]...[+patchN][+KIND[:POSITION][:WHERE]]

``patchN`` gives a transformer of ours patches of N x N pixels: ``vit_mini+patch4``. CHANGE puts
locality into a ViT of ours, ``mimetic`` or ``rope`` for instance; all are in the dial
(:mod:`vitascope.models.vit.dial`). KIND inserts context broadcasting into any model: ``cb``,
``cb_s``, ``cb_gate`` or ``cb_hybrid``; POSITION ``front``, ``mid`` or ``end``; WHERE ``mlp``,
``msa`` or ``both``: the arguments of :func:`vitascope.broadcast`, with its defaults. Their
order does not matter.
"""

import re
from typing import Any, NamedTuple, get_args

from vitascope.errors import UserError, unknown
from vitascope.layers.context_broadcasting.broadcast import Kind
from vitascope.layers.context_broadcasting.broadcasting import Position, Where
from vitascope.models.vit.dial import DIAL, check_changes


class ModelName(NamedTuple):
    """A model's name, split into its parts."""

    base: str
    changes: tuple[str, ...] = ()  # keys of DIAL
    broadcast: dict[str, Any] | None = None  # arguments of `vitascope.broadcast`
    patch_size: int | None = None


def read_name(name: str) -> ModelName:
    """Take the suffixes off a name.

    A path may hold a plus of its own: there only the known words are suffixes.

    >>> read_name("deit_tiny+lsa+cb_s:mid:both")
    ModelName(base='deit_tiny', changes=('lsa',), broadcast={'kind': 'cb_s', 'position': 'mid', \
'where': 'both'}, patch_size=None)
    >>> read_name("local-dir:a+b/c").base
    'local-dir:a+b/c'
    """
    base, broadcast, patch = name, None, None
    changes: list[str] = []
    while "+" in base:
        rest, _, suffix = base.rpartition("+")
        word, *places = suffix.split(":")
        if word in DIAL and not places:
            changes.insert(0, word)
        elif word in get_args(Kind):
            if broadcast is not None:
                raise UserError(f"{name!r} has context broadcasting twice; give it once")
            broadcast = {"kind": word, **_places(name, places)}
        elif re.fullmatch(r"patch[1-9]\d{0,3}", suffix):
            if patch is not None:
                raise UserError(f"{name!r} has two patch sizes; give one")
            patch = int(suffix.removeprefix("patch"))
        elif ":" in rest:
            break
        else:
            raise unknown("suffix", suffix, [*DIAL, *get_args(Kind), "patch2"])
        base = rest
    check_changes(changes)
    return ModelName(base, tuple(changes), broadcast, patch)


def _places(name: str, words: list[str]) -> dict[str, str]:
    """Position and where, in any order."""
    options = {"position": get_args(Position), "where": get_args(Where)}
    chosen: dict[str, str] = {}
    for word in words:
        key = next((k for k, values in options.items() if word in values), None)
        if key is None:
            raise unknown(
                "place of context broadcasting", word, [*options["position"], *options["where"]]
            )
        if key in chosen:
            raise UserError(f"{name!r} has two of {', '.join(options[key])}; give one")
        chosen[key] = word
    return chosen
