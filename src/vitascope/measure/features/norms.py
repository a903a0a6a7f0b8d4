"""Token norms: patches of unusually high norm, where they lie, how much attention they draw.

Large vision transformers turn some patches of plain background into "artifacts": tokens of high
norm that hold little local information and draw attention from everywhere; extra register tokens
take over that role (Darcet et al. 2024, https://arxiv.org/abs/2309.16588). Measured here, after
each unit, on the residual stream x of each patch i of an image:

    |x_i|,      high_i = |x_i| > 3 median_j |x_j|          (j over the patches of the image)

with the quantiles of |x_i|, the share of high patches, where on the image they lie, the norms of
the class token and the registers, and for each attention layer the share of all attention that goes
to patches that were high at its input.

Deviation: the paper sets a cut-off by hand (150 for DINOv2-g, about three times the usual norm).

Shapes: B images, T tokens, C channels, H heads, S keys, h x w patches.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope.capture.coordinates.layout import Layout
from vitascope.errors import UserError
from vitascope.measure.features.per_unit import on_a_grid
from vitascope.measure.result import InstrumentResult
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import StreamingInstrument, run_instrument
from vitascope.settings import checked

__all__ = ["FACTOR", "QUANTILES", "StreamingNorms", "TokenNorms", "high_norm", "norms"]

FACTOR = 3.0  # times the median of an image's patches
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
RARE = 1e-3  # share of high patches from which on they are said to be there


@dataclass(frozen=True, kw_only=True)
class TokenNorms(InstrumentResult, kind="norms", rows="units"):
    """Norms after every unit on a grid, in order of execution; means over images."""

    quantiles: Mapping[str, np.ndarray]  # unit -> of an image's patches, at QUANTILES
    high: Mapping[str, float]  # unit -> share of its patches that are high
    where: Mapping[str, np.ndarray]  # unit -> share of images with a high patch there. (h, w)
    tokens: Mapping[str, np.ndarray]  # unit -> norm of each prefix token
    token_names: tuple[str, ...]
    kind: Mapping[str, str]
    stage: Mapping[str, int]
    drawn: Mapping[str, float]  # attention layer -> share of attention that high patches draw
    even: Mapping[str, float]  # the same if attention were even
    num_images: int
    left_out: Mapping[str, str] = field(default_factory=dict)  # unit -> why

    @property
    def appears(self) -> str | None:
        """The first unit after which more than a thousandth of the patches are high."""
        return next((unit for unit, share in self.high.items() if share > RARE), None)

    def summary(self) -> dict[str, Any]:
        """Return the medians, and the attention of each layer."""
        half = QUANTILES.index(0.5)
        return {
            "median": [levels[half] for levels in self.quantiles.values()],
            "appears": self.appears,
            "factor": FACTOR,
            "quantiles": QUANTILES,
            "layers": list(self.drawn),
            "drawn": list(self.drawn.values()),
            "even": list(self.even.values()),
        }

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return maps and prefix tokens by unit, and the quantiles of all units as one array."""
        arrays = super().record_arrays()
        apart = {key: a for key, a in arrays.items() if not key.startswith("quantiles/")}
        return {"quantiles": np.stack(list(self.quantiles.values())), **apart}


def high_norm(norms: Tensor, factor: float = FACTOR) -> Tensor:
    """Return which patches of each image have a high norm. (B, N)

    >>> high_norm(torch.tensor([[1.0, 1.0, 1.0, 2.9, 3.1]])).tolist()
    [[False, False, False, False, True]]
    """
    return norms > factor * norms.median(1, keepdim=True).values


def _in_rows(coordinates: Tensor) -> Tensor:
    """Indices of the tokens (T, 2) that have coordinates, row by row.

    >>> _in_rows(torch.tensor([[8.0, 0.0], [float("nan")] * 2, [0.0, 8.0], [0.0, 0.0]])).tolist()
    [3, 2, 0]
    """
    placed = (~coordinates[:, 0].isnan()).nonzero()[:, 0]
    across = coordinates[placed, 1].argsort(stable=True)
    down = (coordinates[placed[across], 0] * 16).round().argsort(stable=True)
    return placed[across[down]]


