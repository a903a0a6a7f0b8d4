"""The optimizer: parameter groups, learning rate, sharpness-aware steps, averaged weights.

No weight decay on vectors (norms, biases, gates) nor on what ``model.no_weight_decay()`` names, as
in timm and DeiT. Parameters that match ``recipe.travel`` get ``recipe.travel_lr`` times the lr.
With ``recipe.layer_decay`` d, layer l of L has d^(L - l) times the lr (timm's order of layers).

The learning rate at a step is a pure function, so a resumed run needs no scheduler state. Warm-up
rises in a straight line from ``warmup_lr`` and lies over the cosine rather than before it, as in
timm and so in DeiT: with 5 warm-up epochs of 300, epoch 5 is already 5/300 down the cosine.

    lr(t) = min_lr + (base - min_lr) (1 + cos(pi t / T)) / 2        t >= warm-up

With ``schedule_by="epoch"`` t counts whole epochs (DeiT); with ``"step"`` it moves every step.

Sharpness-aware minimisation (Foret et al. 2021, https://arxiv.org/abs/2010.01412).

    w' = w + rho g / |g|,   g = grad L(w);   the update at w uses grad L(w')

Call :func:`ascend` after the first backward pass, make the second one at ``w'``, then
:func:`descend`, then the optimizer's step. The norm is that of the whole gradient. Where processes
share the gradient (DDP, FSDP) it is the shared one, so w' is the same everywhere and a run on two
processes is the run on one; the paper's authors perturb each device by itself ("m-sharpness").
Frozen parameters have no gradient and do not move.

The exponential moving average of a model's weights is

    average <- decay * average + (1 - decay) * weights       after every update

The same numbers as timm's ``ModelEmaV3`` (a test holds them together). Ours keeps named tensors
instead of a copied module, because a sharded (FSDP) module cannot be copied: a shard's average is
a shard of the average.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import timm.optim
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from vitascope.errors import UserError, unknown
from vitascope.training.recipes.config import Recipe

BACKBONE, BATCH_NORM = "backbone", "batchnorm"


@contextmanager
def frozen(model: nn.Module, patterns: tuple[str, ...]) -> Iterator[None]:
    """Inside, parameters that match a pattern (see ``Recipe.freeze``) take no gradient.

    Raises:
        UserError: If a pattern matches nothing, or nothing is left to train.
    """
    flags = [(p, p.requires_grad) for p in model.parameters()]
    names = [name for name, _ in model.named_parameters()]
    chosen = {pattern: _matching(model, pattern) for pattern in patterns}
    for pattern, matches in chosen.items():
        if not matches and pattern != BATCH_NORM:  # a model without them has nothing to freeze
            raise UserError(
                f"freeze: no parameter matches {pattern!r}; the model has "
                + ", ".join(names[:12])
                + (", …" if len(names) > 12 else "")
            )
    try:
        for name, parameter in model.named_parameters():
            if any(name in matches for matches in chosen.values()):
                parameter.requires_grad_(False)
        if not any(p.requires_grad for p in model.parameters()):
            raise UserError(f"freeze {', '.join(patterns)} leaves nothing to train")
        yield
    finally:
        for parameter, flag in flags:
            parameter.requires_grad_(flag)


def _matching(model: nn.Module, pattern: str) -> set[str]:
    """Names of the parameters that a wildcard, ``backbone`` or ``batchnorm`` means."""
    if pattern == BATCH_NORM:
        norms = {name for name, module in model.named_modules() if isinstance(module, _NormBase)}
        return {name for name, _ in model.named_parameters() if name.rpartition(".")[0] in norms}
    if pattern == BACKBONE:
        classifier = getattr(model, "get_classifier", None)
        heads: Any = getattr(model, "classifier", None) if classifier is None else classifier()
        if heads is None:
            raise UserError(f"freeze: {type(model).__name__} does not say which layer is its head")
        heads = heads if isinstance(heads, tuple) else (heads,)
        own = {id(p) for head in heads for p in head.parameters()}
        return {name for name, p in model.named_parameters() if id(p) not in own}
    return {name for name, _ in model.named_parameters() if fnmatchcase(name, pattern)}


def training_mode(model: nn.Module) -> None:
    """Training mode, except for batch norms whose parameters are all frozen: they stay as is."""
    model.train()
    for module in model.modules():
        if isinstance(module, _NormBase):
            own = list(module.parameters())
            if own and not any(p.requires_grad for p in own):
                module.eval()


def parameter_groups(model: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Groups for an optimizer, each with ``weight_decay`` and ``lr_scale``."""
    spared = set(model.no_weight_decay()) if hasattr(model, "no_weight_decay") else set()
    depth = _layer_scales(model, recipe.layer_decay)
    groups: dict[tuple[bool, bool, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = parameter.ndim > 1 and not any(fnmatchcase(name, s) for s in spared)
            travels = any(fnmatchcase(name, pattern) for pattern in recipe.travel)
            key = (decays, travels, depth.get(id(parameter), 1.0))
            groups.setdefault(key, []).append(parameter)
    return [
        {
            "params": parameters,
            "weight_decay": recipe.weight_decay if decays else 0.0,
            "lr_scale": scale * (recipe.travel_lr if travels else 1.0),
        }
        for (decays, travels, scale), parameters in sorted(groups.items(), key=lambda item: item[0])
    ]


def _layer_scales(model: nn.Module, decay: float) -> dict[int, float]:
    """Factor of the lr of each parameter, by its id, relative to the last layer's lr."""
    if decay == 1.0:
        return {}
    groups = timm.optim.param_groups_layer_decay(model, layer_decay=decay)
    return {id(p): float(group["lr_scale"]) for group in groups for p in group["params"]}


def build_optimizer(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """timm's optimizer of that name; Adam and AdamW in one fused kernel where there is one.

    Raises:
        UserError: If timm has none, or it does not take the recipe's betas, eps or momentum.
    """
    available = [str(name) for name in timm.optim.list_optimizers()]
    if recipe.optimizer not in available:
        raise unknown("optimizer", recipe.optimizer, available)
    device = next(model.parameters()).device.type
    fused = recipe.optimizer in ("adam", "adamw") and device in ("cpu", "cuda")
    options: dict[str, Any] = {"fused": True} if fused else {}
    about = timm.optim.get_optimizer_info(recipe.optimizer)
    for name in ("betas", "eps", "momentum"):
        value = getattr(recipe, name)
        if value is not None and not getattr(about, f"has_{name}"):
            raise UserError(f"the optimizer {recipe.optimizer} has no {name}; leave it out")
        options |= {} if value is None else {name: value}
    return timm.optim.create_optimizer_v2(
        parameter_groups(model, recipe), opt=recipe.optimizer, lr=recipe.base_lr, **options
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group ``lr`` times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)


def learning_rate(recipe: Recipe, steps_per_epoch: int) -> Callable[[int], float]:
    """The function from a step (0 is the first) to its learning rate."""
    per_step = recipe.schedule_by == "step"
    total = recipe.total_epochs * (steps_per_epoch if per_step else 1)
    warmup = recipe.warmup_epochs * recipe.epoch_factor * (steps_per_epoch if per_step else 1)
    base, least = recipe.base_lr, recipe.min_lr

    def lr(step: int) -> float:
        t = step if per_step else step // steps_per_epoch
        if t < warmup:
            return recipe.warmup_lr + (base - recipe.warmup_lr) * t / warmup
        if recipe.schedule == "constant":
            return base
        done = min(t / total, 1.0)
        left = (1 + math.cos(math.pi * done)) / 2 if recipe.schedule == "cosine" else 1 - done
        return least + (base - least) * left

    return lr


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


class Average:
    """Running average of every floating-point entry of a model's state; others follow along."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.state = {name: value.detach().clone() for name, value in _state(model).items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Take one more set of weights into the average."""
        averages, weights = [], []
        for name, value in _state(model).items():
            if value.is_floating_point():
                averages.append(self.state[name])
                weights.append(value)
            else:
                self.state[name].copy_(value)
        torch._foreach_lerp_(averages, weights, 1.0 - self.decay)

    @contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights; afterwards its own, bit for bit."""
        own = {name: value.detach().clone() for name, value in _state(model).items()}
        _copy(model, self.state)
        try:
            yield
        finally:
            _copy(model, own)


def _state(model: nn.Module) -> dict[str, Tensor]:
    return {name: value for name, value in model.state_dict().items() if torch.is_tensor(value)}


@torch.no_grad()
def _copy(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    for name, value in _state(model).items():
        value.copy_(values[name])
