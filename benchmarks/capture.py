"""What attention maps cost: capture against the ways that each library has for it.

A ViT of 12 blocks (width 192, 3 heads, 224 px) of timm and of Hugging Face, all in one process,
taking turns:

* ``capture.attention`` on the model as it is used, with its fused kernels;
* on timm's, with fused attention switched off: forward hooks on ``attn_drop``, and timm's
  ``AttentionExtract``;
* on Hugging Face's, loaded with ``attn_implementation="eager"``: ``output_attentions=True``.

Costs are processor time, in forward passes of the model with fused attention. How far the maps
differ is kept too: it is the same work. The memory is that of a pass that keeps every map, and of
one that keeps a number of each (``reduce=``), which the peer cannot: it returns all maps at once.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from timm.models.vision_transformer import VisionTransformer
from timm.utils import AttentionExtract
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.timing import CLOCK, Benchmark, Row, peak_memory, take_turns
from vitascope.threads import running_on

Maps = list[Tensor]  # a layer's each, in order
Ways = dict[str, Callable[[], Maps]]

PLAIN, OURS, EAGER = "forward pass", "capture.attention", "output_attentions, eager"


@dataclass(frozen=True)
class CaptureBenchmark(Benchmark, subject="capture"):
    """Costs in forward passes with fused attention, and speeds against peers: above 1 is faster."""

    cost: tuple[Row, ...]
    speed: tuple[Row, ...]
    memory: tuple[tuple[str, int, int], ...]  # what is kept, our bytes, the peer's
    difference: dict[str, float]  # peer -> largest difference of an entry of a map


def time_capture(
    *,
    batch_size: int = 4,
    img_size: int = 224,
    depth: int = 12,
    rounds: int = 15,
    threads: int = 1,
    progress: Callable[[str], object] = lambda stage: None,
) -> CaptureBenchmark:
    """Run the measurements."""
    start = perf_counter()
    cost, speed, difference = [], [], {}
    with running_on(threads), torch.inference_mode():
        torch.manual_seed(0)
        images = torch.randn(batch_size, 3, img_size, img_size)
        libraries = {
            "timm": _of_timm(img_size, depth, images),
            "Hugging Face": _of_hugging_face(img_size, depth, images),
        }
        for library, (_, ways) in libraries.items():
            progress(library)
            times = take_turns(ways, rounds=rounds)
            cost += [
                (f"{library}: {way}", *times.speed(PLAIN, way)) for way in ways if way != PLAIN
            ]
            for peer in [way for way in ways if way not in (PLAIN, OURS)]:
                speed.append((f"{library}: {OURS} / {peer}", *times.speed(OURS, peer)))
                pairs = zip(ways[OURS](), ways[peer](), strict=True)
                difference[peer] = max(float((a - b).abs().max()) for a, b in pairs)
        progress("memory")
        model, ways = libraries["Hugging Face"]
        theirs = peak_memory(ways[EAGER])
        memory = (
            ("all maps kept", peak_memory(ways[OURS]), theirs),
            ("one number of each kept", peak_memory(_one_number(model, images)), theirs),
        )
    config: dict[str, Any] = {"batch_size": batch_size, "img_size": img_size, "depth": depth}
    config |= {"rounds": rounds, "threads": threads, "clock": CLOCK, "peer": EAGER}
    taken = perf_counter() - start
    return CaptureBenchmark(
        tuple(cost), tuple(speed), memory, difference, config=config, seconds=taken
    )


def _plain_and_ours(model: nn.Module, images: Tensor) -> Ways:
    """A pass without maps, and ours."""

    def plain() -> Maps:
        model(images)
        return []

    def ours() -> Maps:
        with capture.attention(model) as maps:
            model(images)
        return list(maps.values())

    return {PLAIN: plain, OURS: ours}


def _one_number(model: nn.Module, images: Tensor) -> Callable[[], object]:
    """Capture that keeps the largest weight of each map."""

    def run() -> object:
        with capture.attention(model, reduce=lambda _, weights: float(weights.max())) as found:
            model(images)
        return found

    return run


def _of_timm(img_size: int, depth: int, images: Tensor) -> tuple[nn.Module, Ways]:
    model = VisionTransformer(img_size, embed_dim=192, depth=depth, num_heads=3).eval()
    unfused = deepcopy(model)
    for block in unfused.blocks:
        block.attn.fused_attn = False
    extract = AttentionExtract(unfused, names=["blocks.*.attn.softmax"], method="fx")

    def hooks() -> Maps:
        maps: Maps = []
        handles = [
            block.attn.attn_drop.register_forward_hook(lambda _m, _i, out: maps.append(out))
            for block in unfused.blocks
        ]
        unfused(images)
        for handle in handles:
            handle.remove()
        return maps

    ways = _plain_and_ours(model, images)
    ways["forward hooks, not fused"] = hooks
    ways["AttentionExtract, not fused"] = lambda: list(extract(images).values())
    return model, ways


def _of_hugging_face(img_size: int, depth: int, images: Tensor) -> tuple[nn.Module, Ways]:
    try:
        from transformers import ViTConfig, ViTForImageClassification
    except ImportError:
        raise UserError("the peer is missing: pip install 'vitascope[hub]'") from None
    sizes: dict[str, Any] = {
        "hidden_size": 192,
        "num_hidden_layers": depth,
        "num_attention_heads": 3,
    }
    sizes |= {"intermediate_size": 768, "image_size": img_size, "patch_size": 16}

    def made(implementation: str) -> Any:
        config = ViTConfig(**(sizes | {"attn_implementation": implementation}))
        return ViTForImageClassification(config).eval()

    model, eager = made("sdpa"), made("eager")
    eager.load_state_dict(model.state_dict())
    ways = _plain_and_ours(model, images)
    ways[EAGER] = lambda: list(eager(images, output_attentions=True).attentions)
    return model, ways
