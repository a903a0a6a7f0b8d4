"""Settings as they are typed: dotted names, FIELD=VALUE, and the command line that takes them."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["COMMAND", "changed", "command_line", "flat", "typed"]

COMMAND = "VITASCOPE_COMMAND"  # environment: the line that was typed, for records made by it
_NO_STRINGS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}  # to YAML


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flat({"lr": 0.1, "subset": {"fraction": 0.5}})
    {'lr': 0.1, 'subset.fraction': 0.5}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{above}{name}.") if nested else {above + str(name): value}
    return found


def typed(value: Any) -> str:
    """A value as ``--set`` takes it: as YAML, quoted only where that would be read as another.

    >>> typed([1, 2]), typed(None), typed(True), typed("cosine"), typed("no"), typed(["*gate"])
    ('[1,2]', 'null', 'true', 'cosine', '"no"', '["*gate"]')
    """
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(typed, value)) + "]"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z_][\w./-]*", value) and value.lower() not in _NO_STRINGS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(value).lower()


def changed(wanted: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """FIELD=VALUE for every setting that is not the usual one.

    >>> changed({"lr": 0.1, "subset": {"fraction": 0.5}}, {"lr": 0.1})
    ('subset.fraction=0.5',)
    """
    before, missing = flat(usual or {}), object()
    after = flat(wanted)
    return tuple(
        f"{name}={typed(value)}"
        for name, value in after.items()
        if before.get(name, missing) != value
    )


def command_line(words: Sequence[str], options: Iterable[tuple[str, Any]]) -> str:
    """A command; options that are None, False or empty are left out.

    >>> command_line(["vitascope", "train"], [("--model", "a b"), ("--seed", 0), ("--quiet", None)])
    "vitascope train --model 'a b' --seed 0"
    """
    said = [shlex.quote(str(word)) for word in words]
    for name, value in options:
        if value is None or value is False or value == ():
            continue
        many = value if isinstance(value, (tuple, list)) else [value]
        said += [name, *([] if value is True else (shlex.quote(str(item)) for item in many))]
    return " ".join(said)
