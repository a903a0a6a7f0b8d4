"""Image coordinates of the queries and keys of each attention layer.

Found by tracing one image through the model (:mod:`vitascope.capture.coordinates.tracer`), so
windows (shifted or dilated), pooled keys, subsampled queries, class tokens and padding need no rule
of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.attention.events import Event
from vitascope.capture.attention.recorder import record_attention
from vitascope.capture.attention.tokens import (
    is_chosen,
    learned_queries,
    over_channels,
    tokens_of,
)
from vitascope.capture.coordinates.layout import without_modes
from vitascope.capture.coordinates.operators import any_placed, distinct, fills_a_grid, spacing
from vitascope.capture.coordinates.tracer import CoordinateTracer
from vitascope.capture.structure.features import evaluating, tensor_in
from vitascope.capture.threads import only_this_thread
from vitascope.errors import UserError

CHOSEN = "which patches its tokens are depends on the image or on chance"
UNKNOWN = "its tokens cannot be followed back to the image"

__all__ = [
    "TokenCoordinates",
    "coordinates_of",
    "inherit_coordinates",
    "one_image",
    "token_coordinates",
    "trace_tokens",
]


@dataclass(frozen=True)
class TokenCoordinates:
    """Coordinates in pixels (y, x) of one attention layer's queries and keys, in all windows.

    W windows of one image, T queries, S keys. NaN for class tokens and padding.
    """

    query: Tensor  # (W, T, 2)
    key: Tensor  # (W, S, 2)
    learned_queries: bool = False  # parameters, as in attention pooling

    @property
    def over_tokens(self) -> bool:
        """Return whether any token has coordinates; False for attention over channels."""
        return bool((~self.query.isnan()).any() or (~self.key.isnan()).any())

    @property
    def only_tokens_ask(self) -> bool:
        """Return whether this is class attention: only tokens without coordinates are queries."""
        asked = bool((~self.key.isnan()).any())
        return asked and len(self.query) == 1 and bool(self.query.isnan().all())

    def same_places(self, other: "TokenCoordinates") -> bool:
        """Return whether the queries and keys of another layer have these coordinates."""
        return all(
            mine.shape == theirs.shape
            and torch.equal(mine.nan_to_num(-1e9), theirs.nan_to_num(-1e9))
            for mine, theirs in ((self.query, other.query), (self.key, other.key))
        )

    @property
    def step(self) -> tuple[float, float]:
        """Size of a patch, down and across, in pixels, on the finer grid of queries and keys.

        Tokens that fill no grid of rows and columns (keys pooled in raster order, which lie between
        them) count only where neither side fills one.
        """
        sides = [side for side in (self.query, self.key) if fills_a_grid(side)]
        fine = [
            [s for s in pair if s > 0]
            for pair in zip(*map(spacing, sides or (self.query, self.key)), strict=True)
        ]
        down, across = (min(steps) if steps else 0.0 for steps in fine)
        return down or across or 1.0, across or down or 1.0

    @property
    def grid(self) -> tuple[int, int]:
        """Number of query rows and columns on the image."""
        return distinct(self.query[..., 0]), distinct(self.query[..., 1])


def one_image(example_input: Tensor) -> Tensor:
    """The first image of a batch, as a batch of its own."""
    if not isinstance(example_input, Tensor) or example_input.ndim != 4:
        given = getattr(example_input, "shape", type(example_input).__name__)
        raise UserError(f"need images (B, C, height, width) to run the model on, got {given}")
    return example_input[:1].detach().clone()


def token_coordinates(
    model: nn.Module,
    example_input: Tensor,
    *,
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
) -> dict[str, TokenCoordinates]:
    """Coordinates of every attention layer's tokens, on images the size of ``example_input``.

    Layers whose tokens cannot be traced are left out; :func:`trace_tokens` gives the reasons.

    Args:
        model: Any module.
        example_input: Images (B, C, height, width); the first is run.
        grid: Patches down and across, for the layers whose tokens cannot be traced.
        num_prefix_tokens: Tokens before the patches there; by default all that are left over.
    """
    return trace_tokens(model, example_input, grid=grid, num_prefix_tokens=num_prefix_tokens)[0]


def trace_tokens(
    model: nn.Module,
    example_input: Tensor,
    *,
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
) -> tuple[dict[str, TokenCoordinates], dict[str, str]]:
    """Like :func:`token_coordinates`, with a second dict: untraced layers and the reason."""
    coordinates: dict[str, TokenCoordinates] = {}
    untraced: dict[str, str] = {}
    image = one_image(example_input)
    size = (image.shape[-2], image.shape[-1])

    def on_event(event: Event) -> None:
        try:
            tokens = coordinates_of(event, tracer)
        except UserError as error:
            untraced[event.name] = str(error)
            return
        if tokens is None and is_chosen(event, tracer):
            untraced[event.name] = CHOSEN
            return
        if tokens is None and grid is not None:
            with without_modes():
                shape = event.weights().shape
            try:
                tokens = coordinates_from_grid(shape, grid, num_prefix_tokens, size)
            except UserError as error:
                untraced[event.name] = str(error)
                return
        if tokens is None:
            untraced[event.name] = f"{UNKNOWN}; if they are patches, state the grid"
        else:
            coordinates[event.name] = tokens

    tracer = CoordinateTracer(image)
    with (
        evaluating(model),
        inherit_coordinates(model, tracer),
        tracer,
        record_attention(model, on_event),
    ):
        model(image)
    return coordinates, untraced


def coordinates_from_grid(
    shape: Sequence[int], grid: tuple[int, int], num_prefix: int | None, size: tuple[int, int]
) -> TokenCoordinates:
    """Coordinates of row-major patches of ``grid`` after prefix tokens, for a map (1, H, T, S).

    >>> coordinates_from_grid((1, 3, 5, 5), (2, 2), 1, (32, 32)).query[0, :2].tolist()
    [[nan, nan], [7.5, 7.5]]
    """
    down, across = (
        (torch.arange(n, dtype=torch.float32) + 0.5) * (s / n) - 0.5
        for n, s in zip(grid, size, strict=True)
    )
    patches = torch.stack(torch.meshgrid(down, across, indexing="ij"), -1).reshape(-1, 2)
    sides = []
    for count in shape[-2:]:
        prefix = count - len(patches)
        if prefix < 0 or (num_prefix is not None and prefix != num_prefix) or shape[0] != 1:
            more = "" if num_prefix is None else f" and {num_prefix} prefix tokens"
            raise UserError(
                f"its {shape[0]} x {count} tokens are not the stated grid of "
                f"{grid[0]} x {grid[1]}{more}"
            )
        missing = patches.new_full((prefix, 2), float("nan"))
        sides.append(torch.cat([missing, patches])[None])
    query, key = sides
    return TokenCoordinates(query, key)


class inherit_coordinates:
    """While active, outputs without coordinates inherit those of an input of the same shape.

    Token mixing sums over all tokens; its output tokens still stand for the input's.
    """

    def __init__(self, model: nn.Module, tracer: CoordinateTracer):
        self.model, self.tracer = model, tracer
        self.handles: list[Any] = []

    def _hook(self, _module: nn.Module, inputs: Any, output: Any) -> None:
        before, after = tensor_in(inputs), tensor_in(output)
        if before is None or after is None or before.shape != after.shape:
            return
        planes = self.tracer.of(after)
        with without_modes():
            if not any_placed(planes):
                self.tracer.put(after, self.tracer.of(before))

    def __enter__(self) -> None:
        hook = only_this_thread(self._hook)
        self.handles = [m.register_forward_hook(hook) for m in self.model.modules()]

    def __exit__(self, *_: Any) -> None:
        for handle in self.handles:
            handle.remove()


def coordinates_of(event: Event, tracer: CoordinateTracer) -> TokenCoordinates | None:
    """Coordinates of the queries and keys of one attention computation; None if unknown."""
    with without_modes():
        return _coordinates_of(event, tracer)


def _coordinates_of(event: Event, tracer: CoordinateTracer) -> TokenCoordinates | None:
    tokens = tokens_of(event, tracer)
    if tokens is None:
        return None
    query, key = (event.arrange(side) for side in tokens)  # (W, H, T, 2)
    for side in (query, key):
        if not bool(((side == side[:, :1]) | side.isnan()).all()):
            raise UserError("its heads attend to different tokens")
    coordinates = TokenCoordinates(query[:, 0], key[:, 0], learned_queries(event, tracer))
    return coordinates if coordinates.over_tokens or over_channels(event, tracer) else None
