"""Curvature block by block: which parts of the network is the loss curved along?

The Hessian H of the mean NLL over some batches, and its Gauss-Newton part

    G = J^T (diag(p) - p p^T) J,        J = d logits / d w,  p = softmax(logits), mean over images,

which has no negative eigenvalue (Schraudolph 2002; Martens 2020, https://arxiv.org/abs/1412.1193),
restricted to the weights of one block, of one kind of layer, or of the whole network: trace and
eigenvalues of largest magnitude of H_bb and G_bb. What H has below zero comes from H - G alone. The
traces of the blocks add up to the network's; eigenvalues do not.

The l2 term is left out: it adds ``weight_decay`` to every eigenvalue and ``weight_decay * n`` to a
trace. A weight belongs to the unit that holds it, a norm's to the block around it; the kinds are
those of :func:`vitascope.capture.units`, norms and embeddings are "other". Traces are exact for
few weights, else by Hutch++ with their standard error.

Shapes: n weights of a group, k eigenvalues.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.repeated_calls import module_of
from vitascope.errors import UserError
from vitascope.measure.curvature.density import hutch_plus_plus
from vitascope.measure.curvature.eigenvalues import Product, largest
from vitascope.measure.curvature.objective import (
    deterministic,
    fixed_batches,
    logits_at,
)
from vitascope.measure.curvature.products import HessianProducts, flat, unflattened
from vitascope.measure.result import InstrumentResult
from vitascope.settings import checked

__all__ = ["BlockCurvature", "GaussNewtonProducts", "blocks", "groups_of"]

EXACT = 48  # weights up to which a trace is taken exactly
MATRICES = ("hessian", "gauss_newton")


@dataclass(frozen=True, kw_only=True)
class BlockCurvature(InstrumentResult, kind="blocks"):
    """Traces and largest eigenvalues of each group of weights; groups in the network's order."""

    groups: tuple[str, ...]  # "network", then blocks, then kinds
    by: tuple[str, ...]  # network, block or kind
    num_weights: tuple[int, ...]
    trace: Mapping[str, np.ndarray]  # hessian and gauss_newton -> of each group
    error: Mapping[str, np.ndarray]  # standard errors of the traces, 0 where they are exact
    eigenvalues: Mapping[str, np.ndarray]  # -> (groups, k), NaN where a group has fewer
    num_images: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Return the traces of both matrices."""
        parts = {"trace": self.trace, "error": self.error}
        return {f"{name}_{part}": parts[part][name] for name in MATRICES for part in parts}

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return the eigenvalues of both matrices."""
        return dict(self.eigenvalues)


class GaussNewtonProducts:
    """``G(v)`` of the mean NLL over fixed batches, for some of the weights.

    Args:
        model: Any classifier.
        batches: (images, targets); each keeps its graph in memory.
        weights: The leaves of the graph, by name, as :class:`HessianProducts` made them.
        batch_norm: As for :func:`~vitascope.measure.curvature.objective.deterministic`.
    """

    def __init__(
        self,
        model: nn.Module,
        batches: Sequence[tuple[Tensor, Tensor]],
        weights: Mapping[str, Tensor],
        *,
        batch_norm: str = "running",
    ):
        self.weights, self.total = weights, sum(len(images) for images, _ in batches)
        self.logits: list[Tensor] = []
        with torch.enable_grad(), deterministic(model, batch_norm=batch_norm):
            for images, _ in batches:
                self.logits.append(logits_at(model, weights, images))

    def within(self, names: Sequence[str]) -> Product:
        """The product with vectors over the named weights alone. (n,) -> (n,)"""
        leaves = [self.weights[name] for name in names]
        vjps = []  # J^T u as a function of the cotangent u; its derivative gives J v
        with torch.inference_mode(False), torch.enable_grad():
            for logits in self.logits:
                cotangent = torch.zeros_like(logits, requires_grad=True)
                vjp = torch.autograd.grad(
                    logits, leaves, cotangent, create_graph=True, materialize_grads=True
                )
                vjps.append((logits, cotangent, vjp))

        def product(vector: Tensor) -> Tensor:
            parts = unflattened(vector, leaves)
            result = torch.zeros_like(vector)
            for logits, cotangent, vjp in vjps:
                (jvp,) = torch.autograd.grad(
                    vjp, cotangent, parts, retain_graph=True, materialize_grads=True
                )
                p = logits.detach().softmax(1)
                curved = (p * jvp - p * (p * jvp).sum(1, keepdim=True)) / self.total
                back = torch.autograd.grad(
                    logits, leaves, curved, retain_graph=True, materialize_grads=True
                )
                result += flat(back)
            return result

        return product


