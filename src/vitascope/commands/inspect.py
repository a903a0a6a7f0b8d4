"""``vitascope inspect``: look inside a model, or list its units."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from vitascope.commands import fields
from vitascope.commands.result import Result
from vitascope.hub_access import check_weights_can_be_had
from vitascope.progress import Progress
from vitascope.settings import Count, Processes, Seed, Tolerance, Within, made_from
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from torch import nn

    from vitascope.inspection.inspect import InspectRequest
    from vitascope.record import Record


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Look inside any model: attention, gates, frequencies, similarity, lesions.

    Measures: nonlocality, gates, windows, entropy, maps, fourier, variance, norms, cka, masking,
    lesion, and with --out explorer (every patch's attention, for `vitascope report`). All that
    make sense for the model are taken unless --measures names some. Taken only when named:
    relevance (which parts of an image the prediction depends on),
    occlusion, fgsm, pgd, frequency, corruption, calibration (vitascope evaluate --on has options),
    and hessian, blocks, density, landscape, trajectory on augmented training images.

    Examples:
      vitascope inspect runs/a --out runs/a/inside
      vitascope inspect timm:vit_tiny_patch16_224 --pretrained --data photos/ --out inside
      vitascope inspect convit_micro --data digits --measures nonlocality,gates
      vitascope inspect timm:resnet18 --pretrained --data photos/ --measures relevance --out inside
      vitascope inspect timm:resnet50 --pretrained --data photos/ --measures fourier --level block
      vitascope inspect convit_micro --model-args locality_strength=2 --data digits --measures maps
      vitascope inspect runs/a --other runs/b --measures cka --out inside
      vitascope inspect runs/a --measures occlusion fgsm frequency calibration --out inside
      vitascope inspect runs/a --measures hessian landscape --batches 32 --processes 2 --out inside
      vitascope inspect hf:google/vit-base-patch16-224 --list
    """

    common = (
        "model",
        "data",
        "measures",
        "list",
        "images",
        "pretrained",
        "image_size",
        "epoch",
        "out",
    )  # first in the help

    model: fields.Model = field(kw_only=False)
    data: fields.TestData = None
    measures: tuple[str, ...] = ()
    """What to measure, with spaces or commas between the names."""
    list: bool = False
    """List the model's units and stop; needs no images."""
    layers: tuple[str, ...] = ("*",)
    """Wildcards for attention layers: 'blocks.0.*'."""
    units: tuple[str, ...] = ("*",)
    """Wildcards for units, as --list names them: '*.mlp'."""
    level: Literal["unit", "block"] = "unit"
    """Units: each convolution on its own, or one unit per residual block of convolutions."""
    end: Literal["nyquist", "released"] = "nyquist"
    """Fourier: last frequency, 1.0 pi or one step less as in Park and Kim's released code."""
    images: Count = 256
    """Number of test images, drawn with the seed."""
    batch_size: Count = 64
    """Images per batch; CKA compares within a batch."""
    image_size: fields.ModelSize = None
    map_classes: fields.ClassNames = ()
    epoch: int | None = None
    """For a run: use the weights it kept at this epoch."""
    other: str | None = None
    """A second model: CKA between the two, on the same images."""
    query: tuple[Annotated[float, Within(0, 1)], Annotated[float, Within(0, 1)]] = (0.5, 0.5)
    """The patch whose maps are drawn: down and across, 0 to 1."""
    grid: tuple[Count, Count] | None = None
    """Patches down and across, for a model whose tokens cannot be traced to image positions."""
    prefix_tokens: Annotated[int, Within(0)] | None = None
    """Class and other tokens before the patches, for such a model."""
    pretrained: fields.TimmWeights = False
    model_args: fields.ModelArguments = ()
    seed: Seed = 0
    """Decides random weights and the choice of images."""
    device: fields.Device = None
    threads: fields.Threads = None
    batches: Count = 16
    """Hessian, landscape: mini-batches of 16 augmented training images."""
    eigenvalues: Count = 5
    """Hessian: eigenvalues of largest magnitude per mini-batch."""
    tolerance: Tolerance = 1e-3
    """Hessian: relative error at which an eigenvalue counts as found."""
    points: Annotated[int, Within(2, 1000)] = 21
    """Landscape: points along each direction."""
    directions: Literal[1, 2] = 2
    """Landscape: 1 for a curve, 2 for a surface."""
    along: Literal["random", "input", "eigenvectors"] = "random"
    """Landscape: random directions normalised by filter, by input filter, or the Hessian's
    eigenvectors."""
    weight_decay: Annotated[float, Within(0)] | None = None
    """Curvature: weight of the l2 term; the recipe's when left out."""
    batch_norm: Literal["running", "batch"] = "running"
    """Curvature: which statistics BatchNorm uses."""
    double: bool = False
    """Curvature: compute in float64."""
    recipe: str | None = None
    """Curvature: recipe of augmentation and weight decay; a run's own, or laptop, when left out."""
    processes: Processes = 1
    """Hessian: mini-batches at a time."""
    out: Path | None = None
    """Folder for MEASURE.json, figures/ and report.html."""
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Inspect, model: "nn.Module | None" = None) -> Result:
    """Look inside the model that is requested, or that is given; or list its units."""
    if options.pretrained:
        check_weights_can_be_had([options.model])
    use_threads(options.threads)
    from vitascope.inspection.inspect import inspect_subject, list_units

    asked = settings_of(options)
    if options.list:
        return _units(list_units(asked, model), options)
    with Progress("inspecting", quiet=options.quiet or options.json) as bar:
        inspection = inspect_subject(asked, bar.show, model)
    from vitascope.report.instruments.robustness import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.sections.inspection import inspected
    from vitascope.report.tables.table import as_text

    read = [
        f"{record.kind}: {READINGS[record.kind](record)}"
        for record in inspection.records.values()
        if record.kind in READINGS
    ]
    refused = [f"not {name}: {why}" for name, why in inspection.refused.items()]
    explorer = {} if inspection.explorer is None else {"explorer": inspection.explorer}
    measured = {name: dict(record.values) for name, record in inspection.records.items()}
    table = [as_text(summary_table(inspection.records))] if inspection.records else []
    result = Result(
        records={**inspection.records, **explorer},
        summary="\n".join([*table, *read, *refused]),
        values={
            "subject": inspection.subject,
            "measures": measured,
            "refused": dict(inspection.refused),
            "notes": list(inspection.notes),
        },
        notes=(*left_out(inspection.records), *(f"note: {note}" for note in inspection.notes)),
    )
    if inspection.records:  # the answer first
        result = replace(result, summary=f"{inspected(inspection.records)}\n\n{result.summary}")
    return result if options.out is None else replace(result, written=result.save(options.out))


