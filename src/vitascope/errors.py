"""The error type for a user's mistake; its message is shown without a traceback."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any
from unicodedata import category

__all__ = ["Interrupted", "UserError", "printable", "reason", "unknown"]


class UserError(ValueError):
    """Something the user gave cannot work; the message says what, and what would.

    The command line prints it as one line and exits with code 2.
    """


class Interrupted(KeyboardInterrupt):
    """The run was stopped and saved first; ``finished``: it had just ended."""

    def __init__(
        self, folder: Path, step: int, signal_name: str, *, finished: bool = False
    ) -> None:
        self.folder, self.step, self.signal_name = folder, step, signal_name
        self.finished = finished
        self.hint = f"the same command with --resume continues from step {step}"
        if finished:
            self.hint = "the run is finished"
        super().__init__(f"stopped by {signal_name} at step {step}, saved in {folder}; {self.hint}")

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickling, from a worker process to its parent."""
        how = partial(type(self), finished=self.finished)
        return how, (self.folder, self.step, self.signal_name)


def printable(text: object) -> str:
    """Return a text in which control characters are shown instead of sent to the terminal.

    >>> printable("red\\x1b[31m, tab\\tand line")
    'red\\\\x1b[31m, tab\\tand line'
    """
    return "".join(
        c.encode("unicode_escape").decode()
        if category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t"
        else c
        for c in str(text)
    )


def reason(error: BaseException) -> str:
    """Return the message of a library's error in one short line.

    >>> reason(ValueError("bad\\n  header"))
    'bad header'
    """
    message = " ".join(str(error).split()) or type(error).__name__
    return message if len(message) <= 200 else message[:199] + "…"


def listed(names: Sequence[str], most: int = 20) -> str:
    """Names with commas, the first ones of many.

    >>> listed(["a", "b"]), listed(["a", "b", "c"], most=2)
    ('a, b', 'a, b, … (3 in all)')
    """
    more = f", … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unknown(kind: str, given: str, possible: Iterable[str]) -> UserError:
    """An error for an unknown name, with the nearest known names.

    >>> print(unknown("model", "convit_tyni", ["convit_tiny", "resnet18"]))
    unknown model 'convit_tyni'; did you mean 'convit_tiny'?
    >>> print(unknown("recipe", "x", ["deit", "laptop"]))
    unknown recipe 'x'; there are: deit, laptop
    """
    names = sorted(possible)
    near = get_close_matches(given, names, n=3, cutoff=0.6)
    if near:
        hint = "did you mean " + " or ".join(repr(name) for name in near) + "?"
    else:
        hint = f"there are: {listed(names)}"
    return UserError(f"unknown {kind} {given!r:.80}; {hint}")
