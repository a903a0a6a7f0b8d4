"""``vitascope train``: one model, one data set, one recipe, one folder."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vitascope.cli.options import parse
from vitascope.cli.threads import use_threads
from vitascope.settings import Count, Seed, Side, Workers

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model into a folder that can be resumed to the same bits.

    Examples:
      vitascope train --model convit_micro --data digits --recipe laptop --epochs 4 --out runs/a
      vitascope train --model convit_small --data imagenet:/data/imagenet --recipe deit \\
          --set augmentation.mixup=0 --out runs/b --resume
      torchrun --nproc-per-node 8 -m vitascope train --model convit_base --data ... --out runs/c
    """

    model: str
    """A model of ours or timm's: `vitascope models` lists them."""
    data: str
    """digits, a folder of classes, cifar10:PATH, idx:PATH, hf:NAME, wds:FILES or imagenet:PATH."""
    out: Path
    """The run's folder."""
    recipe: str = "laptop"
    """deit, deit_plus, cifar, broadcast, broadcast_base, laptop or finetune."""
    epochs: Count | None = None
    """Epochs on all images; the recipe's when left out. The warm-up keeps its share of them."""
    fraction: float | None = None
    """Keep this share of each class (epochs are scaled by its inverse if the recipe says so)."""
    validation: float | None = None
    """Hold this share of each class's training images out, and measure on it, not on the test
    images."""
    set: tuple[str, ...] = ()
    """Changes to the recipe, as FIELD=VALUE: lr=3e-4 augmentation.mixup=0.2 ema=0.999."""
    model_args: tuple[str, ...] = ()
    """Arguments of the model, as NAME=VALUE: num_gpsa_blocks=2 locality_strength=2."""
    image_size: Side | None = None
    """Resize the images to this side."""
    pretrained: bool = False
    """Start from timm's weights for the model."""
    weights: Path | None = None
    """Start from this file of weights."""
    teacher: str | None = None
    """Distil from this timm model or run (with --distillation)."""
    distillation: Literal["none", "hard", "soft"] = "none"
    """How."""
    seed: Seed = 0
    """Decides the first weights, the order and the augmentation."""
    resume: bool = False
    """Go on with the run in OUT, if there is one."""
    device: str | None = None
    """cpu, cuda, mps; the best there is when left out."""
    workers: Workers = 0
    """Processes that decode image files."""
    threads: Count | None = None
    """Threads of torch; OMP_NUM_THREADS, or one a core, when left out. Records keep them."""
    fsdp: bool = False
    """Shard the model over the processes of torchrun."""
    trackers: tuple[str, ...] | None = None
    """Who else gets the metrics: tensorboard (when left out), wandb, mlflow, comet_ml, aim,
    clearml, dvclive, swanlab, trackio."""
    no_tracking: bool = False
    """None of them."""
    json: bool = False
    """Print the final line of metrics as JSON."""
    quiet: bool = False
    """No progress."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope train`` and train."""
    args = parse(Train, "vitascope train", words)
    use_threads(args.threads)
    from vitascope.studies.grid.one_training import train_once

    done = train_once(
        model=args.model,
        data=args.data,
        out=args.out,
        recipe=args.recipe,
        epochs=args.epochs,
        fraction=args.fraction,
        validation=args.validation,
        changes=args.set,
        model_args=args.model_args,
        image_size=args.image_size,
        pretrained=args.pretrained,
        weights=args.weights,
        teacher=args.teacher,
        distillation=args.distillation,
        seed=args.seed,
        resume=args.resume,
        device=args.device,
        num_workers=args.workers,
        fsdp=args.fsdp,
        trackers=() if args.no_tracking else args.trackers,
        quiet=args.quiet or args.json,
    )
    if done is None:  # another process of the same run speaks
        return
    if args.json:
        print(json.dumps({"folder": str(done.folder), **done.final}))
    else:
        top1 = 100 * done.final["top1"]
        print(f"{done.folder}: top-1 {top1:.2f} % after {done.epochs} epochs, {done.seconds:.0f} s")
