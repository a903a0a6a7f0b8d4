"""Parameter groups (learning rate, weight decay, frozen) and the optimizer.

No weight decay on vectors (norms, biases, gates) nor on what ``model.no_weight_decay()`` names, as
in timm and DeiT. Parameters that match ``recipe.travel`` get ``recipe.travel_lr`` times the lr.
With ``recipe.layer_decay`` d, layer l of L has d^(L - l) times the lr (timm's order of layers).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

import timm.optim
import torch
from torch import nn
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
    for pattern, found in chosen.items():
        if not found and pattern != BATCH_NORM:  # a model without them has nothing to freeze
            raise UserError(
                f"freeze: no parameter matches {pattern!r}; the model has "
                + ", ".join(names[:12])
                + (", …" if len(names) > 12 else "")
            )
    try:
        for name, parameter in model.named_parameters():
            if any(name in found for found in chosen.values()):
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
    """timm's optimizer of that name; Adam and AdamW in one fused kernel where there is one."""
    known = [str(name) for name in timm.optim.list_optimizers()]
    if recipe.optimizer not in known:
        raise unknown("optimizer", recipe.optimizer, known)
    device = next(model.parameters()).device.type
    fused = recipe.optimizer in ("adam", "adamw") and device in ("cpu", "cuda")
    options: dict[str, Any] = {"fused": True} if fused else {}
    return timm.optim.create_optimizer_v2(
        parameter_groups(model, recipe), opt=recipe.optimizer, lr=recipe.base_lr, **options
    )


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group ``lr`` times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
