"""Modes switched off between two hooks, which may be several people's and leave in any order.

``torch._C.DisableTorchFunction`` restores what it found when it was entered, so two that are not
left in reverse order leave the modes off for good. Here the first one in enters it and the last
one out leaves it.
"""

import threading
from typing import Any

import torch

__all__ = ["disable_modes", "enable_modes"]


class _State(threading.local):
    depth = 0
    guard: Any = None


_STATE = _State()


def disable_modes() -> None:
    """No mode sees what follows, until as many calls of :func:`enable_modes`."""
    if _STATE.depth == 0:
        _STATE.guard = torch._C.DisableTorchFunction()
        _STATE.guard.__enter__()
    _STATE.depth += 1


def enable_modes() -> None:
    """Take one :func:`disable_modes` back."""
    _STATE.depth -= 1
    if _STATE.depth == 0:
        _STATE.guard.__exit__(None, None, None)
        _STATE.guard = None
