"""A request from the keyword arguments of a Python call, which are the command line's words."""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from tyro.conf import Positional

from vitascope.errors import UserError, unknown
from vitascope.settings import check, command_line

Request = TypeVar("Request")


def from_python(kind: type[Request], words: Mapping[str, Any]) -> Request:
    """A request of this kind; lists become tuples, one name for several a tuple, text a path.

    >>> from vitascope.requests.compare import Compare
    >>> made = from_python(Compare, {"data": "digits", "models": ["vit_micro"], "out": "runs/c"})
    >>> made.models, made.out == Path("runs/c"), made.seeds
    (('vit_micro',), True, (0, 1, 2))

    Raises:
        UserError: If an argument is unknown or missing, or a value out of its range.
    """
    hints = get_type_hints(kind, include_extras=True)
    for name in words:
        if name not in hints:
            raise unknown("argument", name, hints)
    missing = [name for name in needed(kind) if name not in words]
    if missing:
        raise UserError(f"{kind.__name__.lower()} needs {' and '.join(missing)}")
    made = kind(**{name: _fitted(value, hints[name], name) for name, value in words.items()})
    check(made)
    return made


def _fitted(value: Any, hint: Any, name: str) -> Any:
    """A value in the types of its field."""
    taken = kinds(hint)
    if value is None:
        return None
    for kind in taken:
        if get_origin(kind) is tuple:
            many = value if isinstance(value, list | tuple) else (value,)
            return tuple(_fitted(item, get_args(kind)[0], name) for item in many)
        if get_origin(kind) is Literal and value not in get_args(kind):
            raise unknown(name, str(value), map(str, get_args(kind)))
    if Path in taken:
        return Path(value)
    return str(value) if isinstance(value, Path) else value


def kinds(hint: Any) -> list[Any]:
    """The types that a field takes, without what they are annotated with.

    >>> kinds(Annotated[int, "seed"] | None)
    [<class 'int'>, <class 'NoneType'>]
    """
    if get_origin(hint) is Annotated:
        return kinds(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [kind for part in get_args(hint) for kind in kinds(part)]
    return [hint]


def needed(kind: Any) -> list[str]:
    """The fields of a request that have no default."""
    return [field.name for field in fields(kind) if field.default is MISSING]


def typed_line(command: str, request: Any) -> str:
    """The command line that makes this request; options with their defaults are left out.

    >>> from vitascope.requests.inspect import Inspect
    >>> typed_line("inspect", Inspect(model="runs/a", images=8, quiet=True))
    'vitascope inspect runs/a --images 8 --quiet'
    """
    hints = get_type_hints(type(request), include_extras=True)
    words, options = ["vitascope", *command.split()], []
    for field in fields(request):
        value = getattr(request, field.name)
        if Positional in getattr(hints[field.name], "__metadata__", ()):
            words += map(str, value if isinstance(value, tuple) else [value])
        elif value != field.default:
            options.append((f"--{field.name.replace('_', '-')}", value))
    return command_line(words, options)