def _units(record: "Record", options: Inspect) -> Result:
    from vitascope.report.tables.models import units_table
    from vitascope.report.tables.table import as_text

    if options.out is not None:
        record.save(options.out / "units")
    return Result(
        records={"units": record},
        summary=as_text(units_table(record)),
        values={"units": record.values["units"], "size": record.values["size"]},
    )


def settings_of(options: Inspect) -> "InspectRequest":
    """Turn the options into a request for measurements."""
    from vitascope.inspection.curvature import Curvature
    from vitascope.inspection.inspect import InspectRequest
    from vitascope.runs.train_model import pairs
    from vitascope.training.classes import class_pairs
    from vitascope.training.run_folder.run import run_folder

    curvature = made_from(
        options,
        Curvature,
        num_batches=options.batches,
        batch_size=Curvature.batch_size,
        num_eigenvalues=options.eigenvalues,
        parts=options.out and options.out / "parts",
    )
    return made_from(
        options,
        InspectRequest,
        subject=str(run_folder(options.model)),
        measures=tuple(name for word in options.measures for name in word.split(",") if name),
        num_images=options.images,
        map_classes=class_pairs(options.map_classes),
        num_prefix_tokens=options.prefix_tokens,
        model_args=pairs(options.model_args, "--model-args"),
        curvature=curvature,
        explorer=options.out is not None,
    )
