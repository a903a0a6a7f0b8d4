"""Fine-tuning on few images: our recipe next to a plain timm fine-tuning.

    python -m benchmarks.finetuning --weights FILE --data ants-bees=FOLDER --out RECORD

Both train all of EfficientNet-Lite0 for the same epochs, on the same images. The learning rate is
chosen the same way, by the loss on the validation images with the first seed, from the same three.
The script of timm is the usual one: a random head, timm's training transform (crops of at least 8 %
of the image, mirror, colour jitter 0.4), AdamW with weight decay 0.05, cosine schedule, label
smoothing 0.1 and the weights of the last epoch. Accuracy and loss are those of the test images,
which choose nothing. Differences are paired over the test images, averaged over the seeds.

About 15 minutes for one source of 200 training images at 96 pixels on a busy core.
"""

import argparse
import math
import random
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import vitascope  # noqa: F401  (before timm: it repairs torchvision beside a CPU-only torch)
from vitascope import record
from vitascope.capture import evaluating
from vitascope.data import Dataset
from vitascope.data.held_out import held_out
from vitascope.data.images import ImageSet
from vitascope.loading.opening import open_pretrained, open_run
from vitascope.record import Record
from vitascope.runs.train_model import on_so_many, train_model
from vitascope.stats import difference
from vitascope.stats.numbers import contrast_of_numbers
from vitascope.training import Recipe, recipe

MODEL = "tf_efficientnet_lite0"
RATES = (1e-4, 3e-4, 1e-3)
SEEDS = (0, 1, 2)
SHARE = 0.2  # of the training images, to choose by
EVERY_WAY = ("finetune_small", "timm", "finetune")


def some_of(images: ImageSet, per_class: int) -> ImageSet:
    """The first images of each class."""
    chosen = [np.flatnonzero(images.labels == c)[:per_class] for c in np.unique(images.labels)]
    return images.take(np.sort(np.concatenate(chosen)))


def log_p(model: nn.Module, images: ImageSet, dataset: Dataset) -> np.ndarray:
    """Log-probabilities. (images, classes)"""
    mean, std = (torch.tensor(each).view(1, -1, 1, 1) for each in (dataset.mean, dataset.std))
    rows = []
    with evaluating(model):
        for start in range(0, len(images), 64):
            pixels = images.pixels(np.arange(start, min(start + 64, len(images))))
            rows.append(F.log_softmax(model((pixels.float() / 255 - mean) / std), -1))
    return torch.cat(rows).numpy()


