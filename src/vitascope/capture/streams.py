"""What a network carries on after a unit: the sum of the unit's branch and what it is added to.

``x + drop_path(scale(attn(norm(x))))``: no module puts this sum out. It is found by following the
unit's output through the calls that use it until it is added to a tensor of its own shape that
does not come from it. Dropping the unit is leaving that sum at its other term, which is exactly
the network built without the branch, whatever stands between (layer scale, a norm, a projection).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from vitascope.capture.features import tensor_in

__all__ = ["following"]

_ADD = {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__}


class _Follow(TorchFunctionMode):
    """Follow the outputs of ``units`` to their sums."""

    def __init__(
        self, units: Mapping[str, nn.Module], on_sum: Callable[..., None], drop: frozenset[str]
    ):
        super().__init__()
        self.on_sum, self.drop = on_sum, drop
        self.open: set[str] = set()
        self.taint: Any = WeakIdKeyDictionary()  # tensor -> units it comes from
        self.handles: list[Any] = []
        for name, module in units.items():
            self.handles += [
                module.register_forward_pre_hook(self._entering),
                module.register_forward_hook(self._leaving(name)),
            ]

    def _from(self, tensor: Any) -> set[str]:
        return self.taint.get(tensor, set()) & self.open if isinstance(tensor, Tensor) else set()

    def _entering(self, _module: nn.Module, inputs: Any) -> None:
        first = tensor_in(inputs)
        if first is not None:
            self.open -= self._from(first)  # used by the next unit before any sum

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, inputs: Any, output: Any) -> None:
            tensor = tensor_in(output)
            if tensor is not None:
                self.open.add(name)
                self.taint[tensor] = {name}

        return hook

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not self.open:
            return func(*args, **kwargs)
        flat = [*args, *kwargs.values()]
        flat += [item for group in flat if isinstance(group, (list, tuple)) for item in group]
        sources = set().union(*(self._from(tensor) for tensor in flat))
        summed = self._summed(func, args) if sources else {}
        dropped = [other for name, other in summed.items() if name in self.drop]
        out = dropped[0] if dropped else func(*args, **kwargs)
        if summed:
            self.open -= set(summed)
            for name in summed:
                self.on_sum(name, out)
        for tensor in [out] if isinstance(out, Tensor) else out if isinstance(out, tuple) else ():
            if isinstance(tensor, Tensor) and (sources or self._from(tensor)):
                self.taint[tensor] = sources - set(summed)
        return out

    def _summed(self, func: Any, args: Any) -> dict[str, Tensor]:
        """Units whose branch this call adds to something else, with that other term."""
        if func not in _ADD or len(args) < 2 or not all(isinstance(a, Tensor) for a in args[:2]):
            return {}
        a, b = args[:2]
        if a.shape != b.shape or isinstance(a, nn.Parameter) or isinstance(b, nn.Parameter):
            return {}
        from_a, from_b = self._from(a), self._from(b)
        return {**dict.fromkeys(from_a - from_b, b), **dict.fromkeys(from_b - from_a, a)}


@contextmanager
def following(
    model: nn.Module,
    names: Iterator[str] | list[str] | tuple[str, ...],
    on_sum: Callable[[str, Tensor], None],
    drop: tuple[str, ...] = (),
) -> Iterator[None]:
    """Call ``on_sum(name, sum)`` when the output of a named module has been added to a shortcut.

    Args:
        model: Any module.
        names: Modules to follow, all of them: where one begins, the one before it ends.
        on_sum: Called with the name and the sum.
        drop: Modules whose branch is left out of its sum.
    """
    units = {name: model.get_submodule(name) for name in names}
    follow = _Follow(units, on_sum, frozenset(drop))
    try:
        with follow:
            yield
    finally:
        for handle in follow.handles:
            handle.remove()
