"""How cost grows: seconds and memory against images, patches and depth.

For ConViT, timm's ConViT and a ViT, all of ConViT-Ti's width with 4 heads, in one process, taking
turns: a training step (forward and backward), and `inspect`, which is a pass of the default
instruments with all that it needs to find out about the model. One of three things changes at a
time: the images of a batch, the patches per side (up to 64 x 64), the blocks.

    python -m benchmarks growth
    PYTHONPATH=. python scripts/make_growth.py    # the figures for the docs, from the record

Memory is the most that a run holds at once beyond the weights. timm's layer makes maps of N x N for
all images, so at 64 x 64 patches its training step needs about 2 GB for each block and image.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from benchmarks.gpsa import training
from vitascope import measure
from vitascope.figure import Figure, Lines, Series, Style
from vitascope.measure.timing import CLOCK, Benchmark, peak_memory, take_turns
from vitascope.models import create_model
from vitascope.record import Record
from vitascope.threads import running_on

WORKS = ("training", "inspect")
ALONG = {"images": "images per batch", "patches": "patches per side", "depth": "blocks"}
_WIDTH, _HEADS, _PATCH = 192, 4, 16

Point = tuple[str, str, str, float, float, float]  # along, work, model, x, seconds, bytes


@dataclass(frozen=True)
class GrowthBenchmark(Benchmark, subject="growth"):
    """Seconds and bytes of every model, work and size."""

    points: tuple[Point, ...]


def models_of(side: int, depth: int) -> dict[str, nn.Module]:
    """The three networks for a square grid of patches; 10 of 12 blocks have GPSA, as in ConViT."""
    gated = round(10 / 12 * depth)
    size = {"img_size": side * _PATCH, "depth": depth}
    return {
        "ConViT": create_model("convit_tiny", num_gpsa_blocks=gated, **size),
        "ViT": VisionTransformer(embed_dim=_WIDTH, num_heads=_HEADS, patch_size=_PATCH, **size),
        "timm's ConViT": timm.create_model("convit_tiny", local_up_to_layer=gated, **size),
    }


def time_growth(
    *,
    images: tuple[int, ...] = (1, 2, 4, 8, 16),
    grids: tuple[int, ...] = (8, 14, 24, 40, 64),
    depths: tuple[int, ...] = (2, 4, 8, 12),
    rounds: int = 5,
    threads: int = 1,
    progress: Callable[[str], object] = lambda stage: None,
) -> GrowthBenchmark:
    """Run the measurements; what does not change is 4 images, 14 x 14 patches and 4 blocks.

    Along the patches there is one image, so that the largest grid fits in memory.
    """
    start = perf_counter()
    sizes = [("images", float(count), count, 14, 4) for count in images]
    sizes += [("patches", float(side), 1, side, 4) for side in grids]
    sizes += [("depth", float(depth), 4, 14, depth) for depth in depths]
    points: list[Point] = []
    with running_on(threads):
        for along, x, count, side, depth in sizes:
            progress(f"{x:g} {ALONG[along]}")
            torch.manual_seed(0)
            pixels = torch.randn(count, 3, side * _PATCH, side * _PATCH)
            for work, runs in _runs(models_of(side, depth), pixels).items():
                times = take_turns(runs, rounds=rounds, warmup=0)
                points += [
                    (along, work, name, x, times.median(name), float(peak_memory(run)))
                    for name, run in runs.items()
                ]
    config = {"images": images, "grids": grids, "depths": depths, "rounds": rounds}
    config |= {"threads": threads, "clock": CLOCK, "width": _WIDTH, "heads": _HEADS}
    return GrowthBenchmark(tuple(points), config=config, seconds=perf_counter() - start)


def _runs(
    models: Mapping[str, nn.Module], pixels: torch.Tensor
) -> dict[str, dict[str, Callable[[], object]]]:
    """The works of every model; CKA compares images, so fewer than 4 go without it."""
    names = ("nonlocality", "entropy", "maps", "norms", "fourier", "variance")
    chosen = names if len(pixels) < 4 else (*names, "cka")
    inspect = {n: partial(measure.together, m, [pixels], chosen) for n, m in models.items()}
    return {"training": {n: training(m, pixels) for n, m in models.items()}, "inspect": inspect}


def growth_figure(record: Record, work: str) -> Figure:
    """Seconds and memory of a training step or of `inspect`, against what grows."""
    points = [point for point in record.values["points"] if point[1] == work]
    names = list(dict.fromkeys(name for _, _, name, *_ in points))
    panels = []
    for column, label, unit in ((4, "seconds", 1.0), (5, "memory (MB)", 1e6)):
        for along, x_label in ALONG.items():
            series = []
            for index, name in enumerate(names):
                rows = [p for p in points if (p[0], p[2]) == (along, name)]
                ys = [row[column] / unit for row in rows]
                style = Style(colour=index)
                series.append(Series(label=name, x=[row[3] for row in rows], y=ys, style=style))
            panels.append(
                Lines(x_label=x_label, y_label=label, series=tuple(series), x_log=True, y_log=True)
            )
    what = "a training step" if work == "training" else "the default instruments"
    return Figure(
        name=f"growth-{work}",
        title=f"How the cost of {what} grows",
        reading=f"Seconds and memory of {what}, ConViT-Ti's width with 4 heads",
        panels=tuple(panels),
        wide=True,
    )
