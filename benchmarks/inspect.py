"""What looking inside costs: the instruments against a plain forward pass, CKA against its peers.

Large images: ViT-S at 224 px (197 tokens) and DINOv2's ViT-S with registers at 518 px (1,374
tokens), random weights and images. Each instrument alone and all of them together, and the most
memory that the pass with all of them holds at once, next to a plain pass. Finding units and tracing
tokens is part of it. `--models` and `--images` choose others, `--models none` leaves them out.

Small images: a ViT of 12 blocks (width 192, 3 heads, 26 units) on random images, all in one
process, taking turns:

* the default instruments in one pass, against the same images through the plain network. Masking
  and lesions need passes of their own and are not in it;
* CKA of all pairs of units' outputs against pytorch-cka on the same units and batches, and against
  torch-cka where that is installed. How far the matrices differ is kept too: it is the same work.

pytorch-cka also runs the network once and takes all pairs in one product, so no tool can be
faster than it by more than its time over a plain pass, which is measured beside it.
"""

from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from io import StringIO
from time import perf_counter
from typing import Any

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.streaming.one_pass import streaming_instruments
from vitascope.measure.timing import CLOCK, Benchmark, Row, peak_memory, take_turns
from vitascope.threads import running_on

LARGE = {"vit_small_patch16_224": 224, "vit_small_patch14_reg4_dinov2": 518}  # sides in pixels


@dataclass(frozen=True)
class InspectBenchmark(Benchmark, subject="inspect"):
    """Costs in plain forward passes, and speeds against peers: above 1 is faster than the peer."""

    cost: tuple[Row, ...]
    speed: tuple[Row, ...]
    difference: dict[str, float]  # peer -> largest difference of an entry of the CKA matrix
    memory: tuple[tuple[str, float, float], ...]  # bytes with all instruments, of a plain pass


def time_inspect(
    *,
    models: tuple[str, ...] = tuple(LARGE),
    images: int = 64,
    num_images: int = 512,
    batch_size: int = 64,
    img_size: int = 64,
    depth: int = 12,
    rounds: int = 5,
    threads: int = 1,
    progress: Callable[[str], object] = lambda stage: None,
) -> InspectBenchmark:
    """Run the measurements."""
    start = perf_counter()
    with running_on(threads):
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=img_size,
            patch_size=8,
            embed_dim=192,
            depth=depth,
            num_heads=3,
            num_classes=100,
        ).eval()
        pixels = torch.randn(num_images, 3, img_size, img_size)
        batches = list(pixels.split(batch_size))
        names = [unit.name for unit in capture.units(model, pixels)]
        runs = _runs(model, pixels, batch_size, names)
        plain, together, ours = (runs.pop(who) for who in ("plain", "together", "ours"))
        progress("one pass")
        times = take_turns({"plain": plain, "together": together}, rounds=rounds)
        cost = [("all instruments at 64 px", *times.speed("plain", "together"))]
        speed, difference = [], {}
        expected = measure.cka(model, batches, at="unit").similarity
        for peer, run in runs.items():
            progress(f"CKA against {peer}")
            turns = rounds if peer == "pytorch-cka" else max(2, rounds // 2)
            warmup = 1 if peer == "pytorch-cka" else 0
            shown = {"plain": plain, "ours": ours, peer: run}
            times = take_turns(shown, rounds=turns, warmup=warmup)
            who = ("ours", peer) if peer == "pytorch-cka" else (peer,)
            cost += [(f"CKA by {name}", *times.speed("plain", name)) for name in who]
            speed.append((f"CKA of {len(names)} units / {peer}", *times.speed("ours", peer)))
            difference[peer] = float((torch.as_tensor(expected) - run().double()).abs().max())
        memory = []
        for name in models if models != ("none",) else ():
            rows, held = _cost_of_instruments(
                name, images, min(batch_size, images), rounds, progress
            )
            cost += rows
            memory.append(held)
    config: dict[str, Any] = {"num_images": num_images, "batch_size": batch_size}
    config |= {
        "models": models,
        "images": images,
        "img_size": img_size,
        "depth": depth,
        "patch_size": 8,
        "units": len(names),
    }
    config |= {"rounds": rounds, "threads": threads, "clock": CLOCK}
    config |= {"peer": "plain pass"}
    return InspectBenchmark(
        tuple(cost),
        tuple(speed),
        difference,
        tuple(memory),
        config=config,
        seconds=perf_counter() - start,
    )


def _cost_of_instruments(
    name: str, num_images: int, batch_size: int, rounds: int, progress: Callable[[str], object]
) -> tuple[list[Row], tuple[str, float, float]]:
    """Cost of each instrument alone and of all together; bytes that all hold, and a plain pass."""
    if name not in timm.list_models():
        raise UserError(f"unknown model {name!r}; give names of timm, such as {', '.join(LARGE)}")
    side = LARGE.get(name, 224)
    model = timm.create_model(name, img_size=side).eval()
    pixels = torch.randn(num_images, 3, side, side)
    batches = list(pixels.split(batch_size))

    def plain() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(batch)

    chosen = {each: (each,) for each in streaming_instruments()}
    works: dict[str, tuple[str, ...] | None] = {**chosen, "all instruments": None}
    runs = {work: partial(measure.together, model, batches, names) for work, names in works.items()}
    progress(f"{name} at {side} px")
    times = take_turns({"plain": plain, **runs}, rounds=rounds, warmup=0)
    rows = [(f"{work}, {name} at {side} px", *times.speed("plain", work)) for work in runs]
    progress(f"memory of {name} at {side} px")
    held = peak_memory(runs["all instruments"]), peak_memory(plain)
    return rows, (f"all instruments, {name} at {side} px", *map(float, held))


def _runs(
    model: nn.Module, images: Tensor, batch_size: int, names: list[str]
) -> dict[str, Callable[[], Any]]:
    """A plain pass, ours, and the peers that are installed."""
    batches = list(images.split(batch_size))
    loader = DataLoader(TensorDataset(images), batch_size=batch_size)

    def plain() -> None:
        with torch.inference_mode():
            for batch in batches:
                model(batch)

    def pytorch_cka() -> Tensor:
        peer = import_module("cka")
        chosen = {"layers": names, "model2_layers": names}
        return peer.compute_cka(model, model, loader, **chosen, progress=False)[0]

    def torch_cka() -> Tensor:
        peer = import_module("torch_cka")
        with torch.no_grad(), redirect_stderr(StringIO()):
            both = {"model1_name": "a", "model2_name": "b"}
            found = peer.CKA(model, model, **both, model1_layers=names, model2_layers=names)
            found.compare(loader, loader)
        for module in model.modules():
            module._forward_hooks.clear()  # it leaves its own behind
        return found.hsic_matrix

    runs: dict[str, Callable[[], Any]] = {
        "plain": plain,
        "together": lambda: measure.together(model, batches),
        "ours": lambda: measure.cka(model, batches, at="unit"),
    }
    for who, package, run in (
        ("pytorch-cka", "cka", pytorch_cka),
        ("torch-cka", "torch_cka", torch_cka),
    ):
        try:
            import_module(package)
        except ImportError:
            if who == "pytorch-cka":
                raise UserError("the peer is missing: pip install 'vitascope[test]'") from None
            continue
        runs[who] = run
    return runs
