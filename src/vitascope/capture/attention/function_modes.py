"""Re-entrant guard that disables torch function modes, per thread.

``torch._C.DisableTorchFunction`` restores the state it found on entry, so two of them that are not
left in reverse order leave the modes off for good. Here the calls are counted: the first disables
the modes, the last restores them, in any order between hooks of several recorders.
"""

import threading
from typing import Any

import torch


class _State(threading.local):
    depth = 0
    guard: Any = None


_STATE = _State()


def disable_modes() -> None:
    """Disable torch function modes until :func:`enable_modes` was called as often."""
    if _STATE.depth == 0:
        _STATE.guard = torch._C.DisableTorchFunction()
        _STATE.guard.__enter__()
    _STATE.depth += 1


def enable_modes() -> None:
    """Undo one :func:`disable_modes`."""
    _STATE.depth -= 1
    if _STATE.depth == 0:
        _STATE.guard.__exit__(None, None, None)
        _STATE.guard = None
