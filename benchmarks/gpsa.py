"""What ConViT costs: against timm's ConViT, and against a ViT of the same width and heads.

The aim is the price of the plain ViT. Three measurements, all in one process, taking turns:

* whole networks at 224 px, inference and training step (forward and backward), with each number of
  threads;
* one GPSA layer against timm's on grids of 14 x 14, 32 x 32 and 64 x 64 patches, with the memory
  that each needs beyond its input and weights;
* gate-pruned inference when half of the gates are at 0 or 1, as after training.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import timm
import torch
from timm.models.convit import GPSA as TimmGPSA
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from vitascope.errors import UserError
from vitascope.layers import GPSA, gpsa_layers
from vitascope.measure.timing import CLOCK, Benchmark, Row, peak_memory, take_turns
from vitascope.models import create_model
from vitascope.models.registry import OURS
from vitascope.threads import running_on


@dataclass(frozen=True)
class GPSABenchmark(Benchmark, subject="gpsa"):
    """Ratios above 1 mean faster, or smaller, than the peer."""

    speed: tuple[Row, ...]
    memory: tuple[tuple[str, int, int], ...]  # grid, bytes of our layer, bytes of timm's


def saturate_gates(model: nn.Module, share: float = 0.5) -> None:
    """Shut a share of the gates: half of those at 0 (late layers), half at 1 (early layers)."""
    layers = list(gpsa_layers(model).values())
    gates = [(layer, head) for layer in layers for head in range(layer.num_heads)]
    count = round(share * len(gates) / 2)
    with torch.no_grad():
        for layer, head in gates[:count]:
            layer.gating_param[head] = 40.0
        for layer, head in gates[len(gates) - count :]:
            layer.gating_param[head] = -40.0


def inference(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    """A forward pass to time."""
    model.eval()

    def run() -> None:
        with torch.inference_mode():
            model(images)

    return run


def training(model: nn.Module, images: torch.Tensor) -> Callable[[], object]:
    """A forward and backward pass to time."""

    def run() -> None:
        model.train()
        model.zero_grad()
        model(images).logsumexp(dim=-1).mean().backward()

    return run


def time_gpsa(
    *,
    models: tuple[str, ...] = ("convit_tiny", "convit_small", "convit_base"),
    grids: tuple[int, ...] = (14, 32, 64),
    batch_size: int = 8,
    rounds: int = 11,
    threads: tuple[int, ...] = (1, 2),
    progress: Callable[[str], object] = lambda stage: None,
) -> GPSABenchmark:
    """Run the three measurements."""
    wrong = [name for name in models if name.removeprefix("convit_") == name or name not in OURS]
    if wrong:
        raise UserError(f"{wrong[0]} is not a ConViT of ours: give convit_tiny, convit_small, ...")
    start = perf_counter()
    torch.manual_seed(0)
    speed: list[Row] = []
    for count in threads:
        with running_on(count):
            for name in models:
                for kind, mode in (("inference", inference), ("training", training)):
                    progress(f"{name}, {kind}, {_threads(count)}")
                    rows = _networks(name, kind, mode, batch_size, rounds)
                    speed += [(f"{row[0]}, {_threads(count)}", *row[1:]) for row in rows]
    memory = []
    with running_on(threads[0]):
        for side in grids:
            progress(f"one layer on {side} x {side} patches")
            row, sizes = _layer(side, rounds)
            speed.append(row)
            memory.append((f"{side} x {side}", *sizes))
    config = {"models": models, "grids": grids, "batch_size": batch_size, "rounds": rounds}
    config |= {"threads": threads, "clock": CLOCK, "img_size": 224}
    return GPSABenchmark(tuple(speed), tuple(memory), config=config, seconds=perf_counter() - start)


def _threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"


def _networks(
    name: str, kind: str, mode: Callable[..., Callable[[], object]], batch_size: int, rounds: int
) -> list[Row]:
    """Our ConViT, pruned too, timm's, and the ViT of the same width and heads."""
    images = torch.randn(batch_size, 3, 224, 224)
    ours = create_model(name)
    peers: dict[str, nn.Module] = {"ours": ours}
    size = OURS[name][1]
    peers["same-width ViT"] = VisionTransformer(
        embed_dim=size["embed_dim"], num_heads=size["num_heads"]
    )
    if timm.is_model(name):
        peers["timm's ConViT"] = timm.create_model(name)
    if kind == "inference":
        saturated = create_model(name)
        saturate_gates(saturated)
        peers["pruned"] = saturated.prune_gates(1e-3)
    times = take_turns({who: mode(model, images) for who, model in peers.items()}, rounds=rounds)
    rows = [
        (f"{name} {kind} / {peer}", *times.speed("ours", peer))
        for peer in ("timm's ConViT", "same-width ViT")
        if peer in peers
    ]
    if "pruned" in peers:
        pair = f"{name} {kind}, half of the gates pruned / same-width ViT"
        rows.append((pair, *times.speed("pruned", "same-width ViT")))
    return rows


def _layer(side: int, rounds: int) -> tuple[Row, tuple[int, int]]:
    """One GPSA layer of ConViT-Ti's width against timm's."""
    tokens = torch.randn(1, side * side, 192)
    ours, theirs = GPSA(192, 4), TimmGPSA(192, 4)
    theirs.local_init()
    runs = {"ours": inference(ours, tokens), "timm's": inference(theirs, tokens)}
    times = take_turns(runs, rounds=max(3, rounds // 2))
    row = (f"GPSA layer, {side} x {side} patches / timm's GPSA", *times.speed("ours", "timm's"))
    return row, (peak_memory(runs["ours"]), peak_memory(runs["timm's"]))
