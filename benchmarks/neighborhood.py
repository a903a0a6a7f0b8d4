"""What attention over neighbourhoods costs: against dense attention under a mask.

One layer of ViT-Ti's width (192, 3 heads), one image, grids of 32 x 32 and 64 x 64 patches, k = 3,
5 and 8, forward alone and forward with backward, taking turns in one process. The peer has the same
weights and the same fused kernel, with a mask of N x N that is made once, outside the time that is
measured. Its memory counts the mask, which it must hold. The aim is to be faster from 32 x 32 on
with memory linear in the patches: four times as much on 64 x 64 as on 32 x 32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.layers import NeighborhoodAttention
from vitascope.layers.neighbors import neighborhood_mask
from vitascope.measure.timing import CLOCK, Benchmark, Row, peak_memory, take_turns
from vitascope.threads import running_on

PEER = "dense masked attention"
MODES = ("forward", "forward and backward")


@dataclass(frozen=True)
class NeighborhoodBenchmark(Benchmark, subject="neighborhood"):
    """Ratios above 1 mean faster than the peer."""

    speed: tuple[Row, ...]
    memory: tuple[tuple[str, int, int], ...]  # what, bytes of our layer, bytes of the peer's


class DenseMaskedAttention(NeighborhoodAttention):
    """The same layer by one product of all pairs, most of them masked out."""

    bias: Tensor | None = None  # (N, N), kept between calls

    def make_bias(self, grid: Sequence[int]) -> Tensor:
        """0 where a patch sees another, minus infinity where not. (N, N)"""
        sees = neighborhood_mask(grid, self.kernel_size)
        return torch.zeros(sees.shape).masked_fill_(~sees, -torch.inf)

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:  # type: ignore[override]
        """(B, N, D) -> (B, N, D)"""
        bias = self.make_bias(grid) if self.bias is None else self.bias
        out = F.scaled_dot_product_attention(*self.project(x), attn_mask=bias)
        return self.proj(out.transpose(1, 2).flatten(2))


def time_neighborhood(
    *,
    grids: tuple[int, ...] = (32, 64),
    kernel_sizes: tuple[int, ...] = (3, 5, 8),
    batch_size: int = 1,
    rounds: int = 7,
    threads: int = 1,
    progress: Callable[[str], object] = lambda stage: None,
) -> NeighborhoodBenchmark:
    """Run the measurements."""
    if min((*grids, *kernel_sizes, batch_size)) < 1:
        raise UserError("grids, kernel sizes and the batch must have one patch or image at least")
    start = perf_counter()
    torch.manual_seed(0)
    speed: list[Row] = []
    memory: list[tuple[str, int, int]] = []
    with running_on(threads):
        for side in grids:
            for k in kernel_sizes:
                for mode in MODES:
                    what = f"{side} x {side} patches, k = {k}, {mode}"
                    progress(what)
                    row, sizes = _layer(side, k, mode, batch_size, rounds)
                    speed.append((f"{what} / {PEER}", *row))
                    memory.append((what, *sizes))
    config = {"grids": grids, "kernel_sizes": kernel_sizes, "batch_size": batch_size}
    config |= {"dim": 192, "num_heads": 3, "rounds": rounds, "threads": threads, "clock": CLOCK}
    taken = perf_counter() - start
    return NeighborhoodBenchmark(
        tuple(speed), tuple(memory), config={**config, "peer": PEER}, seconds=taken
    )


def _layer(
    side: int, k: int, mode: str, batch_size: int, rounds: int
) -> tuple[tuple[float, float, float], tuple[int, int]]:
    """Speed of ours against the peer's, and the memory of both."""
    ours = NeighborhoodAttention(192, 3, kernel_size=k)
    theirs = DenseMaskedAttention(192, 3, kernel_size=k)
    theirs.load_state_dict(ours.state_dict())
    tokens = torch.randn(batch_size, side * side, 192)
    run = _forward if mode == MODES[0] else _training
    sizes = tuple(peak_memory(run(layer, tokens, (side, side))) for layer in (ours, theirs))
    theirs.bias = theirs.make_bias((side, side))
    runs = {"ours": run(ours, tokens, (side, side)), "peer": run(theirs, tokens, (side, side))}
    return take_turns(runs, rounds=rounds).speed("ours", "peer"), (sizes[0], sizes[1])


def _forward(layer: nn.Module, tokens: Tensor, grid: Sequence[int]) -> Callable[[], object]:
    def run() -> None:
        with torch.inference_mode():
            layer(tokens, grid)

    return run


def _training(layer: nn.Module, tokens: Tensor, grid: Sequence[int]) -> Callable[[], object]:
    leaf = tokens.clone().requires_grad_()

    def run() -> None:
        leaf.grad = None
        layer.zero_grad()
        layer(leaf, grid).square().mean().backward()

    return run
