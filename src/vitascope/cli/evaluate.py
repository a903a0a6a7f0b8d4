"""``vitascope evaluate``: how good a model is on labelled images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitascope.cli.options import parse

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure top-1, top-5, NLL and calibration error.

    Examples:
      vitascope evaluate runs/a
      vitascope evaluate runs/a --data photos/ --json
      vitascope evaluate convit_tiny --pretrained --data imagenet-v2:/data/v2
      vitascope evaluate vit_micro --weights my.safetensors --data digits
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's folder, a model's name, hf:NAME, or package.module:function."""
    data: str | None = None
    """Images; a run's own test images when left out."""
    weights: Path | None = None
    """Weights for a model given by name."""
    pretrained: bool = False
    """timm's weights for a model given by name."""
    split: Literal["test", "train"] = "test"
    """Which images."""
    image_size: int | None = None
    """Resize the images to this side; the model's own when left out."""
    batch_size: int = 256
    """Images a pass."""
    workers: int = 0
    """Processes that decode image files."""
    device: str | None = None
    """cpu, cuda, mps."""
    out: Path | None = None
    """Write a record, OUT.json."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """No notes about the images."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope evaluate`` and measure."""
    args = parse(Evaluate, "vitascope evaluate", words)
    from vitascope.report.text import table
    from vitascope.studies.evaluating import evaluate_subject

    found = evaluate_subject(
        args.model,
        args.data,
        weights=None if args.weights is None else str(args.weights),
        pretrained=args.pretrained,
        image_size=args.image_size,
        batch_size=args.batch_size,
        num_workers=args.workers,
        device=args.device,
        split=args.split,
    )
    if args.out is not None:
        found.save(args.out)
    if args.json:
        print(json.dumps(dict(found.values)))
        return
    values = found.values
    rows = [["top-1", f"{100 * values['top1']:.2f} %"]]
    rows += [["top-5", f"{100 * values['top5']:.2f} %"]] if values["top5"] is not None else []
    rows += [["NLL", f"{values['nll']:.4f} nats"]] if values["nll"] is not None else []
    rows += [["ECE", f"{100 * values['ece']:.2f} %"], ["images", str(values["num_images"])]]
    print(table(["measure", "value"], rows))
    if not args.quiet:
        for note in found.config["notes"]:
            print(f"note: {note}")
