"""The training objective as a function of the weights, smooth and deterministic.

    L(w) = NLL(w) + weight_decay / 2 * |w|^2

the mean cross-entropy of one fixed batch plus an l2 term (Park & Kim 2022, appendix A.1). Curvature
and loss landscapes need it twice differentiable and free of chance, so it is taken in one stated
mode, :func:`deterministic`: dropout and stochastic depth off, BatchNorm on its running statistics
(or on the batch's own, which it then does not keep), attention on the math path, because fused
kernels have no second derivative.

Deviations. The l2 term runs over every weight that moves, norms and biases too, as in the paper's
formula; training recipes often spare those. So weight decay adds exactly ``weight_decay`` to every
eigenvalue of the Hessian. Weights move functionally: the model itself is never written to.

Shapes: B images, K classes.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm

from vitascope.capture import evaluating, logits_of
from vitascope.errors import UserError, unknown
from vitascope.measure.streaming.batches import each_batch, normal_tensor, on_device, split

BATCH_NORM = ("running", "batch")

Weights = Mapping[str, Tensor]


def nll(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy; targets are classes (B,) or probabilities (B, K), as mixup makes them."""
    if logits.ndim != 2:
        raise UserError(f"the loss needs logits (B, classes), got {tuple(logits.shape)}")
    if targets.ndim == 2 and targets.shape == logits.shape:
        return F.cross_entropy(logits, targets.to(logits.dtype))
    if targets.ndim != 1 or len(targets) != len(logits) or targets.is_floating_point():
        raise UserError(
            f"targets must be classes ({len(logits)},) or probabilities {tuple(logits.shape)}, "
            f"got {targets.dtype} {tuple(targets.shape)}"
        )
    low, high, classes = int(targets.min()), int(targets.max()), logits.shape[1]
    if low < 0 or high >= classes:
        raise UserError(
            f"targets go from {low} to {high}, but the model's classes are 0 to {classes - 1}"
        )
    return F.cross_entropy(logits, targets.long())


def trainable_weights(model: nn.Module, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """Copies of the trainable weights, by name, as leaves of a new graph; tied ones once."""
    with torch.inference_mode(False):
        weights = {
            name: weight.detach().to(dtype or weight.dtype, copy=True).requires_grad_(True)
            for name, weight in model.named_parameters()
            if weight.requires_grad and weight.is_floating_point()
        }
    if not weights:
        raise UserError(f"{type(model).__name__} has no weight that trains: nothing to move")
    return weights


def slots(model: nn.Module) -> dict[str, str]:
    """Each attribute path that holds a weight or buffer, to the name of the tensor it holds.

    A shared module has one path, under its first name; tied weights have several paths to one
    tensor, named after the first.

    >>> model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    >>> model[1].weight = model[0].weight
    >>> slots(nn.Sequential(model, model))
    {'0.0.weight': '0.0.weight', '0.1.weight': '0.0.weight'}
    """
    tensors = [*model.named_parameters(), *model.named_buffers()]
    names = {id(tensor): name for name, tensor in reversed(tensors)}
    return {
        f"{prefix}.{own}" if prefix else own: names[id(tensor)]
        for prefix, module in model.named_modules()
        for own, tensor in (*module._parameters.items(), *module._buffers.items())
        if tensor is not None
    }


def run_with(model: nn.Module, tensors: Weights, images: Tensor) -> Any:
    """The model's output with other weights and buffers, by name; the model is unchanged.

    ``functional_call`` is given every path explicitly: its own handling of ties writes a shared
    module twice and then restores the wrong value.
    """
    filled = {slot: tensors[name] for slot, name in slots(model).items() if name in tensors}
    return functional_call(model, filled, (images,), tie_weights=False)


def differentiable_output(model: nn.Module, images: Tensor) -> Any:
    """The model's output; weights made in inference mode, which have no derivatives, are copied."""
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    made = {
        name: normal_tensor(tensor) for name, tensor in tensors.items() if tensor.is_inference()
    }
    return run_with(model, made, images) if made else model(images)


def logits_at(model: nn.Module, params: Weights, images: Tensor) -> Tensor:
    """The logits at the weights ``params``, in their precision. (B, K)"""
    dtype = next(iter(params.values())).dtype

    def cast(tensor: Tensor) -> Tensor:
        return tensor.detach().to(dtype if tensor.is_floating_point() else tensor.dtype, copy=True)

    still = {name: w for name, w in model.named_parameters() if name not in params}
    unmoved = {name: cast(tensor) for name, tensor in (*still.items(), *model.named_buffers())}
    return logits_of(run_with(model, {**unmoved, **params}, images.to(dtype)))


def objective(
    model: nn.Module,
    params: Weights,
    images: Tensor,
    targets: Tensor,
    *,
    weight_decay: float = 0.0,
) -> Tensor:
    """The objective at the weights ``params``, in their precision; a scalar.

    Run it inside :func:`deterministic`. Weights that ``params`` does not name stay as they are.
    """
    loss = nll(logits_at(model, params, images), targets)
    if weight_decay:
        loss = loss + weight_decay / 2 * sum(w.square().sum() for w in params.values())
    return loss


@contextmanager
def deterministic(model: nn.Module, *, batch_norm: str = "running") -> Iterator[None]:
    """Run the block in the stated mode, with gradients; every module's own mode is restored.

    Args:
        model: Any module.
        batch_norm: ``"running"``: BatchNorm uses its running statistics, as at test time.
            ``"batch"``: the batch's own, as in training, and the running ones stay as they are.
    """
    if batch_norm not in BATCH_NORM:
        raise unknown("batch_norm", batch_norm, BATCH_NORM)
    with evaluating(model), torch.enable_grad():
        norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
        tracking = [(norm, norm.track_running_stats) for norm in norms]
        try:
            if batch_norm == "batch":
                for norm in norms:
                    norm.training, norm.track_running_stats = True, False
            with _math_attention():
                yield
        finally:
            for norm, tracked in tracking:
                norm.track_running_stats = tracked


class _MathAttention:
    """Re-entrant guard that selects attention's math path, a setting shared by all threads.

    The first block entered selects it and the last one left restores the setting.
    """

    def __init__(self) -> None:
        self.lock, self.blocks = threading.Lock(), 0
        self.switched = ExitStack()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.blocks == 0:
                self.switched.enter_context(sdpa_kernel(SDPBackend.MATH))
            self.blocks += 1
        try:
            yield
        finally:
            with self.lock:
                self.blocks -= 1
                if self.blocks == 0:
                    self.switched.close()


_math_attention = _MathAttention()


def fixed_batches(
    batches: Iterable[Any], model: nn.Module | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Augmented images and their targets, batch by batch, on the model's device."""
    empty = True
    for batch in each_batch(batches):
        empty = False
        images, targets = split(batch)
        if len(images) == 0:
            raise UserError("a batch is empty: leave it out")
        if targets is None:
            raise UserError("the loss needs targets: give batches of (images, targets)")
        yield on_device(images, model), on_device(torch.as_tensor(targets), model)
    if empty:
        raise UserError("no images to measure on: the batches are empty")
