"""Sharpness-aware minimisation (Foret et al. 2021, https://arxiv.org/abs/2010.01412).

    w' = w + rho g / |g|,   g = grad L(w);   the update at w uses grad L(w')

Call :func:`ascend` after the first backward pass, make the second one at ``w'``, then
:func:`descend`, then the optimizer's step. The norm is that of the whole gradient. Where processes
share the gradient (DDP, FSDP) it is the shared one, so w' is the same everywhere and a run on two
processes is the run on one; the paper's authors perturb each device by itself ("m-sharpness").
Frozen parameters have no gradient and do not move.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase


@torch.no_grad()
def ascend(parameters: Iterable[nn.Parameter], rho: float) -> list[tuple[nn.Parameter, Tensor]]:
    """Move the parameters to w', forget the gradients; return what w was."""
    moved = [p for p in parameters if p.grad is not None]
    norm = nn.utils.get_total_norm([p.grad for p in moved if p.grad is not None])
    before = [(p, p.detach().clone()) for p in moved]
    for p in moved:
        p.add_(p.grad * (rho / (norm + 1e-12)))
        p.grad = None
    return before


@torch.no_grad()
def descend(before: Iterable[tuple[nn.Parameter, Tensor]]) -> None:
    """Put the parameters back to w, exactly; the gradients stay."""
    for p, value in before:
        p.copy_(value)


@contextmanager
def frozen_running_statistics(model: nn.Module) -> Iterator[None]:
    """Batch norms normalise by the batch but do not take the perturbed pass into their averages."""
    norms = [m for m in model.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in norms:
            norm.track_running_stats = True
