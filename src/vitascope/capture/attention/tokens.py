"""Coordinates of the tokens of one attention computation, in the axes of its own map."""

import torch
from torch import Tensor

from vitascope.capture.attention.axes import Tokens, aligned
from vitascope.capture.attention.events import Event
from vitascope.capture.coordinates.operators import any_placed, positions, rows
from vitascope.capture.coordinates.tracer import CoordinateTracer

__all__ = ["is_chosen", "learned_queries", "over_channels", "tokens_of"]


def learned_queries(event: Event, tracer: CoordinateTracer) -> bool:
    """Return whether the queries are parameters, as in attention pooling."""
    return event.query is not None and tracer.is_learned(event.query)


def over_channels(event: Event, tracer: CoordinateTracer) -> bool:
    """Return whether the map compares channels: its scores are sums over different tokens."""
    if event.scores is not None:
        return tracer.lost_in_a_sum(event.scores)
    if event.query is None:
        return False
    return any_placed(tracer.of(event.query))


def is_chosen(event: Event, tracer: CoordinateTracer) -> bool:
    """Return whether which tokens the layer has depends on the image or on chance (masking)."""
    sides = (event.query, event.key, event.scores)
    return any(side is not None and tracer.is_chosen(side) for side in sides)


def tokens_of(event: Event, tracer: CoordinateTracer) -> Tokens | None:
    """Coordinates of queries (..., T, 2) and keys (..., S, 2); None if unknown.

    Of layers whose map has its heads apart, (B * windows, H, T, S), H is 1.
    """
    if event.scores is not None:
        planes = tracer.of(event.scores)
        if planes is None:
            return None
        query = positions([p[..., 0] for p in planes[:3]])
        key = positions([p[..., 0, :] for p in planes[3:]])
        if bool(key.isnan().all()):
            points = positions(planes[:3])  # a single point for each score
            if not bool(((points == points[..., :1, :]) | points.isnan()).all()):
                return torch.full_like(query, float("nan")), points[..., 0, :, :]  # the key's
        return query, key
    if event.query is None or event.key is None:
        return None
    query_rows, key_rows = rows(tracer.of(event.query)), rows(tracer.of(event.key))
    if learned_queries(event, tracer):
        query_rows = event.query.new_full((*event.query.shape[:-1], 2), float("nan"))
    if query_rows is None or key_rows is None:
        return None
    if event.axes is None:
        return _one_head(query_rows), _one_head(key_rows)
    return aligned(query_rows, key_rows)


def _one_head(side: Tensor) -> Tensor:
    """(B, T, 2), or (B, H, T, 2) of which all heads are the same, as (B, 1, T, 2)."""
    return side.unsqueeze(-3) if side.ndim == 3 else side[:, :1]
