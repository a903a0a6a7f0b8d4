"""Masking: accuracy lost without position embeddings, or with gates forced to 0 or 1.

Test-time masking (ConViT, https://arxiv.org/abs/2103.10697, Tables 5 and 6), nothing retrained:

* absolute position embeddings set to zero (DeiT-Ti 72.2 -> 38.3, ConViT-Ti 73.1 -> 67.1);
* gates of the first k gated layers forced to 1, so that content is masked (62.3 / 35.0 / 1.3 for
  k = 3 / 5 / 10 of ConViT-Ti), or to 0, so that position is masked (63.5 / 53.1 / 46.8).

Position embeddings are every parameter or buffer so named (``pos_embed``, ``position_embeddings``,
``pos_embedding``, ...), the class token's included; relative position biases stay. Gates are forced
through a layer's ``forced_gate`` where it has one, else by a ``gating_param`` so large that the
sigmoid is exactly 0 or 1. Everything is restored. Accuracies are fractions, 0 to 1.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.threads import exclusive_access
from vitascope.errors import UserError
from vitascope.measure.ablation.lesion import correct
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.streaming.batches import labelled_in
from vitascope.settings import checked

__all__ = ["Masking", "forced_gates", "masking", "position_embeddings", "without_positions"]

_POSITIONS = re.compile(
    r"(^|[._])pos(ition)?(al)?_?(emb(ed(ding)?)?|encoding)s?\d*(\.\d+)?(\.weight)?$"
)


@dataclass(frozen=True)
class Masking(InstrumentResult, kind="masking"):
    """Accuracy, 0 to 1, with parts masked; None or empty where the model has no such part."""

    unmasked: float
    no_positions: float | None  # Table 5
    content_masked: Mapping[int, float]  # Table 6: first k gated layers -> accuracy, gates at 1
    position_masked: Mapping[int, float]  # gates at 0
    num_images: int
    correct: Mapping[str, np.ndarray] | None = per_image(np.uint8)  # what is masked -> (N,)


def position_embeddings(model: nn.Module) -> dict[str, Tensor]:
    """Absolute position embeddings of a model, by name."""
    named = [*model.named_parameters(), *model.named_buffers()]
    return {n: t for n, t in named if _POSITIONS.search(n) and t.is_floating_point()}


@contextmanager
def without_positions(model: nn.Module) -> Iterator[None]:
    """Run the block with position embeddings at zero; they are restored."""
    tables = position_embeddings(model)
    if not tables:
        raise UserError(f"{type(model).__name__} has no absolute position embeddings to mask")
    with exclusive_access(model), _filled(tables.values(), 0.0):
        yield


@contextmanager
def _filled(tensors: Iterable[Tensor], value: float) -> Iterator[None]:
    """Run the block with all elements at ``value``; their values are restored exactly."""
    originals = [(tensor, tensor.detach().clone()) for tensor in tensors]
    try:
        for tensor, _ in originals:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.fill_(value)
        yield
    finally:
        for tensor, before in originals:
            with torch.inference_mode(tensor.is_inference()), torch.no_grad():
                tensor.copy_(before)


@contextmanager
def forced_gates(layers: Iterable[nn.Module], gate: float) -> Iterator[None]:
    """Run the block with the gates of ``layers`` at 0 (content only) or 1 (position only)."""
    if gate not in (0.0, 1.0):
        raise UserError(f"a gate is forced to 0 or 1, not {gate}")
    layers = list(layers)
    forced = [(m, m.forced_gate) for m in layers if hasattr(m, "forced_gate")]
    others = [m.get_parameter("gating_param") for m in layers if not hasattr(m, "forced_gate")]
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(exclusive_access(layer))
        stack.enter_context(_filled(others, 1e4 if gate else -1e4))
        try:
            for module, _ in forced:
                module.forced_gate = gate  # type: ignore[assignment]
            yield
        finally:
            for module, before in forced:
                module.forced_gate = before


@checked
def masking(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    first: Sequence[int] | None = None,
    on_mask: Callable[[str, int], None] = lambda step, ahead: None,
) -> Masking:
    """Evaluate ``model`` with positions, and with the gates of its first layers, masked.

    Args:
        model: A model with absolute position embeddings or gated layers; left unchanged.
        batches: (images, labels).
        first: Numbers of gated layers to mask; by default the paper's 3, 5 and 10, as far as the
            model has that many, and all of them; every number in a model with fewer than 5.
        on_mask: Called before each pass with what is masked and the number of passes ahead.
    """
    pairs = labelled_in(batches, model)
    gated = list(capture.gated_layers(model).values())
    if not gated and not position_embeddings(model):
        raise UserError(
            f"{type(model).__name__} has neither absolute position embeddings nor gated layers"
        )
    if first is None:
        steps = (3, 5, 10) if len(gated) >= 5 else range(1, len(gated))
        first = sorted({k for k in steps if k <= len(gated)} | ({len(gated)} - {0}))
    for k in first:
        if not 1 <= k <= len(gated):
            raise UserError(f"cannot mask the first {k} gated layers: there are {len(gated)}")
    right: dict[str, np.ndarray] = {}
    if position_embeddings(model):
        on_mask("position embeddings", 2 + 2 * len(first))
        with without_positions(model):
            right["no_positions"] = correct(model, pairs)
    masked: dict[str, dict[int, float]] = {"position_masked": {}, "content_masked": {}}
    ahead = 1 + 2 * len(first)
    for gate, (name, result) in enumerate(masked.items()):
        for k in first:
            on_mask(f"{name.removesuffix('_masked')} of {k} layers", ahead)
            ahead -= 1
            with forced_gates(gated[:k], float(gate)):
                right[f"{name}/{k}"] = correct(model, pairs)
            result[k] = float(right[f"{name}/{k}"].mean())
    on_mask("nothing", 1)
    right["unmasked"] = correct(model, pairs)
    return Masking(
        float(right["unmasked"].mean()),
        float(right["no_positions"].mean()) if "no_positions" in right else None,
        **masked,
        num_images=len(right["unmasked"]),
        correct=right,
    )