def groups_of(model: nn.Module, images: Tensor) -> dict[tuple[str, str], list[str]]:
    """{(by, group): weights that train}: the network, its blocks, its kinds of layers."""
    names = [n for n, w in model.named_parameters() if w.requires_grad and w.is_floating_point()]
    kinds = {module_of(unit.name): unit.kind for unit in capture.units(model, images)}
    around = {name: name.rpartition(".")[0] or name for name in kinds}
    groups: dict[tuple[str, str], list[str]] = {("network", "network"): names}
    by_kind: dict[tuple[str, str], list[str]] = {}
    for name in names:
        unit = _inside(name, kinds)
        block = around[unit] if unit else _inside(name, around.values()) or name.split(".")[0]
        groups.setdefault(("block", block), []).append(name)
        by_kind.setdefault(("kind", kinds[unit] if unit else "other"), []).append(name)
    return groups | by_kind


def _inside(weight: str, modules: Iterable[str]) -> str | None:
    """The innermost of the modules that holds a weight."""
    holding = [name for name in modules if weight.startswith(f"{name}.")]
    return max(holding, key=len) if holding else None


def _trace(product: Product, like: Tensor, probes: int, seed: int) -> tuple[float, float]:
    if len(like) <= EXACT:
        unit = torch.eye(len(like), dtype=like.dtype, device=like.device)
        return float(sum((row @ product(row)).double() for row in unit)), 0.0
    return hutch_plus_plus(product, like, probes, torch.Generator().manual_seed(seed))


@checked
def blocks(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    num_eigenvalues: int = 3,
    num_probes: int = 8,
    tolerance: float = 1e-2,
    dtype: torch.dtype = torch.float32,
    batch_norm: str = "running",
    seed: int = 0,
    on_group: Callable[[str, int], None] = lambda step, ahead: None,
) -> BlockCurvature:
    """Traces and largest eigenvalues of H and G, for the network, each block and kind of layer.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, targets), augmented already; their graphs are all kept in memory.
        num_eigenvalues: Of largest magnitude, of each group.
        num_probes: Of a trace, at least 2; three products each.
        tolerance: Relative residual at which an eigenvalue counts as found.
        dtype: torch.float32 or torch.float64.
        batch_norm: ``"running"`` statistics, or each ``"batch"``'s own.
        seed: Of probes and start vectors.
        on_group: Called before each group with the measure's name and the number of groups ahead.
    """
    if num_eigenvalues < 1 or num_probes < 2:
        raise UserError(
            f"{num_eigenvalues} eigenvalues, {num_probes} probes: give at least 1 and 2"
        )
    pairs = list(fixed_batches(batches, model))
    hessian = HessianProducts(model, pairs, dtype=dtype, batch_norm=batch_norm)
    newton = GaussNewtonProducts(model, pairs, hessian.weights, batch_norm=batch_norm)
    groups = groups_of(model, pairs[0][0])
    trace: dict[str, list[float]] = {name: [] for name in MATRICES}
    error: dict[str, list[float]] = {name: [] for name in MATRICES}
    values: dict[str, list[np.ndarray]] = {name: [] for name in MATRICES}
    sizes = []
    for number, weights in enumerate(groups.values()):
        on_group("blocks", len(groups) - number)
        like = flat([hessian.weights[name].detach() for name in weights])
        sizes.append(len(like))
        for name, product in (
            ("hessian", hessian.within(weights)),
            ("gauss_newton", newton.within(weights)),
        ):
            probes = min(num_probes, max(2, len(like) // 4))
            mean, spread = _trace(product, like, probes, seed)
            trace[name].append(mean)
            error[name].append(spread)
            wanted = min(num_eigenvalues, len(like))
            near = product(torch.ones_like(like) / len(like) ** 0.5)[None]
            near = near if bool(near.any()) else torch.ones_like(near)
            spectrum = largest(product, near, wanted, tolerance=tolerance, seed=seed)
            missing = (0, num_eigenvalues - wanted)
            values[name].append(np.pad(spectrum.values, missing, constant_values=np.nan))
    return BlockCurvature(
        groups=tuple(group for _, group in groups),
        by=tuple(by for by, _ in groups),
        num_weights=tuple(sizes),
        trace={name: np.array(numbers) for name, numbers in trace.items()},
        error={name: np.array(numbers) for name, numbers in error.items()},
        eigenvalues={name: np.stack(numbers) for name, numbers in values.items()},
        num_images=sum(len(images) for images, _ in pairs),
        settings={
            "num_eigenvalues": num_eigenvalues,
            "num_probes": num_probes,
            "tolerance": tolerance,
            "dtype": str(dtype).removeprefix("torch."),
            "batch_norm": batch_norm,
            "seed": seed,
        },
    )
