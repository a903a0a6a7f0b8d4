"""Names for the runs of a module that is called more than once in a forward pass.

The first run has the module's name, the second is ``name@2``, as in
:func:`vitascope.capture.attention`.
"""

import re
from contextlib import ExitStack
from typing import Any

from torch import nn

from vitascope.capture.threads import only_this_thread

_NUMBER = re.compile(r"@\d+$")


def module_of(run: str) -> str:
    """The name of the module that runs.

    >>> module_of("blocks.1.attn@2"), module_of("blocks.1.attn")
    ('blocks.1.attn', 'blocks.1.attn')
    """
    return _NUMBER.sub("", run)


class ModuleRuns:
    """Count the runs of modules within each pass of ``model``, until ``stack`` is closed."""

    def __init__(self, model: nn.Module, stack: ExitStack):
        self.counts: dict[str, int] | None = None  # None while the whole model is not running
        begin, end = only_this_thread(self._begin), only_this_thread(self._end)
        stack.callback(model.register_forward_pre_hook(begin, prepend=True).remove)
        stack.callback(model.register_forward_hook(end, always_call=True).remove)

    def _begin(self, *_: Any) -> None:
        self.counts = {}

    def _end(self, *_: Any) -> None:
        self.counts = None

    def name(self, module: str) -> str:
        """The name of the run that begins (or ends) now; call once per run."""
        if self.counts is None:
            return module
        self.counts[module] = count = self.counts.get(module, 0) + 1
        return module if count == 1 else f"{module}@{count}"
