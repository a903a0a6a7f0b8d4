"""The residual stream after a unit: the sum of the unit's branch and its shortcut.

``x + drop_path(scale(attn(norm(x))))``: no module outputs this sum. It is found by following the
unit's output through the calls that use it until it is added to a tensor of the same shape that
does not depend on it. Replacing the sum by its other term is exactly the network built without the
branch, whatever lies between (layer scale, a norm, a projection).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from vitascope.capture.attention.function_modes import disable_modes, enable_modes
from vitascope.capture.repeated_calls import ModuleRuns, module_of
from vitascope.capture.structure.features import features, matching, tensor_in
from vitascope.capture.threads import exclusive_access, only_this_thread
from vitascope.errors import UserError

__all__ = ["follow_sums", "streams", "without"]

_ADD = {torch.add, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__iadd__, Tensor.__radd__}

_FAST = (nn.MultiheadAttention, nn.TransformerEncoderLayer)  # hooks change their code path

OnSum = Callable[[str, Tensor, bool], None]


def _storage(tensor: Tensor) -> str:
    return f"storage {tensor.untyped_storage().data_ptr()}"


class _SumFollower(TorchFunctionMode):
    """Follow the outputs of named modules, run by run, to the sums they go into."""

    def __init__(
        self,
        runs: ModuleRuns,
        on_sum: OnSum,
        drop: Iterable[str] = (),
        is_learned: Callable[[Tensor], bool] = lambda _: False,
    ):
        super().__init__()
        self.is_learned = is_learned
        self.runs, self.on_sum, self.drop = runs, on_sum, frozenset(drop)
        self.open: set[str] = set()  # ran, not yet summed or used by the next unit
        self.fed: dict[str, set[str]] = {}  # units whose output went into this one unsummed
        self.read: dict[str, set[str]] = {}  # units and learned tensors that it was computed from
        self.sources_of: Any = WeakIdKeyDictionary()  # tensor -> units it comes from
        self.around: dict[str, Tensor] = {}  # inputs of convolutions: is the shortcut around them?
        self.inside: list[tuple[nn.Module, str]] = []  # units that are running
        self.num_opaque_running = 0  # of these, layers run with modes disabled

    def attach(self, stack: ExitStack, name: str, module: nn.Module) -> None:
        """Hook one module; nothing inside it is followed, so it runs unchanged."""
        guarded = any(isinstance(m, _FAST) for m in module.modules())

        def entering(_module: nn.Module, inputs: Any) -> None:
            first, run = tensor_in(inputs), self.runs.name(name)
            self.read[run] = self._from(first)
            self.fed[run] = self.read[run] & self.open
            if isinstance(module, nn.Conv2d) and first is not None:
                self.around[run] = first
            self.open -= self.fed[run]
            self.inside.append((module, run))
            if guarded:
                disable_modes()
                self.num_opaque_running += 1

        def leaving(_module: nn.Module, _inputs: Any, output: Any) -> None:
            running = [inner for inner, _ in self.inside]
            if module not in running:
                return
            run = self.inside[running.index(module)][1]
            del self.inside[running.index(module) :]
            if guarded:
                self._restore_modes()
            tensor = tensor_in(output)
            if tensor is not None:
                self.open.add(run)
                self.sources_of[tensor] = {run}

        before, after = only_this_thread(entering), only_this_thread(leaving)
        stack.callback(module.register_forward_pre_hook(before).remove)
        stack.callback(module.register_forward_hook(after, always_call=True).remove)

    def release(self) -> None:
        """Restore modes that an exception left disabled."""
        while self.num_opaque_running:
            self._restore_modes()

    def _restore_modes(self) -> None:
        self.num_opaque_running -= 1
        enable_modes()

    def _from(self, tensor: Any) -> set[str]:
        if not isinstance(tensor, Tensor):
            return set()
        sources: set[str] = self.sources_of.get(tensor, set())
        learned = not isinstance(tensor, nn.Parameter) and self.is_learned(tensor)
        return sources | {_storage(tensor)} if learned else sources

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.inside or not self.sources_of:
            return func(*args, **kwargs)
        flat = [*args, *kwargs.values()]
        flat += [item for group in flat if isinstance(group, (list, tuple)) for item in group]
        sources: set[str] = set().union(*(self._from(tensor) for tensor in flat))
        if not sources:
            return func(*args, **kwargs)
        summed = self._summed(func, args)
        dropped = [other for name, other in summed.items() if name in self.drop]
        alone = {name: self._alone(name, other) for name, other in summed.items()}
        out = dropped[0] if dropped else func(*args, **kwargs)
        self.open -= set(summed)
        for tensor in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(tensor, Tensor):
                self.sources_of[tensor] = sources - set(summed)
        for name in summed:
            self.on_sum(name, out, alone[name])
        return out

    def _alone(self, name: str, other: Tensor) -> bool:
        """Return whether no other unit (for a convolution: no other layer) is on the branch."""
        around = self.around.pop(name, None)
        direct = around is None or (
            around.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
        )
        return direct and self.fed[name] <= self._from(other)

    def _summed(self, func: Any, args: Any) -> dict[str, Tensor]:
        """Units whose branch this call adds to something else, with that other term."""
        if func not in _ADD or len(args) < 2 or not all(isinstance(a, Tensor) for a in args[:2]):
            return {}
        a, b = args[:2]
        if a.shape != b.shape or isinstance(a, nn.Parameter) or isinstance(b, nn.Parameter):
            return {}
        from_a, from_b = self._from(a) & self.open, self._from(b) & self.open
        branches = {**dict.fromkeys(from_a - from_b, b), **dict.fromkeys(from_b - from_a, a)}
        return {name: other for name, other in branches.items() if self._is_shortcut(name, other)}

    def _is_shortcut(self, name: str, other: Tensor) -> bool:
        """Return whether a term is the stream; a learned one is if the branch was computed from it.

        A class token is, to which the first class attention is added; position embeddings are not.
        """
        return not self.is_learned(other) or _storage(other) in self.read[name]


@contextmanager
def follow_sums(
    model: nn.Module,
    names: Iterable[str],
    on_sum: OnSum,
    drop: Iterable[str] = (),
    is_learned: Callable[[Tensor], bool] = lambda _: False,
) -> Iterator[None]:
    """Call ``on_sum(run, sum, alone)`` when a named module's output is added to a shortcut.

    Args:
        model: Any module.
        names: Modules to follow, all of them: where one begins, the one before it ends.
        on_sum: ``run`` is the module's name, ``name@2`` when it runs for the second time; ``alone``
            tells that no other named module is on the branch.
        drop: Runs of modules whose branch is left out of its sum.
        is_learned: Tells tensors that are the same for every image. As a term of a sum, such as
            interpolated position embeddings, they are a shortcut only of a branch that is computed
            from them; a batch of one does not show it by its shape.
    """
    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        follow = _SumFollower(ModuleRuns(model, stack), on_sum, drop, is_learned)
        stack.callback(follow.release)
        for name in names:
            follow.attach(stack, name, model.get_submodule(name))
        stack.enter_context(follow)
        yield


@contextmanager
def streams(
    model: nn.Module,
    units: Sequence[Any],
    keep: str | Iterable[str] = "*",
    reduce: Callable[[str, Tensor], Any] | None = None,
) -> Iterator[dict[str, Any]]:
    """Collect the residual stream after each unit, by name, without gradients.

    Args:
        model: Any module.
        units: All of :func:`vitascope.capture.units`.
        keep: Wildcards for the ones to keep.
        reduce: As in :func:`vitascope.capture.features`.
    """
    names = matching(keep, [unit.name for unit in units], "unit")
    own = [unit.name for unit in units if unit.name in names and not unit.residual]
    wanted = {unit.name for unit in units if unit.name in names and unit.residual}
    seen: dict[str, Any] = {}

    def put(name: str, tensor: Tensor) -> None:
        with torch._C.DisableTorchFunction():
            seen[name] = reduce(name, tensor) if reduce else tensor

    def on_sum(name: str, tensor: Tensor, _alone: bool) -> None:
        if name in wanted:
            put(name, tensor)

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if own:
            stack.enter_context(features(model, own, reduce=lambda n, x: put(n, x)))
        if wanted:
            stack.enter_context(follow_sums(model, _followed(units), on_sum))
        yield seen
    silent = [name for name in names if name not in seen]
    if silent:
        raise UserError(f"did not run: {', '.join(silent)}; ran: {', '.join(seen) or 'nothing'}")


@contextmanager
def without(model: nn.Module, units: Sequence[Any], drop: str | Iterable[str]) -> Iterator[None]:
    """Run ``model`` as if the units that match ``drop`` had not been built.

    A unit alone on a branch is left out of its sum. Any other is replaced by the identity, if its
    input and output have the same shape.

    Raises:
        UserError: For a unit that is neither: its shape change cannot be left out.
    """
    names = matching(drop, [unit.name for unit in units], "unit")
    chosen = [unit for unit in units if unit.name in names]
    branches = [unit.name for unit in chosen if unit.branch]
    left: set[str] = set()

    within = {unit.name for unit in chosen if not unit.branch}  # each becomes the identity

    def identity(name: str) -> Callable[..., Tensor | None]:
        def hook(_module: nn.Module, inputs: Any, output: Any) -> Tensor | None:
            run = runs.name(name)
            if run not in within:
                return None
            before, after = tensor_in(inputs), tensor_in(output)
            if before is None or after is None or before.shape != after.shape:
                shapes = [tuple(x.shape) if x is not None else None for x in (before, after)]
                raise UserError(f"{run} cannot be dropped: it turns {shapes[0]} into {shapes[1]}")
            return before

        return only_this_thread(hook)

    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        runs = ModuleRuns(model, stack)
        for name in {module_of(run) for run in within}:
            module = model.get_submodule(name)
            stack.callback(module.register_forward_hook(identity(name)).remove)
        if branches:
            stack.enter_context(
                follow_sums(model, _followed(units), lambda name, *_: left.add(name), branches)
            )
        yield
        if not left.issuperset(branches):
            missing = ", ".join(set(branches) - left)
            raise UserError(f"{missing} did not run into a sum, so nothing was dropped")


def _followed(units: Sequence[Any]) -> list[str]:
    names = (module_of(unit.name) for unit in units if unit.kind not in ("stem", "head"))
    return list(dict.fromkeys(names))
