"""Typed settings: ranges of numbers, and their form on the command line.

The range of a setting is part of its type, for Python, ``--set`` and options alike:

    >>> @dataclass(frozen=True)
    ... class Options:
    ...     seed: Seed = 0
    ...     drop_path: Annotated[float, Within(0, 1, open_high=True)] = 0.0
    >>> check(Options(drop_path=float("nan")), "options field {}".format)
    Traceback (most recent call last):
    vitascope.errors.UserError: options field drop_path must be in [0, 1), not nan
"""

import json
import math
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import lru_cache, partial, wraps
from inspect import Parameter, signature
from numbers import Integral, Real
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from vitascope.errors import UserError, unknown

COMMAND = "VITASCOPE_COMMAND"  # environment: the line that was typed, for records made by it


@dataclass(frozen=True)
class Within:
    """The range of a number, as a part of its type: ``Annotated[float, Within(0, 1)]``."""

    low: float
    high: float = math.inf
    open_low: bool = False  # low itself is out
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = self.low < value if self.open_low else self.low <= value
        return above and (value < self.high if self.open_high else value <= self.high)

    def __str__(self) -> str:
        """Describe the range, for error messages.

        >>> print(Within(1), Within(0), Within(0, open_low=True), Within(0, 1), sep="; ")
        at least 1; 0 or more; above 0; from 0 to 1
        >>> print(Within(0, 1, open_high=True))
        in [0, 1)
        """
        if self.high == math.inf:
            bound = "0 or more" if self.low == 0 else f"at least {self.low}"
            return f"above {self.low}" if self.open_low else bound
        if not (self.open_low or self.open_high):
            return f"from {self.low} to {self.high}"
        left, right = "(" if self.open_low else "[", ")" if self.open_high else "]"
        return f"in {left}{self.low}, {self.high}{right}"


Count = Annotated[int, Within(1, 2**31 - 1)]
Seed = Annotated[int, Within(0, 2**32 - 1)]  # what numpy and torch both take
Side = Annotated[int, Within(1, 4096)]  # of an image, in pixels
Workers = Annotated[int, Within(0, 1024)]  # 0: none besides the process itself
Processes = Annotated[int, Within(1, 1024)]
Tolerance = Annotated[float, Within(0, 1, open_low=True, open_high=True)]  # relative error


def check(settings: Any, called: Callable[[str], str] = str) -> None:
    """Refuse a dataclass of settings with a number outside of its range, or that is no number.

    Several values with nothing among them are refused too, unless that is what is usual: an empty
    ``--models`` asks for no models, and must not be taken for all.

    Args:
        settings: Ranges are in the types of its fields; settings inside settings are looked at too.
        called: How a field is called in the message, from its (dotted) name.

    Raises:
        UserError: Naming the field, its range and the value.
    """
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        name, value = field.name, getattr(settings, field.name)
        if (
            isinstance(value, tuple)
            and not value
            and field.default is not MISSING
            and field.default != ()
        ):
            raise UserError(f"{called(name)} needs at least one value; leave it out for the usual")
        if is_dataclass(value):
            check(value, partial(_inside, called, name))
        else:
            check_value(value, hints[name], called(name))


def _inside(called: Callable[[str], str], outer: str, name: str) -> str:
    return called(f"{outer}.{name}")


def check_value(value: Any, hint: Any, name: str) -> None:
    """Refuse one value outside of the range that its type names.

    >>> check_value((0, -1), tuple[Seed, ...], "--seeds")
    Traceback (most recent call last):
    vitascope.errors.UserError: --seeds must be from 0 to 4294967295, not -1
    """
    if isinstance(value, (tuple, list)):
        parts = [part for part in (hint, *get_args(hint)) if get_origin(part) is tuple]
        kind = get_args(parts[0])[0] if parts else Any  # one type for all items
        for item in value:
            check_value(item, kind, name)
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return
    for bounds in _ranges(hint):
        if value not in bounds:
            raise UserError(f"{name} must be {bounds}, not {value!r:.80}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, not {value!r:.80}")


