"""Reasons to stop a run early: a signal, or a diverged loss."""

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from vitascope.errors import UserError

__all__ = ["Diverged", "StopRequest", "catch_stop_signals", "diverged"]


class Diverged(UserError):
    """The loss or the weights are not finite, or the loss is far above that of guessing."""


class StopRequest:
    """Request to stop the run; a second Ctrl-C interrupts Python at once."""

    def __init__(self) -> None:
        self.signal_name = ""
        self.typed = False  # Ctrl-C

    def __bool__(self) -> bool:
        return bool(self.signal_name)

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Remember a signal, so that training stops after this step."""
        if self.typed and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.typed |= number == signal.SIGINT
        self.signal_name = self.signal_name or signal.Signals(number).name


@contextmanager
def catch_stop_signals() -> Iterator[StopRequest]:
    """Inside the block, Ctrl-C, SIGTERM and SIGHUP set the request instead of interrupting a step.

    Ignored signals stay ignored: workers leave Ctrl-C to the process that started them.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    heard = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, request) for number in heard}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def diverged(loss: float, step: int, lr: float, limit: float, checkpoint: Path | None) -> Diverged:
    """The error for a loss that ends the run, with what to try."""
    problem = "is not a number" if not math.isfinite(loss) else f"{loss:.3g} is above {limit:.3g}"
    where = f"; the last good weights are in {checkpoint}" if checkpoint else ""
    return Diverged(
        f"the loss {problem} at step {step} with lr {lr:.3g}: try a lower lr, a longer warm-up, "
        f"clip_grad=1.0 or mixed_precision=no{where}"
    )