class StreamingNorms(StreamingInstrument, name="norms"):
    """Sums norms over images, and the attention that high patches draw in the next layer."""

    wildcards = "units"

    def __init__(self, structure: ModelStructure, units: str | Iterable[str] = "*"):
        chosen = structure.chosen_units(units)
        self.units, self.left_out = on_a_grid(chosen, "norms", structure.kind)
        self.streams = tuple(self.units)
        prefix = max(unit.num_prefix_tokens for unit in self.units.values())
        self.names = structure.prefix_tokens[:prefix] if prefix else ()
        self.keys = {
            name: _in_rows(tokens.key[0])
            for name, tokens in structure.coordinates.items()
            if tokens.over_tokens and len(tokens.key) == 1
        }
        self.maps = dict.fromkeys(self.keys, ("mixed",))
        self.sums: dict[str, dict[str, Any]] = {"quantiles": {}, "high": {}, "tokens": {}}
        self.attention: dict[str, dict[str, float]] = {"drawn": {}, "even": {}}
        self.latest: Tensor | None = None  # high patches of the stream that runs now. (B, N)
        self.seen: dict[str, int] = {}  # attention layer -> images of the batch that it has shown

    def add_features(self, unit: str, tensor: Tensor) -> None:
        """Add a batch of streams."""
        described = self.units[unit]
        assert described.layout is not None  # it has a grid
        assert described.grid is not None
        prefix = described.num_prefix_tokens
        patches = described.as_image(tensor).float().norm(dim=1).flatten(1)  # (B, N)
        if not bool(patches.isfinite().all()):
            raise UserError(f"norms: the features of {unit} are not finite")
        self.latest = high_norm(patches)
        levels = torch.quantile(patches.double(), patches.new_tensor(QUANTILES).double(), dim=1)
        self._add("quantiles", unit, levels.sum(1))
        self._add("high", unit, self.latest.double().sum(0).unflatten(0, described.grid))
        tokens = Layout(described.layout, described.grid, prefix).as_tokens(tensor)
        self._add("tokens", unit, tokens[:, :prefix].float().norm(dim=-1).double().sum(0))

    def _add(self, quantity: str, unit: str, value: Tensor) -> None:
        sums = self.sums[quantity]
        sums[unit] = sums.get(unit, 0.0) + value.cpu()

    def add_map(self, layer: str, part: str, weights: Tensor) -> None:
        """Add the attention to patches that are high in the stream before the layer."""
        placed = self.keys[layer].to(weights.device)
        first = self.seen.get(layer, 0)
        self.seen[layer] = first + len(weights)
        if self.latest is None or self.latest.shape[1] != len(placed):
            return  # pooled keys, or maps and features come in passes of their own
        high = self.latest[first : first + len(weights)]
        share = weights.mean((1, 2))[:, placed]  # (b, N)
        for name, value in (("drawn", share * high), ("even", high / share.shape[1])):
            sums = self.attention[name]
            sums[layer] = sums.get(layer, 0.0) + float(value.double().sum())

    def end_batch(self, images: Tensor) -> None:
        """Forget the stream: the next batch starts at the first layer."""
        self.latest = None
        self.seen.clear()

    def result(self, num_images: int) -> TokenNorms:
        """Means over images."""
        mean = {
            quantity: {unit: (value / num_images).numpy() for unit, value in sums.items()}
            for quantity, sums in self.sums.items()
        }
        return TokenNorms(
            quantiles=mean["quantiles"],
            high={unit: float(share.mean()) for unit, share in mean["high"].items()},
            where=mean["high"],
            tokens=mean["tokens"],
            token_names=self.names,
            kind={name: unit.kind for name, unit in self.units.items()},
            stage={name: unit.stage for name, unit in self.units.items()},
            drawn={n: value / num_images for n, value in self.attention["drawn"].items()},
            even={n: value / num_images for n, value in self.attention["even"].items()},
            num_images=num_images,
            left_out=self.left_out,
        )


@checked
def norms(
    model: nn.Module, batches: Iterable[Any], *, units: str | Iterable[str] = "*", **layout: Any
) -> TokenNorms:
    """Measure the norms of all tokens after every unit of ``model`` that has a grid.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        units: Wildcards for the units.
        layout: ``level="block"`` for one unit per residual block of convolutions; ``grid=(h, w)``
            and ``num_prefix_tokens`` of units that cannot be traced.
    """
    return run_instrument(StreamingNorms, model, batches, layout, units=units)
