"""Code blocks and commands of the pages, for tests that try what the pages show."""

import re
import shlex
from importlib import import_module
from pathlib import Path

from vitascope.commands import COMMANDS, options_of
from vitascope.commands.parsing import parse


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def understand(line: str) -> None:
    """Read a line that begins with ``vitascope`` as the command line reads it."""
    program, name, *words = shlex.split(line)
    assert program == "vitascope"
    assert name in COMMANDS
    if name == "study":
        import_module("vitascope.commands.study").understand(words)
    else:
        parse(options_of(name), name, words)
