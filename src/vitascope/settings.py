"""Settings as they are typed: dotted names, FIELD=VALUE, and the command line that takes them."""

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = ["COMMAND", "changed", "command_line", "flat", "typed", "with_option"]

COMMAND = "VITASCOPE_COMMAND"  # environment: the line that was typed, for records made by it


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
    """A value as ``--set`` takes it: YAML on one line.

    >>> typed((1, 2)), typed(None), typed(True), typed("cosine"), typed("no"), typed(["*gate"])
    ('[1, 2]', 'null', 'true', 'cosine', "'no'", "['*gate']")
    """
    import yaml  # help must be immediate

    plain = json.loads(json.dumps(value))  # tuples are lists
    line = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=math.inf)
    return str(line).removesuffix("\n").removesuffix("\n...")


def changed(wanted: Mapping[str, Any], usual: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """FIELD=VALUE for every setting that is not the usual one.

    >>> changed({"lr": 0.1, "subset": {"fraction": 0.5}}, {"lr": 0.1})
    ('subset.fraction=0.5',)
    """
    before, missing = flat(usual or {}), object()
    return tuple(
        f"{name}={typed(value)}"
        for name, value in flat(wanted).items()
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


def with_option(line: str, option: str, value: Any) -> str:
    """A command with an option at its end, unless it has that already.

    >>> with_option("vitascope train --seed 1", "--threads", 2)
    'vitascope train --seed 1 --threads 2'
    >>> with_option("vitascope train --threads=1 --seed 1", "--threads", 2)
    'vitascope train --threads=1 --seed 1'
    """
    there = any(word.partition("=")[0] == option for word in shlex.split(line))
    return line if there else f"{line} {option} {shlex.quote(str(value))}"