F = TypeVar("F", bound=Callable[..., Any])


def checked(function: F) -> F:
    """Check the types and ranges of a function's plain arguments at each call.

    Numbers, texts, switches, choices and sequences of these are checked by their annotations, as
    the command line checks its options. Other arguments (models, tensors, mappings) are not.

    >>> @checked
    ... def draw(seed: Seed, sizes: Iterable[float] = (0.5,)) -> str:
    ...     return f"{seed} {sizes}"
    >>> draw(3, sizes=[0.25])
    '3 [0.25]'
    >>> draw("3")
    Traceback (most recent call last):
    vitascope.errors.UserError: seed takes a whole number, not '3'
    """
    parameters = signature(function)

    @lru_cache(maxsize=1)
    def hints() -> dict[str, Any]:
        given = {k: v for k, v in function.__annotations__.items() if k != "return"}
        holder = SimpleNamespace(__annotations__=given)
        return get_type_hints(holder, function.__globals__, include_extras=True)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        for name, value in given.items():
            hint = hints().get(name)
            kind = parameters.parameters[name].kind
            if hint is not None and kind not in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
                check_type(value, hint, name)
                check_value(value, hint, name)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


_PLAIN: dict[type, Any] = {  # what is taken for each type
    bool: bool,
    int: Integral,
    float: Real,
    str: str,
    Path: str | os.PathLike,
}
_CALLED = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def check_type(value: Any, hint: Any, name: str) -> None:
    """Refuse a value that none of a field's plain types takes.

    >>> check_type([1, "a"], tuple[int, ...] | None, "--seeds")
    Traceback (most recent call last):
    vitascope.errors.UserError: --seeds takes whole numbers, not [1, 'a']
    """
    members = types_in(hint)
    choices = [
        choice for kind in members if get_origin(kind) is Literal for choice in get_args(kind)
    ]
    if choices and isinstance(value, str) and value not in choices:
        raise unknown(name, value, map(str, choices))
    if not any(_takes(value, member) for member in members):
        raise UserError(f"{name} takes {taken(hint)}, not {value!r:.80}")


def _takes(value: Any, kind: Any) -> bool:
    """Return whether a plain type takes a value; True for types that are not plain."""
    if kind is type(None):
        return value is None
    if kind in _PLAIN:
        of_switch = isinstance(value, bool) == (kind is bool)
        return isinstance(value, _PLAIN[kind]) and of_switch and "\0" not in str(value)
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return isinstance(value, str | int | None) and value in inner
    if origin in (tuple, list, Sequence, Iterable) and inner[:1] != (Any,):
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            return False
        fixed = origin is tuple and inner[1:] != (...,)
        if isinstance(value, Iterator):
            return True  # its items are checked when they are read
        many = list(value) if isinstance(value, Collection) else []
        if fixed and len(many) != len(inner):
            return False
        return all(any(_takes(item, part) for part in types_in(inner[0])) for item in many)
    if origin is Mapping or origin is dict:
        return isinstance(value, Mapping)
    if origin is Callable:
        return callable(value)
    return True


def taken(hint: Any) -> str:
    """Describe the values that a type takes.

    >>> taken(int | None), taken(tuple[float, float]), taken(Literal["a", "b"])
    ('a whole number', '2 numbers', 'a or b')
    """
    kind = next(kind for kind in types_in(hint) if kind is not type(None))
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (tuple, list, Sequence, Iterable) and inner:
        one, *others = inner
        each = taken(one).removeprefix("a ")
        many = f"{1 + len(others)} " if origin is tuple and others != [...] else ""
        return f"{many}{each}" if get_origin(one) is Literal else f"{many}{each}s"
    if origin is Literal:
        *most, last = map(str, inner)
        return f"{', '.join(most)} or {last}" if most else last
    return _CALLED.get(kind, f"a {getattr(kind, '__name__', kind)}")


