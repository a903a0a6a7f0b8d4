"""Progress of anything long: a bar with the time left on a terminal or in a notebook.

Work is counted in any unit (images, steps, multiply-adds): what matters for the time left is that
equal amounts take about equally long. Elsewhere a plain line is printed every half minute, so a
log shows that something happens; a quiet one prints nothing.
"""

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any, TextIO

from vitascope.errors import printable

OnStep = Callable[[str, int, int], None]  # what is done, steps done, steps in all

SECONDS = 30.0  # between two lines off a terminal
_RATE = "{desc}{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
_SHARE = "{desc}{percentage:3.0f}%|{bar}| [{elapsed}<{left}{postfix}]"


class Progress:
    """Progress bar of some work; use it in a ``with`` block.

    Args:
        what: The work, in a word.
        total: How much there is; :meth:`show` may change it on the way.
        start: How much was done before.
        unit: Of the work, if its rate is of interest: ``"img"`` shows images per second.
        quiet: Show nothing.
        stream: Where to; standard error when left out.
    """

    def __init__(
        self,
        what: str = "",
        total: float = 0,
        *,
        start: float = 0,
        unit: str = "",
        quiet: bool = False,
        stream: TextIO | None = None,
    ) -> None:
        self.what, self.total, self.done, self.quiet = what, total, start, quiet
        self.stream = stream or sys.stderr
        self.began, self.start = monotonic(), start
        self.said, self.running = self.began, False
        self.moved, self.last = self.began, 0.0  # when the last step ended, and how much it was
        self.bar: Any = None  # tqdm's
        if not quiet and (self.stream.isatty() or in_notebook()):
            self.bar = _bar_of(self)(
                total=total,
                initial=start,
                desc=what or None,
                unit=unit or "it",
                unit_scale=True,
                bar_format=_RATE if unit else _SHARE,
                dynamic_ncols=True,
                mininterval=0.2,
                smoothing=0,  # the mean rate
                leave=bool(unit),
                file=self.stream,
            )

    def advance(self, amount: float = 1, step: str = "") -> None:
        """Some more is done, or one ``step`` begins."""
        self.show(step, self.done + amount, self.total)

    def step(self, step: str) -> None:
        """Count one more step."""
        self.advance(1, step)

    def show(self, step: str, done: float, total: float) -> None:
        """So much is done of all; a callback for whatever counts its steps itself."""
        if not self.running and done > self.start:
            self._begin(done)
        if done > self.done:
            self.moved, self.last = monotonic(), done - self.done
        self.done, self.total = done, total
        if self.bar is not None:
            self.bar.total = total
            if step:
                self.bar.set_postfix_str(step, refresh=False)
            self.bar.update(done - self.bar.n)
        elif not self.quiet and monotonic() - self.said >= SECONDS:
            self.tell(self.line(step))

    def _begin(self, done: float) -> None:
        """The first work is done: what came before was preparation and says nothing of the rest."""
        self.running, self.began, self.start = True, monotonic(), done
        if self.bar is not None:
            self.bar.start_t, self.bar.initial = self.bar._time(), done

    @property
    def left(self) -> float | None:
        """Seconds that the rest will take at the mean rate so far; None while nothing is known.

        The step under way is taken to be as long as the last one, and to end now if it is late.
        """
        fresh = self.done - self.start
        if fresh <= 0 or self.total <= self.done:
            return None
        now, rate = monotonic(), (self.moved - self.began) / fresh  # seconds a unit
        under_way = min(self.last, (now - self.moved) / rate) if rate else 0.0
        ahead = max(0.0, self.total - self.done - under_way)
        return (now - self.began) * ahead / (fresh + under_way)

    def line(self, step: str = "") -> str:
        """Describe how much is done and how long the rest will take."""
        share = min(1.0, self.done / self.total) if self.total else 0.0
        parts = [f"{self.what or 'done'}: {100 * share:.0f} %"]
        if self.left is not None:
            parts.append(f"{time_in_words(self.left)} left")
        return ", ".join([*parts, *([step] if step else [])])

    def tell(self, line: str) -> None:
        """Print one line, above the bar if there is one."""
        self.said, line = monotonic(), printable(line)
        if self.bar is not None:
            self.bar.write(line, file=self.stream)
        elif not self.quiet:
            print(line, file=self.stream, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()


def on_terminal(what: str, total: float) -> Progress:
    """Progress of work that a command does on the way: without plain lines."""
    return Progress(what, total, quiet=not (sys.stderr.isatty() or in_notebook()))


def in_notebook() -> bool:
    """Return whether this is a notebook's process."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def _bar_of(progress: Progress) -> Any:
    """tqdm's bar, with the time left as :class:`Progress` has it."""
    from tqdm import tqdm

    kind: Any = tqdm
    if in_notebook():
        from tqdm.auto import tqdm as kind  # a widget where there are widgets

    class Bar(kind):  # type: ignore[misc]
        @property
        def format_dict(self) -> Any:
            left = progress.left
            remaining = "?" if left is None else tqdm.format_interval(left)
            return {**super().format_dict, "left": remaining}

    return Bar


class Steps:
    """Counts steps whose number becomes known on the way.

    >>> told = []
    >>> steps = Steps(lambda what, done, total: told.append((what, done, total)), total=1)
    >>> steps("images"), steps("fgsm", 2), steps("fgsm", 1)
    (None, None, None)
    >>> told
    [('images', 1, 1), ('fgsm', 2, 3), ('fgsm', 3, 3)]
    """

    def __init__(self, on_step: OnStep, total: int):
        self.on_step, self.done, self.total = on_step, 0, total

    def __call__(self, what: str, ahead: int | None = None) -> None:
        """One more step; ``ahead`` are left, this one included."""
        if ahead is not None:
            self.total = self.done + ahead
        self.done += 1
        self.on_step(what, self.done, max(self.done, self.total))


def time_in_words(seconds: float, units: tuple[str, str, str] = ("s", "min", "h")) -> str:
    """A time in the unit that suits it.

    >>> time_in_words(40), time_in_words(400), time_in_words(40_000)
    ('40 s', '7 min', '11.1 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} {units[0]}"
    if seconds < 5400:
        return f"{seconds / 60:.0f} {units[1]}"
    return f"{seconds / 3600:.1f} {units[2]}"
