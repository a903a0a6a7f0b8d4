"""The command line: ``vitascope COMMAND ...``, one file per command.

This file lists the commands; a command's file is imported when it is called, and torch only when it
runs, so that help is immediate. A command's file has its class of options and `run()`. Options that
other packages take too are in the `options.py` next to the code that takes them; the command's
class inherits them. The Python functions (:mod:`vitascope.commands.python`) are made from the same
classes. Nothing imports this package.
"""

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from vitascope.errors import UserError, printable, unknown
from vitascope.settings import recorded_as

__all__ = ["COMMANDS", "main", "options_of"]

COMMANDS = {  # in the order of use
    "data": "check your images: balance, sizes, unreadable files, duplicates",
    "compare": "find out which model suits your images, and why",
    "train": "train one model; an interrupted run can be resumed",
    "predict": "classify image files with a trained model",
    "evaluate": "measure accuracy, calibration and robustness",
    "inspect": "look inside any model: attention, frequencies, similarity and more",
    "report": "make one web page from runs, inspections, comparisons and studies",
    "export": "write a trained model as ONNX, safetensors or for the Hugging Face hub",
    "study": "reproduce a table or figure of the papers on your images",
    "models": "list the models with their parameters, FLOPs and speed",
}
# Classes of options whose name is not their command's: another class has that name.
OPTIONS = {"data": "DataOptions", "study": "StudyOptions"}


def usage() -> str:
    """Return the text of ``vitascope --help``."""
    lines = [f"  {name:<10} {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "usage: vitascope COMMAND [options]",
            "",
            "Build, train and look inside vision models between a convolution and a transformer.",
            "",
            *lines,
            "",
            "vitascope COMMAND --help tells more, with an example; vitascope --version.",
        ]
    )


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Inside, a warning of ours is one line without its place in the source."""
    before, ours = warnings.formatwarning, str(Path(__file__).parents[1])

    def worded(message: Warning | str, category: type[Warning], file: str, *more: object) -> str:
        if file.startswith(ours):
            return printable(f"note: {message}\n")
        return before(message, category, file, *more)  # type: ignore[arg-type]

    warnings.formatwarning = worded  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.formatwarning = before


def options_of(name: str) -> type[Any]:
    """The options of a command, or of a study that has its own (buildup, spectra)."""
    module = import_module(f"vitascope.commands.{name}")
    options: type[Any] = getattr(module, OPTIONS.get(name, name.title()))
    return options


def _run(name: str, words: Sequence[str]) -> None:
    """Parse the words after a command's name, run it and print the result."""
    command = import_module(f"vitascope.commands.{name}")
    if name == "study":  # the next word names its options
        command.main(words)
        return
    from vitascope.commands.parsing import parse, show

    options = parse(options_of(name), f"vitascope {name}", words)
    result = command.run(options)
    if result is not None:
        show(result, as_json=options.json, quiet=options.quiet)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 2 for a user's mistake, 130 when interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("--version", "-V"):
        from vitascope import __version__

        print(f"vitascope {__version__}")
        return 0
    try:
        if words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        with recorded_as(shlex.join(["vitascope", *words])), plain_warnings():
            _run(words[0], words[1:])
    except UserError as error:
        print(printable(f"vitascope: {error}"), file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader, `head` for instance, has seen enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(printable(f"vitascope: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt as stop:
        print(f"vitascope: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130
    return 0
