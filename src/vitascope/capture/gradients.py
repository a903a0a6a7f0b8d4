"""Gradients of a score with respect to attention maps and module outputs, in one backward pass.

Fused kernels never form the map, so autograd has no gradient of it; it is recovered from the
gradient at their output (see :mod:`vitascope.capture.attention.events`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.attention.events import Event
from vitascope.capture.attention.recorder import record_attention
from vitascope.capture.structure.features import evaluating, features
from vitascope.errors import UserError

__all__ = ["Gradients", "gradients"]


@dataclass(frozen=True)
class Gradients:
    """Attention maps and module outputs of a batch, with the gradient of a score at each.

    A gradient is None where the score does not depend on it, or where it cannot be found.
    """

    maps: dict[str, Tensor]  # layer -> (B * windows, H, T, S)
    map_gradients: dict[str, Tensor | None]
    features: dict[str, Tensor]  # module -> its output
    feature_gradients: dict[str, Tensor | None]


def gradients(
    model: nn.Module,
    images: Tensor,
    score: Callable[[Any], Tensor],
    *,
    layers: Collection[str] = (),
    outputs: Collection[str] = (),
    run: Callable[[nn.Module, Tensor], Any] | None = None,
) -> Gradients:
    """Run ``model`` once forward and once backward, in eval mode; it is left unchanged.

    Args:
        model: Any module.
        images: (B, C, height, width)
        score: From the model's output to a number per image (B,); each image has its own gradient.
        layers: Attention layers whose maps are wanted, as :func:`vitascope.capture.attention`
            names them.
        outputs: Modules (or runs of them, ``name@2``) whose outputs are wanted.
        run: Runs the model on images; ``model(images)`` unless given.

    >>> layer = nn.Linear(2, 1, bias=False)
    >>> result = gradients(
    ...     nn.Sequential(nn.Identity(), layer), torch.ones(1, 2), lambda y: y[:, 0], outputs=["0"]
    ... )
    >>> torch.allclose(result.feature_gradients["0"], layer.weight)
    True
    """
    maps: dict[str, Tensor] = {}
    events: dict[str, Event] = {}

    def on_event(event: Event) -> None:
        if event.name in layers:
            with torch.no_grad():
                maps[event.name] = event.weights().detach()
            events[event.name] = event

    seen: dict[str, Tensor] = {}
    with evaluating(model), torch.enable_grad():
        leaf = images.detach().clone().requires_grad_(True)  # frozen weights make no graph
        with record_attention(model, on_event):
            if outputs:
                with features(model, list(outputs), grad=True) as seen:
                    output = run(model, leaf) if run else model(leaf)
            else:
                output = run(model, leaf) if run else model(leaf)
        total = score(output).sum()
        if not total.requires_grad:
            raise UserError(f"the answer of {type(model).__name__} has no gradient by its images")
        sources = {name: event.source for name, event in events.items() if event.source is not None}
        wanted = [tensor for tensor in (*sources.values(), *seen.values()) if tensor.requires_grad]
        grads = torch.autograd.grad(total, wanted, allow_unused=True) if wanted else ()
    at = {id(tensor): gradient for tensor, gradient in zip(wanted, grads, strict=True)}
    map_gradients: dict[str, Tensor | None] = dict.fromkeys(maps)
    for name, source in sources.items():
        gradient, to_map = at.get(id(source)), events[name].map_gradient
        if gradient is not None and to_map is not None:
            with torch.no_grad():
                map_gradients[name] = events[name].arrange(to_map(gradient))
    return Gradients(
        maps,
        map_gradients,
        {name: tensor.detach() for name, tensor in seen.items()},
        {name: at.get(id(tensor)) for name, tensor in seen.items()},
    )
