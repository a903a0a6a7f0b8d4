"""Suffixes of model names that insert context broadcasting: ``deit_tiny+cb_s:mid:both``.

    NAME+KIND[:POSITION][:WHERE]

KIND is ``cb``, ``cb_s``, ``cb_gate`` or ``cb_hybrid``; POSITION ``front``, ``mid`` or ``end``;
WHERE ``mlp``, ``msa`` or ``both``: the arguments of :func:`vitascope.broadcast`, with its defaults.
"""

from typing import Any, get_args

from vitascope.errors import UserError, unknown
from vitascope.layers.context_broadcasting.broadcast import Kind
from vitascope.layers.context_broadcasting.broadcasting import Position, Where

__all__ = ["split_suffix"]


def split_suffix(name: str) -> tuple[str, dict[str, Any] | None]:
    """The name without its suffix, and the suffix as arguments of :func:`vitascope.broadcast`.

    A path may hold a plus of its own: there only the known kinds are suffixes.

    >>> split_suffix("deit_tiny+cb_s:mid:both")
    ('deit_tiny', {'kind': 'cb_s', 'position': 'mid', 'where': 'both'})
    >>> split_suffix("local-dir:a+b/c")
    ('local-dir:a+b/c', None)
    """
    base, plus, suffix = name.rpartition("+")
    kind, *words = suffix.split(":")
    kinds = get_args(Kind)
    options = {"position": get_args(Position), "where": get_args(Where)}
    if not plus or (":" in base and kind not in kinds):
        return name, None
    if kind not in kinds:
        raise unknown("kind of context broadcasting", kind, kinds)
    found = {"kind": kind}
    for word in words:
        key = next((k for k, known in options.items() if word in known), None)
        if key is None:
            raise unknown(
                "place of context broadcasting", word, [*options["position"], *options["where"]]
            )
        if key in found:
            raise UserError(f"{name!r} has two of {', '.join(options[key])}; give one")
        found[key] = word
    return base, found
