"""``vitascope evaluate``: how good a model is on labelled images, also when they are changed."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vitascope.cli.options import parse, progress
from vitascope.cli.threads import use_threads
from vitascope.errors import UserError

__all__ = ["run"]


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure top-1, top-5, NLL and calibration error; with --on, what the model stands.

    Classes of --data are those of the run by name, all or some of them.

    --on takes occlusion, fgsm, pgd, frequency, corruptions and calibration. The same seed gives the
    same numbers.

    Examples:
      vitascope evaluate runs/a
      vitascope evaluate runs/a --data photos/ --json
      vitascope evaluate runs/a --data pets/ --map-classes puppy=dog kitten=cat
      vitascope evaluate convit_tiny --pretrained --data imagenet-v2:/data/v2
      vitascope evaluate vit_micro --weights my.safetensors --data digits
      vitascope evaluate runs/a --on occlusion,fgsm,frequency,corruptions,calibration --out robust
      vitascope evaluate runs/a --on fgsm pgd --epsilons 1/255 8/255 --steps 20
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's folder, a model's name, hf:NAME, or package.module:function."""
    data: str | None = None
    """Images; a run's own test images when left out."""
    on: tuple[str, ...] = ()
    """What is done to the images, with spaces or commas between the names."""
    weights: Path | None = None
    """Weights for a model given by name."""
    pretrained: bool = False
    """timm's weights for a model given by name."""
    map_classes: tuple[str, ...] = ()
    """Class of the images as one of the run's, as NEW=KNOWN: puppy=dog kitten=cat."""
    split: Literal["test", "train"] = "test"
    """Which images."""
    images: int | None = None
    """How many of them, drawn with the seed; all when left out."""
    seed: int = 0
    """Decides the choice of images and all noise."""
    image_size: int | None = None
    """Resize the images to this side; the model's own when left out."""
    sizes: tuple[float, ...] | None = None
    """Occlusion: hidden share of each side; 0.25 0.5 0.75 when left out."""
    fill: Literal["black", "mean"] | None = None
    """Occlusion: black (pixel 0) or the mean (0 after normalisation); black when left out."""
    epsilons: tuple[str, ...] | None = None
    """FGSM, PGD: change of pixels between 0 and 1; 1/255 2/255 4/255 8/255 when left out."""
    against: Literal["label", "prediction"] | None = None
    """FGSM, PGD: drive the model away from the label or from its own prediction."""
    steps: int | None = None
    """PGD: gradients taken; 10 when left out."""
    frequencies: tuple[float, ...] | None = None
    """Frequency: centres of the windows in pi; 0.0 to 1.0 in steps of 0.1 when left out."""
    window: float | None = None
    """Frequency: width of the windows in pi; 0.1 when left out."""
    rms: float | None = None
    """Frequency: strength of the noise, for pixels between 0 and 1; 0.1 when left out."""
    clamp: bool = False
    """Frequency: clip noisy pixels, which spreads the noise over other frequencies."""
    severities: tuple[int, ...] | None = None
    """Corruptions: some of 1 to 5."""
    corrupted: Path | None = None
    """Corruptions: folder of CIFAR-10-C, CIFAR-100-C or ImageNet-C, read instead of made."""
    num_bins: int | None = None
    """Calibration: bins of the confidence; 15 when left out."""
    batch_size: int = 256
    """Images a pass."""
    workers: int = 0
    """Processes that decode image files."""
    device: str | None = None
    """cpu, cuda, mps."""
    threads: int | None = None
    """Threads of torch; OMP_NUM_THREADS, or one a core, when left out. Records keep them."""
    out: Path | None = None
    """Write a record, OUT.json; with --on a folder of records, figures and report.html."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """No progress, no notes about the images."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope evaluate`` and measure."""
    args = parse(Evaluate, "vitascope evaluate", words)
    use_threads(args.threads)
    from vitascope.studies.session.models import class_pairs

    how = {
        "weights": None if args.weights is None else str(args.weights),
        "pretrained": args.pretrained,
        "image_size": args.image_size,
        "batch_size": args.batch_size,
        "num_workers": args.workers,
        "device": args.device,
        "split": args.split,
        "num_images": args.images,
        "map_classes": class_pairs(args.map_classes),
    }
    trial = _trial(args)
    if trial.on:
        _on(args, trial, how)
    else:
        _plain(args, how)


def _trial(args: Evaluate) -> Any:
    from vitascope.studies.inspection.robustness import Trial, on_names

    return Trial(
        on=on_names(args.on),
        sizes=args.sizes,
        fill=args.fill,
        epsilons=None if args.epsilons is None else tuple(map(_number, args.epsilons)),
        against=args.against,
        steps=args.steps,
        frequencies=args.frequencies,
        window=args.window,
        rms=args.rms,
        clamp=args.clamp or None,
        severities=args.severities,
        corrupted=None if args.corrupted is None else str(args.corrupted),
        num_bins=args.num_bins,
        seed=args.seed,
    )


def _number(word: str) -> float:
    """A number or a fraction.

    >>> _number("0.5"), _number("1/4")
    (0.5, 0.25)
    """
    try:
        return float(Fraction(word))
    except (ValueError, ZeroDivisionError):
        raise UserError(f"--epsilons takes numbers like 8/255 or 0.03, not {word!r}") from None


def _on(args: Evaluate, trial: Any, how: dict[str, Any]) -> None:
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.robustness_table import robustness_table
    from vitascope.report.instruments.summary import left_out
    from vitascope.studies.session.evaluation import evaluate_on

    bar, close = progress("measuring", quiet=args.quiet or args.json)
    try:
        records = evaluate_on(args.model, args.data, trial=trial, on_step=bar, **how)
    finally:
        close()
    page = None
    if args.out is not None:
        from vitascope.report.folder_page import write_folder_page, write_record_figures

        for name, record in records.items():
            record.save(args.out / name)
        write_record_figures(args.out, records, ("png", "svg", "pdf"))
        page = write_folder_page(args.out)
    notes = next(iter(records.values())).config["notes"]
    if args.json:
        found = {name: dict(record.values) for name, record in records.items()}
        for name, record in records.items():
            found[name] |= {key: array.tolist() for key, array in record.arrays.items()}
        told = {"subject": args.model, "seed": args.seed, "measures": found, "notes": notes}
        print(json.dumps(told, allow_nan=False))
        return
    print(robustness_table(records))
    for name, record in records.items():
        print(f"{name}: {READINGS[record.kind](record)}")
    if not args.quiet:
        for line in [*left_out(records), *(f"note: {note}" for note in notes)]:
            print(line)
    if page is not None:
        print(page)


def _plain(args: Evaluate, how: dict[str, Any]) -> None:
    from vitascope.report.tables.terminal import table
    from vitascope.studies.session.evaluation import evaluate_subject

    found = evaluate_subject(args.model, args.data, seed=args.seed, **how)
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
