"""Options of a command, from the words of the command line or the arguments of a Python call."""

import ast
import dataclasses
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import MISSING, fields, make_dataclass
from difflib import get_close_matches
from inspect import cleandoc, getsource
from io import StringIO
from itertools import pairwise
from numbers import Integral, Number
from pathlib import Path
from shutil import get_terminal_size
from textwrap import fill
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    TypeVar,
    get_origin,
    get_type_hints,
)

import tyro
from tyro.conf import Positional

from vitascope.atomic import check_writable
from vitascope.errors import UserError, printable, unknown
from vitascope.runs.options import EngineOptions
from vitascope.settings import check, check_type, command_line, taken, types_in

if TYPE_CHECKING:
    from vitascope.commands.result import Result

Request = TypeVar("Request")


def parse(kind: type[Request], name: str, words: Sequence[str]) -> Request:
    """Words of the command line as a request; its docstring is the help.

    A mistake is a :class:`UserError` of one line; help ends with :class:`SystemExit`.
    """
    try:
        if {"-h", "--help"} & {*words}:
            _print_help(kind, name)
        request, unknown_words = _read(kind, words, name)
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(f"{_mistake(kind, words)} ({name} --help tells more)") from None
    if unknown_words:
        raise UserError(f"{_unrecognized(kind, unknown_words)} ({name} --help tells more)")
    check(request, _option)
    _check_out(request)
    return request


def _check_out(request: Any) -> None:
    """Refuse an ``out`` that cannot be written, before anything is computed."""
    out = getattr(request, "out", None)
    if isinstance(out, Path) and (out.is_file() or not out.exists() or out.is_dir()):
        check_writable(out)


def show(result: "Result", *, as_json: bool, quiet: bool) -> None:
    """Print a result: JSON, or a summary, notes unless quiet, and where the page is."""
    if as_json:
        print(json.dumps(result.values, allow_nan=False))
        return
    lines = [result.summary, *(() if quiet else result.notes), result.written or ""]
    print(printable("\n".join(str(line) for line in lines if line)))


def _read(kind: type[Request], words: Sequence[str], name: str = "") -> tuple[Request, list[str]]:
    """The request, and words that it does not know; other mistakes end in SystemExit(2)."""
    with redirect_stderr(StringIO()):  # tyro's own words for a mistake take many lines
        return tyro.cli(
            kind,
            prog=name,
            description=cleandoc(kind.__doc__ or ""),
            args=list(words),
            config=(tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone),
            return_unknown_args=True,
        )


def _print_help(kind: Any, name: str) -> None:
    """Print the help of a command, paragraphs wrapped to the terminal, and exit."""
    try:
        with redirect_stdout(StringIO()) as printed:
            _read(_help_of(kind), ["--help"], name)
    finally:
        width = min(get_terminal_size().columns, 100)
        for line in printed.getvalue().splitlines():
            print(line.rstrip() if line.startswith((" ", "╭", "│", "╰")) else fill(line, width))


def _help_of(kind: Any) -> Any:
    """Return the options as their help shows them: those named in ``common`` first, in boxes.

    Paragraphs wrap as one, and a default that says nothing (None, empty, False) is left out.
    """
    texts = option_texts(kind)
    hints = get_type_hints(kind, include_extras=True)
    common: list[Any] = []
    further: list[Any] = []
    for each in fields(kind):
        conf = tyro.conf.arg(
            help=texts[each.name], help_behavior_hint=_shown_default, prefix_name=False
        )
        default: dict[str, Any] = {} if each.default is MISSING else {"default": each.default}
        box = common if each.name in getattr(kind, "common", hints) else further
        box.append((each.name, Annotated[hints[each.name], conf], dataclasses.field(**default)))
    if further:
        common.append(("further", make_dataclass("Further", further, kw_only=True)))
    made = make_dataclass(kind.__name__, common, kw_only=True)
    made.__doc__ = kind.__doc__
    return made


def option_texts(kind: Any) -> dict[str, str]:
    """Return the help of each option, those of a cluster last."""
    hints = get_type_hints(kind, include_extras=True)
    texts: dict[str, str] = {}
    for each in sorted(kind.__mro__[-2::-1], key=lambda each: each is EngineOptions):
        definition: Any = ast.parse(getsource(each)).body[0]
        below = {
            ast.unparse(attribute.target): str(ast.literal_eval(text.value))
            for attribute, text in pairwise(definition.body)
            if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr)
        }
        for name in each.__annotations__:
            marks = getattr(hints[name], "__metadata__", ())
            shared = (getattr(mark, "help", None) for mark in marks)
            text = below.get(name) or next(filter(None, shared), "")
            texts[name] = " ".join(text.split())
    return texts


