"""GPSA for inference that skips the branches whose gates are near 0 or 1.

Training drives many gates to 0 or 1 (d'Ascoli et al. 2021, Fig. 6: all of layers 6-10 end at 0).
A head whose gate s is within a tolerance of 0 needs no positional branch; one within it of 1 needs
no content branch: no query, no key, no softmax. Replacing

    A = (1 - s) C + s P   by C   changes a row by   |A - C|_1 = s |P - C|_1 <= 2 s,

and by P likewise by at most 2 (1 - s), because two rows that sum to one are at most 2 apart.

Heads are sorted into [position | mixed | content] once, by permuting the rows of the weights, so
that each branch runs on one slice of heads.

Shapes as in :mod:`vitascope.layers.gpsa`.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.layers.attention_path import attend
from vitascope.layers.gpsa import GPSA
from vitascope.layers.positions import apply_windows, axis_windows
from vitascope.layers.psa import split_heads

__all__ = ["PrunedGPSA", "sort_heads"]


def sort_heads(gate: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the heads that keep position alone, both, and content alone.

    >>> sort_heads(torch.tensor([0.5, 0.001, 0.999]), 0.01)
    (tensor([2]), tensor([0]), tensor([1]))
    """
    if not 0 <= tolerance < 0.5:
        raise UserError(f"the tolerance must lie in [0, 0.5), not at {tolerance}")
    content, position = gate <= tolerance, gate >= 1 - tolerance
    mixed = ~(content | position)
    return position.nonzero()[:, 0], mixed.nonzero()[:, 0], content.nonzero()[:, 0]


class PrunedGPSA(nn.Module):
    """A :class:`GPSA` without the branches that its gates have closed.

    Attributes:
        bound: The most that a row of attention can differ from the layer's, summed over the row.
    """

    mixed_gate: Tensor  # (mixed heads, 1, 1)

    def __init__(self, layer: GPSA, tolerance: float):
        super().__init__()
        gate = layer.gate.detach()
        position, mixed, content = sort_heads(gate, tolerance)
        order = torch.cat([position, mixed, content])
        looking = order[len(position) :]  # the heads that have queries and keys
        self.num_position, self.num_mixed, self.num_content = map(len, (position, mixed, content))
        self.bound = 2 * max([0.0, *(1 - gate[position]).tolist(), *gate[content].tolist()])
        self.resolve_grid = layer.resolve_grid
        self.dim, self.num_heads, self.head_dim = layer.dim, layer.num_heads, layer.head_dim

        def channels(heads: Tensor) -> Tensor:
            inside = torch.arange(self.head_dim, device=heads.device)
            return (heads[:, None] * self.head_dim + inside).flatten()

        queries_and_keys = torch.cat([looking, looking + self.num_heads])
        self.qk = _rows(layer.qk, channels(queries_and_keys)) if len(looking) else None
        self.v = _rows(layer.v, channels(order))
        self.proj = _columns(layer.proj, channels(order))
        near = order[: len(position) + len(mixed)]  # the heads that have a window
        self.pos_proj = _rows(layer.pos_proj, near) if len(near) else None
        self.register_buffer("mixed_gate", gate[mixed].view(-1, 1, 1))

    def forward(self, x: Tensor, grid: Sequence[int] | None = None) -> Tensor:
        """Like :meth:`GPSA.forward`, to within ``bound``. (B, N, D) -> (B, N, D)"""
        grid = self.resolve_grid(x.shape[1], grid)
        value = split_heads(self.v(x), self.num_heads)
        out = torch.cat(self.branches(x, value, grid), dim=1)  # (B, H, N, d)
        return self.proj(out.transpose(1, 2).flatten(2))

    def branches(self, x: Tensor, value: Tensor, grid: Sequence[int]) -> list[Tensor]:
        """Return what the heads that keep position, both, or content see."""
        alone, both = self.num_position, self.num_mixed
        outputs = []
        if self.pos_proj is not None:
            windows = axis_windows(self.pos_proj.weight, grid)
            position = apply_windows(windows, value[:, : alone + both], grid)
            outputs.append(position[:, :alone])
        if self.qk is not None:
            query, key = split_heads(self.qk(x), 2 * (self.num_heads - alone)).chunk(2, dim=1)
            content = attend(query, key, value[:, alone:])
            if both:
                gate = self.mixed_gate.to(content.dtype)
                near = position[:, alone:].to(content.dtype)
                outputs.append(torch.lerp(content[:, :both], near, gate))
            outputs.append(content[:, both:])
        return outputs

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows."""
        return f"position={self.num_position}, mixed={self.num_mixed}, content={self.num_content}"


def _rows(linear: nn.Linear, index: Tensor) -> nn.Linear:
    """The linear map to some of the outputs, in a given order."""
    return _linear(linear.weight[index], None if linear.bias is None else linear.bias[index])


def _columns(linear: nn.Linear, index: Tensor) -> nn.Linear:
    """The linear map from inputs that come in another order."""
    return _linear(linear.weight[:, index], linear.bias)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None).to(weight)
    linear.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone())
    return linear
