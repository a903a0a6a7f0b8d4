"""Exclusive access to a model for one thread at a time.

Hooks and train/eval modes belong to the modules, not to a thread: two threads that inspect one
model would each see what the other runs, and restore what the other has set. So the second one gets
an error. Forward passes of threads that only run the model are not recorded.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from vitascope.capture.input_check import require_hooks
from vitascope.errors import UserError

_lock = threading.Lock()
_held: dict[int, tuple[int, int]] = {}  # id of a module -> thread, and how many of its blocks


@contextmanager
def exclusive_access(model: nn.Module) -> Iterator[None]:
    """Run the block while no other thread may inspect ``model`` or any part of it.

    Raises:
        UserError: If another thread does already.
    """
    require_hooks(model)
    modules, me = list(model.modules()), threading.get_ident()
    with _lock:
        if any(_held.get(id(module), (me, 0))[0] != me for module in modules):
            raise UserError(
                f"another thread is looking into this {type(model).__name__}: give each thread a "
                "copy of its own (copy.deepcopy), or let them take turns"
            )
        for module in modules:
            _held[id(module)] = me, _held.get(id(module), (me, 0))[1] + 1
    try:
        yield
    finally:
        with _lock:
            for module in modules:
                _, blocks = _held.pop(id(module))
                if blocks > 1:
                    _held[id(module)] = me, blocks - 1


def only_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that acts only in the thread that created it."""
    me = threading.get_ident()

    def mine(*args: Any, **kwargs: Any) -> Any:
        return hook(*args, **kwargs) if threading.get_ident() == me else None

    return mine