def _shown_default(default: str) -> str:
    return "" if default in ("", "None", "False") else f"(default: {default})"


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _unrecognized(kind: Any, unknown_words: Sequence[str]) -> str:
    """Return the error for arguments that no option takes, with the closest option."""
    names = [field.name.replace("_", "-") for field in fields(kind)]
    asked = unknown_words[0].partition("=")[0]
    near = get_close_matches(asked[2:], names, n=1) if asked.startswith("--") else []
    hint = f"; did you mean '--{near[0]}'?" if near else ""
    return f"Unrecognized options: {' '.join(unknown_words)}{hint}"


def _mistake(kind: Any, words: Sequence[str]) -> str:
    """Why words make no request: every option is tried by itself, then what is needed is sought."""
    hints = get_type_hints(kind, include_extras=True)
    first = next((name for name, hint in hints.items() if _positional(hint)), None)
    given = set()
    for option, values in _options(words):
        name = option[2:].replace("-", "_") if option else first
        if name not in hints or not (option or values):
            continue
        given.add(name)
        if bool in types_in(hints[name]):
            continue  # a switch: what follows is another argument
        try:
            _read(make_dataclass("One", [(name, hints[name])]), [option, *values][not option :])
        except SystemExit:
            text = repr(" ".join(values)) if values else "nothing"
            return f"{option or name.upper()} takes {taken(hints[name])}, not {text}"
    missing = [name for name in needed(kind) if name not in given]
    if not missing:
        return f"these words are not understood: {' '.join(words)}"
    called = [name.upper() if _positional(hints[name]) else _option(name) for name in missing]
    return f"Required options were not provided: {', '.join(called)}"


def _positional(hint: Any) -> bool:
    return tyro.conf.Positional in getattr(hint, "__metadata__", ())


def _options(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each option with the words after it; at first those before any.

    >>> list(_options(["a", "--seeds", "1", "-2", "--out=b"]))
    [('', ['a']), ('--seeds', ['1', '-2']), ('--out', ['b'])]
    """
    option, values = "", list[str]()
    for word in words:
        if not word.startswith("--"):
            values.append(word)
            continue
        yield option, values
        option, equals, value = word.partition("=")
        values = [value] if equals else []
    yield option, values


def from_python(kind: type[Request], arguments: Mapping[str, Any]) -> Request:
    """A request of this kind; lists become tuples, one name for several a tuple, text a path.

    >>> from vitascope.commands.compare import Compare
    >>> made = from_python(Compare, {"data": "digits", "models": ["vit_micro"], "out": "runs/c"})
    >>> made.models, made.out == Path("runs/c"), made.seeds
    (('vit_micro',), True, (0, 1, 2))

    Raises:
        UserError: If an argument is unknown or missing, or a value out of its range.
    """
    hints = get_type_hints(kind, include_extras=True)
    for name in arguments:
        if name not in hints:
            raise unknown("argument", name, hints)
    missing = [name for name in needed(kind) if name not in arguments]
    if missing:
        raise UserError(f"{kind.__name__.lower()} needs {' and '.join(missing)}")
    made = kind(**{name: _fitted(value, hints[name], name) for name, value in arguments.items()})
    check(made)
    _check_out(made)
    return made


def _fitted(value: Any, hint: Any, name: str) -> Any:
    """Return a value in the type of its field: one for several becomes a tuple, text a path.

    Raises:
        UserError: If the value has another type.
    """
    several = next((kind for kind in types_in(hint) if get_origin(kind) is tuple), None)
    if several is not None and value is not None:
        given = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
        value = tuple(value) if given else (value,)
    elif isinstance(value, os.PathLike) and str in types_in(hint):
        value = os.fspath(value)
    check_type(value, hint, name)
    if Path in types_in(hint) and value is not None:
        if not os.fspath(value):
            raise UserError(f"{name} is an empty path; give a file or a folder")
        return Path(value)
    if isinstance(value, Number) and not isinstance(value, int | float):  # one of numpy's
        return int(value) if isinstance(value, Integral) else float(value)  # type: ignore[arg-type]
    return value


def needed(kind: Any) -> list[str]:
    """The fields of a request that have no default."""
    return [field.name for field in fields(kind) if field.default is MISSING]


def typed_line(command: str, request: Any) -> str:
    """The command line that makes this request; options with their defaults are left out.

    >>> from vitascope.commands.inspect import Inspect
    >>> typed_line("inspect", Inspect(model="runs/a", images=8, quiet=True))
    'vitascope inspect runs/a --images 8 --quiet'
    """
    hints = get_type_hints(type(request), include_extras=True)
    line, options = ["vitascope", *command.split()], []
    for field in fields(request):
        value = getattr(request, field.name)
        if Positional in getattr(hints[field.name], "__metadata__", ()):
            line += map(str, value if isinstance(value, tuple) else [value])
        elif value != field.default:
            options.append((f"--{field.name.replace('_', '-')}", value))
    return command_line(line, options)
