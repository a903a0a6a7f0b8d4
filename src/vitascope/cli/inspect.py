"""``vitascope inspect``: look inside any model."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from vitascope.cli.options import parse, progress
from vitascope.cli.threads import use_threads
from vitascope.settings import Count, Processes, Seed, Side, Tolerance, Within

__all__ = ["run"]

Points = Annotated[int, Within(2, 1000)]
Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Look inside any model: attention, gates, frequencies, similarity, lesions.

    Measures: nonlocality, gates, entropy, maps, fourier, variance, cka, masking, lesion, and with
    --out explorer (every patch's attention, for `vitascope report`). All that make sense for the
    model are taken unless --measures names some. Taken when they are named:
    occlusion, fgsm, pgd, frequency, corruption, calibration (vitascope evaluate --on has options),
    and hessian, density, landscape, trajectory on augmented training images.

    Examples:
      vitascope inspect runs/a --out runs/a/inside
      vitascope inspect timm:vit_tiny_patch16_224 --pretrained --data photos/ --out inside
      vitascope inspect convit_micro --data digits --measures nonlocality,gates
      vitascope inspect runs/a --other runs/b --measures cka --out inside
      vitascope inspect runs/a --measures occlusion fgsm frequency calibration --out inside
      vitascope inspect runs/a --measures hessian landscape --batches 32 --processes 2 --out inside
      vitascope inspect hf:google/vit-base-patch16-224 --list
    """

    model: Annotated[str, tyro.conf.Positional]
    """A run's folder, a model's name, timm:NAME, hf:NAME, or package.module:function."""
    data: str | None = None
    """Images; a run's own test images when left out."""
    measures: tuple[str, ...] = ()
    """Names, with spaces or commas between them."""
    list: bool = False
    """List the model's units and stop; needs no images."""
    layers: tuple[str, ...] = ("*",)
    """Wildcards for attention layers: 'blocks.0.*'."""
    units: tuple[str, ...] = ("*",)
    """Wildcards for units, as --list names them: '*.mlp'."""
    images: Count = 256
    """Test images to look at."""
    batch_size: Count = 64
    """Images a pass; CKA compares within a batch."""
    image_size: Side | None = None
    """Side of the images; the model's own when left out."""
    map_classes: tuple[str, ...] = ()
    """Class of the images as one of the run's, as NEW=KNOWN: puppy=dog kitten=cat."""
    epoch: int | None = None
    """Of a run: the weights it kept at this epoch."""
    other: str | None = None
    """A second model: CKA between the two, on the same images."""
    query: tuple[Share, Share] = (0.5, 0.5)
    """The patch whose maps are drawn: down and across, 0 to 1."""
    grid: tuple[Count, Count] | None = None
    """Patches down and across, for a model whose tokens cannot be followed."""
    prefix_tokens: Annotated[int, Within(0)] | None = None
    """Class and other tokens before the patches there."""
    pretrained: bool = False
    """timm's weights for a model given by name."""
    seed: Seed = 0
    """Decides random weights and the choice of images."""
    device: str | None = None
    """cpu, cuda, mps."""
    threads: Count | None = None
    """Threads of torch; OMP_NUM_THREADS, or one a core, when left out. Records keep them."""
    batches: Count = 16
    """Mini-batches of 16 augmented training images, for the Hessian and the landscape."""
    eigenvalues: Count = 5
    """Eigenvalues of largest magnitude a mini-batch."""
    tolerance: Tolerance = 1e-3
    """Relative error at which an eigenvalue counts as found."""
    points: Points = 21
    """Points of a landscape along each direction."""
    directions: Literal[1, 2] = 2
    """Directions of a landscape: a curve or a surface."""
    along: Literal["random", "input", "eigenvectors"] = "random"
    """Filter-normalised random directions, the same by input filters, or the Hessian's own."""
    weight_decay: Annotated[float, Within(0)] | None = None
    """Of the l2 term; the recipe's when left out."""
    batch_norm: Literal["running", "batch"] = "running"
    """Statistics of BatchNorm while curvature is measured."""
    double: bool = False
    """Curvature in float64."""
    recipe: str | None = None
    """Of augmentation and weight decay; a run's own, or laptop, when left out."""
    processes: Processes = 1
    """Mini-batches of a Hessian side by side."""
    out: Path | None = None
    """Folder for MEASURE.json and figures/MEASURE.png and .svg."""
    json: bool = False
    """Print JSON."""
    quiet: bool = False
    """No progress and no notes."""


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope inspect`` and look."""
    args = parse(Inspect, "vitascope inspect", words)
    use_threads(args.threads)
    from vitascope.studies.inspection.curvature import Curvature
    from vitascope.studies.inspection.inspect import Look
    from vitascope.studies.session.models import class_pairs

    look = Look(
        subject=args.model,
        data=args.data,
        measures=tuple(name for word in args.measures for name in word.split(",") if name),
        layers=args.layers,
        units=args.units,
        num_images=args.images,
        batch_size=args.batch_size,
        image_size=args.image_size,
        map_classes=class_pairs(args.map_classes),
        epoch=args.epoch,
        other=args.other,
        query=args.query,
        grid=args.grid,
        num_prefix_tokens=args.prefix_tokens,
        pretrained=args.pretrained,
        seed=args.seed,
        device=args.device,
        explorer=args.out is not None,
        curvature=Curvature(
            num_batches=args.batches,
            num_eigenvalues=args.eigenvalues,
            tolerance=args.tolerance,
            points=args.points,
            directions=args.directions,
            along=args.along,
            weight_decay=args.weight_decay,
            batch_norm=args.batch_norm,
            double=args.double,
            recipe=args.recipe,
            processes=args.processes,
            parts=None if args.out is None else args.out / "parts",
        ),
    )
    if args.list:
        _list(args, look)
    else:
        _look(args, look)


def _list(args: Inspect, look: Any) -> None:
    from vitascope.report.tables.terminal import table
    from vitascope.studies.inspection.inspect import list_units

    found = list_units(look)
    if args.out is not None:
        found.save(args.out / "units")
    units = found.values["units"]
    if args.json:
        print(json.dumps({"units": units, "size": found.values["size"]}))
        return
    rows = [
        [
            unit["name"],
            unit["kind"],
            str(unit["stage"]),
            "x".join(map(str, unit["grid"])) if unit["grid"] else "",
            str(unit["num_prefix_tokens"]) if unit["grid"] else "",
            " x ".join(map(str, unit["shape"])),
        ]
        for unit in units
    ]
    print(table(["unit", "kind", "stage", "grid", "prefix", "shape"], rows))


def _look(args: Inspect, look: Any) -> None:
    from vitascope.studies.inspection.inspect import inspect_subject

    bar, close = progress("looking", quiet=args.quiet or args.json)
    try:
        found = inspect_subject(look, bar)
    finally:
        close()
    if args.out is not None:
        from vitascope.report.folder_page import write_record_figures

        for name, record in found.records.items():
            record.save(args.out / name)
        if found.explorer is not None:
            found.explorer.save(args.out / "explorer")
        write_record_figures(args.out, found.records)
        if found.records or found.explorer is not None:
            from vitascope.report.folder_page import write_folder_page

            write_folder_page(args.out)
    if args.json:
        values: dict[str, Any] = {n: dict(record.values) for n, record in found.records.items()}
        told = {"subject": found.subject, "measures": values, "refused": dict(found.refused)}
        print(json.dumps({**told, "notes": list(found.notes)}, allow_nan=False))
        return
    _tell(args, found)


def _tell(args: Inspect, found: Any) -> None:
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.summary import left_out, summary

    if found.records:
        print(summary(found.records))
    for record in found.records.values():
        if record.kind in READINGS:
            print(f"{record.kind}: {READINGS[record.kind](record)}")
    for name, why in found.refused.items():
        print(f"not {name}: {why}")
    if not args.quiet:
        for line in [*left_out(found.records), *(f"note: {note}" for note in found.notes)]:
            print(line)
    if args.out is not None:
        shown = found.records or found.explorer is not None
        print(args.out / "report.html" if shown else args.out)