def by_timm(weights: str, dataset: Dataset, plan: Recipe, seed: int) -> nn.Module:
    """Fine-tune as a plain script with timm does."""
    from timm.data import create_transform
    from timm.optim import create_optimizer_v2

    side = dataset.train.size[-1]
    opened = open_pretrained(weights, image_size=side)
    model = opened.for_classes(dataset.classes, keep_head=False, seed=seed).model
    transform: Any = create_transform(
        side, is_training=True, mean=dataset.mean, std=dataset.std, color_jitter=0.4
    )
    random.seed(seed)  # timm's transforms draw from all three
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    optimizer = create_optimizer_v2(model, "adamw", lr=plan.lr, weight_decay=0.05)
    images, rng = dataset.train, np.random.default_rng(seed)
    pictures = [
        Image.fromarray(images.pixels(np.array([i]))[0].permute(1, 2, 0).numpy())
        for i in range(len(images))
    ]
    steps = len(images) // plan.batch_size
    total, step = steps * plan.epochs, 0
    model.train()
    for _ in range(plan.epochs):
        order = rng.permutation(len(images))
        for start in range(0, steps * plan.batch_size, plan.batch_size):
            rows = order[start : start + plan.batch_size]
            batch: Tensor = torch.stack([transform(pictures[i]) for i in rows])
            warm = min(1.0, (step + 1) / (plan.warmup_epochs * steps))
            for group in optimizer.param_groups:
                group["lr"] = plan.lr * warm * 0.5 * (1 + math.cos(math.pi * step / total))
            target = torch.as_tensor(images.labels[rows])
            loss = F.cross_entropy(model(batch), target, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    return model.eval()


def by_recipe(weights: str, dataset: Dataset, plan: Recipe, seed: int) -> nn.Module:
    """Fine-tune by a recipe of ours."""
    start = open_pretrained(weights, image_size=dataset.train.size[-1])
    with TemporaryDirectory() as folder:
        run = train_model(
            *(weights, dataset, plan, Path(folder) / "run"),
            seed=seed,
            model_args={},
            start=start,
            quiet=True,
            trackers=(),
            device="cpu",
        )
        return open_run(run.folder).model


def one(weights: str, way: str, rate: float, seed: int, dataset: Dataset) -> dict[str, Any]:
    """One fine-tuning: what the model says of validation and test images."""
    chooser = held_out(dataset, SHARE)
    name = "finetune" if way == "timm" else way
    plan = on_so_many(recipe(name).override(lr=rate), len(chooser.train))
    began = perf_counter()
    make = by_timm if way == "timm" else by_recipe
    model = make(weights, chooser, plan, seed)
    seconds = perf_counter() - began
    tests, held = (log_p(model, each, dataset) for each in (dataset.test, chooser.test))
    nll = -tests[np.arange(len(tests)), dataset.test.labels]
    return {
        "way": way,
        "lr": rate,
        "seed": seed,
        "image_size": dataset.train.size[-1],
        "train_images": len(chooser.train),
        "epochs": plan.epochs,
        "seconds": seconds,
        "validation_nll": float(-held[np.arange(len(held)), chooser.test.labels].mean()),
        "correct": tests.argmax(1) == dataset.test.labels,
        "nll": nll,
    }


def keep(lines: list[dict[str, Any]], out: Path) -> None:
    """Write the record of all fine-tunings so far."""
    arrays = {
        f"{number}/{name}": np.asarray(line[name], kind)
        for number, line in enumerate(lines)
        for name, kind in (("correct", np.uint8), ("nll", np.float32))
    }
    runs = [{k: v for k, v in line.items() if k not in ("correct", "nll")} for line in lines]
    Record(kind="finetuning", values={"runs": runs}, arrays=arrays, config={"model": MODEL}).save(
        out
    )


def kept(out: Path) -> list[dict[str, Any]]:
    """The fine-tunings of a record."""
    found = record.load(out)
    return [
        {**run, **{name: found.arrays[f"{number}/{name}"] for name in ("correct", "nll")}}
        for number, run in enumerate(found.values["runs"])
    ]


def table(lines: list[dict[str, Any]], other: str = "timm") -> str:
    """Accuracy and loss of each way at its learning rate, and the paired differences."""
    rows = ["| set | way | lr | top-1 (%) | NLL | points ahead of timm | NLL less timm's |"]
    rows.append("|---|---|---|---|---|---|---|")
    for source in dict.fromkeys(line["source"] for line in lines):
        own = [line for line in lines if line["source"] == source]
        taken = {}
        for way in EVERY_WAY:
            tried = [line for line in own if line["way"] == way]
            first = [line for line in tried if line["seed"] == SEEDS[0]]
            if not first:
                continue
            rate = min(first, key=lambda line: line["validation_nll"])["lr"]
            at = [line for line in tried if line["lr"] == rate]
            if {line["seed"] for line in at} == set(SEEDS):
                taken[way] = at
        for way, runs in taken.items():
            right = np.array([run["correct"] for run in runs], bool)
            loss = np.array([run["nll"] for run in runs])
            cells = [source, way, f"{runs[0]['lr']:g}"]
            cells += [f"{100 * right.mean():.1f}", f"{loss.mean():.3f}", "", ""]
            if way != other and other in taken:
                theirs = taken[other]
                lead = difference(right, np.array([run["correct"] for run in theirs], bool))
                cells[5] = f"{lead.value:+.1f} [{lead.low:+.1f}, {lead.high:+.1f}]"
                less = paired(loss, np.array([run["nll"] for run in theirs]))
                cells[6] = f"{less[0]:+.3f} [{less[1]:+.3f}, {less[2]:+.3f}]"
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def paired(first: np.ndarray, second: np.ndarray) -> tuple[float, float, float]:
    """The mean difference of losses (seeds, images), with its 95 % interval over both."""
    images = (first.mean(0) - second.mean(0)).var(ddof=1) / first.shape[1]
    cells = [first.mean(1).tolist(), second.mean(1).tolist()]
    found = contrast_of_numbers(cells, (1.0, -1.0), sampling=float(images))
    assert found is not None
    return found.value, found.low, found.high


def made(
    lines: list[dict[str, Any]],
    out: Path,
    weights: str,
    source: str,
    dataset: Dataset,
    way: str,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """One fine-tuning, from the record or made now and kept there."""
    for line in lines:
        if (line["source"], line["way"], line["lr"], line["seed"]) == (source, way, rate, seed):
            return line
    line = {"source": source, **one(weights, way, rate, seed, dataset)}
    lines.append(line)
    keep(lines, out)
    right = 100 * np.mean(line["correct"])
    print(
        f"{source} {way} lr {rate:g} seed {seed}: {right:.1f} %, "
        f"NLL {np.mean(line['nll']):.3f}, validation {line['validation_nll']:.3f}, "
        f"{line['epochs']} epochs in {line['seconds']:.0f} s",
        flush=True,
    )
    return line


def main() -> None:
    """Train what the record lacks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", required=True, help=f"a file of {MODEL}")
    parser.add_argument("--data", nargs="+", required=True, help="NAME=FOLDER")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--train", type=int, default=250, help="training images")
    parser.add_argument("--test", type=int, default=500, help="test images at most")
    parser.add_argument("--out", type=Path, required=True, help="the record, without .json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    weights = f"{MODEL}@{args.weights}"
    lines = kept(args.out) if args.out.with_suffix(".json").exists() else []
    for text in args.data:
        source, _, folder = text.partition("=")
        dataset = open_pretrained(weights, image_size=args.image_size).preprocessing.load(folder)
        classes = len(dataset.classes)
        dataset = replace(
            dataset,
            train=some_of(dataset.train, args.train // classes),
            test=some_of(dataset.test, args.test // classes),
        )

        for way in EVERY_WAY:
            how = (lines, args.out, weights, source, dataset, way)
            tried = [made(*how, rate, SEEDS[0]) for rate in RATES]
            rate = min(tried, key=lambda line: line["validation_nll"])["lr"]
            for seed in SEEDS[1:]:
                made(*how, rate, seed)
    print(table(lines))


if __name__ == "__main__":
    main()
