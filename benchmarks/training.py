"""Overhead of the training loop: images/s of `train` against the bare steps.

Three candidates on the same model and images take turns, a fixed number of updates each:

* ``bare``: forward, backward and optimizer step on one random batch that stays in memory;
* ``vitascope``: :func:`vitascope.training.train`, with its data, augmentation, schedule and checks;
* ``timm``: the same updates fed by timm's loader and Mixup from the same images.

Evaluation is outside of all three. Then, for every small model of ours, the share of the machine's
matrix product that its steps reach: :mod:`benchmarks.machine_share`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import Mixup, create_transform
from timm.optim import create_optimizer_v2
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.machine_share import SMALL_MODELS, machine_shares
from vitascope.data import Dataset, MemoryImages, augment
from vitascope.measure.timing import Benchmark, Row, TimedComparison
from vitascope.models import create_model
from vitascope.threads import running_on
from vitascope.training import Recipe, recipe, train


@dataclass(frozen=True)
class TrainingBenchmark(Benchmark, subject="training"):
    """Speed of our loop relative to the peers; above 1 is faster."""

    speed: tuple[Row, ...]  # pair, quartile, median, quartile
    images_per_second: dict[str, float]
    shares: tuple[tuple[Any, ...], ...] = ()  # see `machine_shares`


def random_images(count: int, side: int = 32) -> Dataset:
    """Images of CIFAR's size; what they show does not matter for speed."""
    pixels = torch.randint(0, 256, (count, 3, side, side), dtype=torch.uint8)
    classes = tuple(str(i) for i in range(10))
    images = MemoryImages(pixels, np.arange(count) % 10, classes)
    tests = images.take(np.arange(min(32, count)))
    return Dataset(
        name="random",
        train=images,
        test=tests,
        classes=classes,
        mean=(0.5,) * 3,
        std=(0.25,) * 3,
        flips=True,
        notes=(),
    )


def bare_steps(model: nn.Module, batch: int, steps: int) -> float:
    """Seconds of the updates alone."""
    images, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    start = perf_counter()
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return perf_counter() - start


def our_steps(model: nn.Module, images: Dataset, plan: Recipe) -> float:
    """Seconds that `train` spends on its updates, from its own clock."""
    with TemporaryDirectory() as folder:
        run = train(model, images, plan, Path(folder) / "run", quiet=True, trackers=())
        return run.steps * plan.batch_size / run.final["images_per_second"]


class _Folder(torch.utils.data.Dataset):
    """The same images as pillow images, which timm's transforms take."""

    def __init__(self, images: Dataset, transform: Callable[[Any], Tensor]):
        pixels = images.train.pixels(np.arange(len(images.train)))
        self.images = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels]
        self.labels, self.transform = images.train.labels, transform

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])


def timm_steps(model: nn.Module, images: Dataset, plan: Recipe, steps: int) -> float:
    """Seconds of the same updates from timm's transforms, loader and Mixup."""
    a = plan.augmentation
    # without the spread of magnitudes: at 10 and above timm's posterize fails on recent pillow
    policy = a.rand_augment and a.rand_augment.replace("-mstd0.5", "")
    transform = create_transform(
        32, is_training=True, auto_augment=policy, re_prob=a.random_erasing, re_mode="pixel"
    )
    mixed = a.mixup > 0 or a.cutmix > 0
    mixup = Mixup(a.mixup, a.cutmix, label_smoothing=a.label_smoothing, num_classes=10)
    loader = torch.utils.data.DataLoader(
        _Folder(images, transform), batch_size=plan.batch_size, shuffle=True, drop_last=True
    )

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    source = batches()
    start = perf_counter()
    for _ in range(steps):
        pixels, labels = next(source)
        pixels, targets = mixup(pixels, labels) if mixed else (pixels, labels)
        optimizer.zero_grad()
        F.cross_entropy(model(pixels), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return perf_counter() - start


def time_training(
    *,
    model: str = "vit_micro",
    batch_size: int = 128,
    steps: int = 20,
    rounds: int = 5,
    threads: int = 1,
    shares_of: Mapping[str, str] = SMALL_MODELS,
    progress: Callable[[str], object] = lambda stage: None,
) -> TrainingBenchmark:
    """Let the candidates take turns, with the laptop's and with CIFAR's augmentation."""
    started = perf_counter()
    torch.manual_seed(0)
    images = random_images(steps * batch_size)
    speed, rates = [], {}
    with running_on(threads):
        for name in ("laptop", "cifar"):
            varied = getattr(augment, name)()
            plan = recipe("laptop", epochs=1, batch_size=batch_size, augmentation=varied)
            seconds: dict[str, list[float]] = {"bare": [], "vitascope": [], "timm": []}
            fresh = lambda: create_model(model, num_classes=10)  # noqa: E731
            bare_steps(fresh(), batch_size, 2)  # warm up
            for _ in range(rounds):
                progress(name)
                seconds["bare"].append(bare_steps(fresh(), batch_size, steps))
                seconds["vitascope"].append(our_steps(fresh(), images, plan))
                seconds["timm"].append(timm_steps(fresh(), images, plan, steps))
            times = TimedComparison({who: tuple(values) for who, values in seconds.items()})
            for peer in ("bare", "timm"):
                pair = f"train with {name} augmentation / {peer} steps"
                speed.append((pair, *times.speed("vitascope", peer)))
            for who in seconds:
                rates[f"{name}: {who}"] = steps * batch_size / times.median(who)
        shares = machine_shares(shares_of, rounds=rounds, progress=progress)
    config = {"model": model, "batch_size": batch_size, "steps": steps, "rounds": rounds}
    config |= {"threads": threads, "img_size": 32}
    seconds_in_all = perf_counter() - started
    return TrainingBenchmark(
        tuple(speed), rates, tuple(shares), config=config, seconds=seconds_in_all
    )
