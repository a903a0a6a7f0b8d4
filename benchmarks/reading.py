"""Reading images: how fast photographs become training batches, next to timm and torchvision.

The same JPEG files of 500 x 375 pixels go through DeiT's augmentation at 224 pixels: decode, random
crop, mirror, RandAugment, normalise, erase. Every candidate gives normalised float32 batches.

* ``vitascope``: our loader, each image once;
* ``vitascope, three copies``: with DeiT's repeated augmentation, which decodes an image once for
  its three copies in a batch;
* ``timm``: timm's ``create_transform`` in a PyTorch loader;
* ``torchvision``: the transforms of its training reference, version 2.

The files are photographs of scikit-learn and scikit-image, cut and saved here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torchvision.transforms import v2

from vitascope.data import FileImages, TrainBatches, augment
from vitascope.measure.timing import Benchmark, Row, take_turns
from vitascope.threads import running_on

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
POLICY = "rand-m9-inc1"  # without a spread of magnitudes, at which timm's posterize may fail


@dataclass(frozen=True)
class ReadingBenchmark(Benchmark, subject="reading"):
    """Speed of our loader relative to the peers; above 1 is faster."""

    speed: tuple[Row, ...]  # pair, quartile, median, quartile
    images_per_second: dict[str, float]


def write_photographs(folder: Path, count: int) -> list[Path]:
    """Save cuts of real photographs as JPEG files of 500 x 375 pixels."""
    from sklearn.datasets import load_sample_images

    rng, paths = np.random.default_rng(0), []
    whole = [Image.fromarray(pixels) for pixels in load_sample_images().images]
    for number in range(count):
        photo = whole[number % len(whole)]
        left, top = rng.integers(photo.width - 500 + 1), rng.integers(photo.height - 375 + 1)
        paths.append(folder / f"{number:03d}.jpg")
        photo.crop((left, top, left + 500, top + 375)).save(paths[-1], quality=92)
    return paths


class _Files(torch.utils.data.Dataset):
    """JPEG files through a transform of pillow images."""

    def __init__(self, paths: list[Path], transform: Callable[[Any], torch.Tensor]):
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB"))


def _all(batches: Iterator[Any]) -> None:
    for _ in batches:
        pass


def time_reading(
    *,
    batch_size: int = 48,
    rounds: int = 15,
    threads: int = 1,
    progress: Callable[[str], object] = lambda stage: None,
) -> ReadingBenchmark:
    """Let the loaders take turns on the same files, without worker processes."""
    started, count = perf_counter(), 2 * batch_size
    once = replace(augment.deit(repeats=1), rand_augment=POLICY, mixup=0.0, cutmix=0.0)
    timms = create_transform(
        224,
        is_training=True,
        auto_augment=POLICY,
        interpolation="bicubic",
        re_prob=once.random_erasing,
        re_mode="pixel",
    )
    torchvisions = v2.Compose(
        [
            v2.PILToTensor(),
            v2.RandomResizedCrop(224, interpolation=v2.InterpolationMode.BICUBIC, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.RandAugment(magnitude=9),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(MEAN, STD),
            v2.RandomErasing(once.random_erasing, value="random"),
        ]
    )
    with TemporaryDirectory() as folder, running_on(threads):
        paths = write_photographs(Path(folder), count)
        files = FileImages(paths, np.zeros(count, dtype=np.int64), ["a"], size=(3, 224, 224))

        def ours(repeats: int) -> Callable[[], None]:
            loader = TrainBatches(
                files,
                batch_size=batch_size,
                augmentation=replace(once, repeats=repeats),
                num_classes=1,
                mean=MEAN,
                std=STD,
                flips=True,
                seed=0,
                one_class=True,
            )
            return lambda: _all(loader.epoch(0))

        def peer(transform: Callable[[Any], torch.Tensor]) -> Callable[[], None]:
            loader = torch.utils.data.DataLoader(
                _Files(paths, transform), batch_size=batch_size, shuffle=True, drop_last=True
            )
            return lambda: _all(iter(loader))

        times = take_turns(
            {
                "vitascope": ours(1),
                "vitascope, three copies": ours(3),
                "timm": peer(timms),
                "torchvision": peer(torchvisions),
            },
            rounds=rounds,
            progress=lambda: progress("reading"),
        )
    pairs = [
        (who, peer)
        for who in ("vitascope", "vitascope, three copies")
        for peer in ("timm", "torchvision")
    ]
    return ReadingBenchmark(
        tuple((f"{who} / {peer}", *times.speed(who, peer)) for who, peer in pairs),
        {who: count / times.median(who) for who in times.seconds},
        config={"batch_size": batch_size, "rounds": rounds, "threads": threads, "images": count},
        seconds=perf_counter() - started,
    )
