"""Read or replace the outputs of modules; hooks are removed afterwards.

Modules are named by their path in the model, with wildcards: ``blocks.*.attn``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.repeated_calls import ModuleRuns, module_of
from vitascope.capture.threads import exclusive_access, only_this_thread
from vitascope.errors import UserError

__all__ = ["edit", "evaluating", "features", "matching", "tensor_in"]


def matching(patterns: str | Iterable[str], names: Iterable[str], what: str) -> list[str]:
    """The ``names`` that match any of the patterns, in their own order.

    >>> matching("blocks.*", ["stem", "blocks.0", "blocks.1"], "unit")
    ['blocks.0', 'blocks.1']

    Raises:
        UserError: If a pattern matches nothing.
    """
    names = list(names)
    patterns = [patterns] if isinstance(patterns, str) else list(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            near = get_close_matches(pattern, names, n=3, cutoff=0.3) or names[:3]
            rest = len(names) - len(near)
            there = ", ".join(near) + (f", … ({len(names)} in all)" if rest > 0 else "")
            raise UserError(f"no {what} matches {pattern!r}; the model has {there or 'none'}")
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]


def tensor_in(output: Any) -> Tensor | None:
    """The tensor of a module's output: itself, or the first of a tuple, dict or dataclass."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        output = tuple(output.values())
    if isinstance(output, (tuple, list)) and output:
        return tensor_in(output[0])
    return None


def _replaced(output: Any, new: Tensor) -> Any:
    """``output`` with its tensor replaced."""
    if isinstance(output, Tensor):
        return new
    if isinstance(output, tuple) and output:
        return (_replaced(output[0], new), *output[1:])
    if isinstance(output, list) and output:
        return [_replaced(output[0], new), *output[1:]]
    if isinstance(output, Mapping) and output:
        first = next(iter(output))
        output[first] = _replaced(output[first], new)  # type: ignore[index]
    return output


def _ran(patterns: Iterable[str], names: Iterable[str], seen: Iterable[str]) -> None:
    """Raise if a pattern matched no module that ran."""
    names, seen = list(names), list(seen)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in seen):
            matched = [name for name in names if fnmatchcase(name, pattern)] or [pattern]
            ran = ", ".join(seen[:5]) or "nothing"
            raise UserError(f"{', '.join(matched[:5])} did not run; of what was asked, {ran} did")


@contextmanager
def features(
    model: nn.Module,
    units: str | Iterable[Any],
    *,
    reduce: Callable[[str, Tensor], Any] | None = None,
    grad: bool = False,
) -> Iterator[dict[str, Any]]:
    """Collect the outputs of the matching modules, by name, in order of execution.

    The output of a module's second run in one pass is ``name@2``.

    Args:
        model: Any module.
        units: Names, wildcards or :class:`~vitascope.capture.Unit`.
        reduce: Called with each name and tensor as soon as it is there; its result is kept
            instead, so that memory stays bounded.
        grad: Keep the graph. By default the block runs without gradients.

    Raises:
        UserError: If a name matches nothing, or (on leaving the block) nothing it matches ran.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with features(model, "1") as seen:
    ...     _ = model(torch.ones(1, 2))
    >>> {name: tuple(output.shape) for name, output in seen.items()}
    {'1': (1, 3)}
    """
    patterns = [units] if isinstance(units, str) else [getattr(u, "name", u) for u in units]
    modules = {name: module for name, module in model.named_modules() if name}
    names = matching([module_of(pattern) for pattern in patterns], modules, "unit")
    seen: dict[str, Any] = {}

    def keep(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            run = runs.name(name)
            if not any(fnmatchcase(run, pattern) for pattern in patterns):
                return
            tensor = tensor_in(output)
            if tensor is None:
                raise UserError(f"{run} puts out no tensor but {type(output).__name__}")
            with torch._C.DisableTorchFunction():
                seen.pop(run, None)
                seen[run] = reduce(run, tensor) if reduce else tensor

        return only_this_thread(hook)

    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        runs = ModuleRuns(model, stack)
        for name in names:
            stack.callback(modules[name].register_forward_hook(keep(name)).remove)
        stack.enter_context(torch.set_grad_enabled(grad and torch.is_grad_enabled()))
        yield seen
    _ran(patterns, names, seen)


@contextmanager
def edit(
    model: nn.Module, edits: Mapping[str, Callable[[Tensor], Tensor]], *, grad: bool = True
) -> Iterator[None]:
    """Replace the output of each matching module, in all its runs, by ``edits[name](output)``.

    Where a module runs several times in one pass, ``name@1`` is its first run alone, ``name@2`` its
    second.

    Raises:
        UserError: If a name matches nothing, or (on leaving the block) nothing it matches ran.

    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with edit(model, {"0": torch.zeros_like}):
    ...     model(torch.ones(1, 2)).tolist()
    [[0.0, 0.0, 0.0]]
    """
    modules = {name: module for name, module in model.named_modules() if name}
    ran: set[str] = set()

    def replace(
        name: str, pattern: str, fn: Callable[[Tensor], Tensor], runs: ModuleRuns
    ) -> Callable[..., Any]:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
            run = runs.name(name)
            if module_of(pattern) != pattern:  # one run alone
                run = run if module_of(run) != run else f"{run}@1"
                if not fnmatchcase(run, pattern):
                    return None
            ran.update((name, run))
            tensor = tensor_in(output)
            if tensor is None:
                raise UserError(f"{name} puts out no tensor but {type(output).__name__}")
            return _replaced(output, fn(tensor))

        return only_this_thread(hook)

    wanted = {pattern: matching(module_of(pattern), modules, "unit") for pattern in edits}
    with ExitStack() as stack:
        stack.enter_context(exclusive_access(model))
        for pattern, names in wanted.items():
            runs = ModuleRuns(model, stack)
            for name in names:
                hook = replace(name, pattern, edits[pattern], runs)
                stack.callback(modules[name].register_forward_hook(hook).remove)
        stack.enter_context(torch.set_grad_enabled(grad and torch.is_grad_enabled()))
        yield
    _ran(edits, [name for names in wanted.values() for name in names], ran)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Run the block in eval mode without gradients; each module's mode is restored."""
    with exclusive_access(model):
        modes = [(module, module.training) for module in model.modules()]
        try:
            model.eval()
            with torch.inference_mode(False), torch.no_grad():
                yield
        finally:
            for module, mode in modes:
                module.training = mode
