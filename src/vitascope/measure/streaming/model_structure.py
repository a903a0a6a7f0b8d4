"""Units and token coordinates of a model for one image size, computed once, when first used."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from torch import Tensor, nn

from vitascope import capture
from vitascope.capture.structure.units import Level
from vitascope.errors import UserError


class ModelStructure:
    """A model, the coordinates of its tokens, and its units.

    Args:
        model: Any vision model.
        images: A batch; its size is the size of all.
        grid: Patches down and across, for layers whose tokens cannot be traced.
        num_prefix_tokens: Tokens before the patches there.
        level: Of the units: ``"block"`` for one per residual block of convolutions.
    """

    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        grid: tuple[int, int] | None = None,
        num_prefix_tokens: int | None = None,
        level: Level = "unit",
    ):
        self.model, self.images = model, images[:1]
        self.token_grid = {"grid": grid, "num_prefix_tokens": num_prefix_tokens}
        self.level: Level = level
        self.kind = type(model).__name__

    @cached_property
    def units(self) -> tuple[capture.Unit, ...]:
        """The parts of the model, in order of execution."""
        options: dict[str, Any] = self.token_grid
        return capture.units(self.model, self.images, level=self.level, **options)

    @cached_property
    def prefix_tokens(self) -> tuple[str, ...]:
        """Names of the tokens before the patches, in their order."""
        return capture.prefix_tokens(self.model, self.images)

    def query_names(self, tokens: capture.TokenCoordinates) -> list[str]:
        """Names of a layer's queries without coordinates; in windows these are padding."""
        if not tokens.learned_queries:
            return self._token_names(tokens.query)
        count = tokens.query.shape[1]
        return [f"learned query {n + 1}" for n in range(count)] if count > 1 else ["learned query"]

    def key_names(self, tokens: capture.TokenCoordinates) -> list[str]:
        """Names of a layer's keys without coordinates; in windows these are padding."""
        return self._token_names(tokens.key)

    def _token_names(self, coordinates: Tensor) -> list[str]:
        count = int(coordinates[0, :, 0].isnan().sum()) if len(coordinates) == 1 else 0
        return capture.token_names(self.prefix_tokens, count) if count else []

    @cached_property
    def _traced(self) -> tuple[dict[str, capture.TokenCoordinates], dict[str, str]]:
        return capture.trace_tokens(self.model, self.images, **self.token_grid)  # type: ignore[arg-type]

    @property
    def coordinates(self) -> dict[str, capture.TokenCoordinates]:
        """Image coordinates of the tokens of each attention layer."""
        return self._traced[0]

    @property
    def untraced(self) -> dict[str, str]:
        """Attention layers whose tokens cannot be traced, with the reason."""
        return self._traced[1]

    def chosen_units(self, pattern: str | Iterable[str]) -> list[capture.Unit]:
        """The units that match."""
        names = capture.matching(pattern, [unit.name for unit in self.units], "unit")
        return [unit for unit in self.units if unit.name in names]

    def chosen_layers(
        self, pattern: str | Iterable[str], unable: dict[str, str], name: str
    ) -> tuple[dict[str, capture.TokenCoordinates], dict[str, str]]:
        """Attention layers that match and can be measured, and those that cannot, with the reason.

        Raises:
            UserError: If none can, with why.
        """
        unable = {**self.untraced, **unable}
        if not self.coordinates and not self.untraced:
            raise UserError(f"{name} needs attention over tokens; {self.kind} has none")
        names = capture.matching(pattern, {**self.coordinates, **self.untraced}, "attention layer")
        able = {n: self.coordinates[n] for n in names if n not in unable}
        left_out = {n: unable[n] for n in names if n in unable}
        if not able:
            raise UserError(
                f"{name} needs patches that attend to patches; in {self.kind} {grouped(left_out)}"
            )
        return able, left_out


def grouped(reasons: Mapping[str, str]) -> str:
    """Each reason once, with the first name that it holds for and the number of others.

    >>> grouped({"a": "is a layer without tokens", "b": "is a layer without tokens"})
    'a (and 1 more): is a layer without tokens'
    """
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    return "; ".join(
        f"{first}{f' (and {len(rest)} more)' if rest else ''}: {why}"
        for why, (first, *rest) in names.items()
    )