def types_in(hint: Any) -> list[Any]:
    """Return the types that an annotation takes, without what they are annotated with.

    >>> types_in(Annotated[int, "seed"] | None)
    [<class 'int'>, <class 'NoneType'>]
    """
    if get_origin(hint) is Annotated:
        return types_in(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [kind for part in get_args(hint) for kind in types_in(part)]
    return [hint]


def _ranges(hint: Any) -> list[Within]:
    """The ranges in a type: its own, and those of the members of a union."""
    if get_origin(hint) is Annotated:
        own = [item for item in hint.__metadata__ if isinstance(item, Within)]
        return own + _ranges(hint.__origin__)
    if get_origin(hint) is tuple:
        return []
    return [bounds for part in get_args(hint) for bounds in _ranges(part)]


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names.

    >>> flat({"lr": 0.1, "subset": {"fraction": 0.5}})
    {'lr': 0.1, 'subset.fraction': 0.5}
    """
    flattened: dict[str, Any] = {}
    for name, value in settings.items():
        nested = isinstance(value, Mapping)
        flattened |= flat(value, f"{above}{name}.") if nested else {above + str(name): value}
    return flattened


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


def pairs(settings: Sequence[str], option: str) -> dict[str, Any]:
    """``NAME=VALUE`` words as a mapping, values read as YAML.

    >>> pairs(["lr=1e-3", "ema=null", "global_pool=avg"], "--set")
    {'lr': '1e-3', 'ema': None, 'global_pool': 'avg'}
    """
    import yaml  # help must be immediate

    values = {}
    for word in settings:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"{option} takes NAME=VALUE, not {word!r}")
        try:
            values[name.strip()] = yaml.safe_load(value)
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: the 99th of a month
            raise UserError(f"{option} {word!r}: the value cannot be read") from None
    return values


def command_line(command: Sequence[str], options: Iterable[tuple[str, Any]]) -> str:
    """A command; options that are None, False or empty are left out.

    >>> command_line(["vitascope", "train"], [("--model", "a b"), ("--seed", 0), ("--quiet", None)])
    "vitascope train --model 'a b' --seed 0"
    """
    parts = [shlex.quote(str(word)) for word in command]
    for name, value in options:
        if value is None or value is False or value == ():
            continue
        many = value if isinstance(value, (tuple, list)) else [value]
        parts += [name, *([] if value is True else (shlex.quote(str(item)) for item in many))]
    return " ".join(parts)


def with_option(line: str, option: str, value: Any) -> str:
    """A command with an option at its end, unless it has that already.

    >>> with_option("vitascope train --seed 1", "--threads", 2)
    'vitascope train --seed 1 --threads 2'
    >>> with_option("vitascope train --threads=1 --seed 1", "--threads", 2)
    'vitascope train --threads=1 --seed 1'
    """
    is_given = any(word.partition("=")[0] == option for word in shlex.split(line))
    return line if is_given else f"{line} {option} {shlex.quote(str(value))}"


def with_changes(line: str, changes: Mapping[str, Any]) -> str:
    """Return a command with options set to other values; those it has already are replaced.

    >>> with_changes("vitascope compare --seeds 0 --data a", {"--seeds": (0, 1), "--out": "b c"})
    "vitascope compare --data a --seeds 0 1 --out 'b c'"
    """
    kept, skipped = [], False
    for word in shlex.split(line):
        if word.startswith("--"):
            skipped = word.partition("=")[0] in changes
        if not skipped:
            kept.append(word)
    return command_line(kept, changes.items())


@contextmanager
def recorded_as(line: str) -> Iterator[None]:
    """Records made in this block, here or in processes started here, keep this command line."""
    before = os.environ.get(COMMAND)
    os.environ[COMMAND] = line
    try:
        yield
    finally:
        os.environ.pop(COMMAND)
        if before is not None:
            os.environ[COMMAND] = before
