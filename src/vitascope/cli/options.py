"""What the commands share: parsing, and a sign of life on the way."""

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from inspect import cleandoc
from io import StringIO
from typing import TypeVar

import tyro

from vitascope.errors import UserError
from vitascope.settings import check

__all__ = ["note", "parse", "progress"]

Options = TypeVar("Options")


def parse(kind: type[Options], name: str, words: Sequence[str]) -> Options:
    """Words of the command line as a dataclass; its docstring is the help.

    A mistake is a :class:`UserError` of one line; help ends with :class:`SystemExit`.
    """
    complaint = StringIO()
    try:
        with redirect_stderr(complaint):
            options = tyro.cli(
                kind,
                prog=name,
                description=cleandoc(kind.__doc__ or ""),
                args=list(words),
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        lines = [line.strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines()]
        said = [line for line in lines[1:] if line and not line.startswith("For full helptext")]
        raise UserError(f"{' '.join(said)} ({name} --help tells more)") from None
    check(options, lambda field: f"--{field.replace('_', '-')}")
    return options


def note(what: str, total: int, *, quiet: bool) -> Callable[[str], None]:
    """A progress bar on a terminal, nothing elsewhere: call it with the name of each step."""
    if quiet or not sys.stderr.isatty():
        return lambda step: None
    from tqdm import tqdm

    bar = tqdm(total=total, desc=what, leave=False, file=sys.stderr)

    def advance(step: str) -> None:
        bar.set_postfix_str(step)
        bar.update()
        if bar.n >= total:
            bar.close()

    return advance


def progress(
    what: str, *, quiet: bool
) -> tuple[Callable[[str, int, int], None], Callable[[], None]]:
    """A bar whose length may change on the way, and what closes it; nothing off a terminal."""
    if quiet or not sys.stderr.isatty():
        return lambda step, done, total: None, lambda: None
    from tqdm import tqdm

    bar = tqdm(total=0, desc=what, leave=False, file=sys.stderr)

    def advance(step: str, done: int, total: int) -> None:
        bar.total = total
        bar.set_postfix_str(step, refresh=False)
        bar.update(done - bar.n)

    return advance, bar.close
