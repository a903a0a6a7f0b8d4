"""``vitascope inspect``: look inside a model, or list its units."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vitascope import option_types
from vitascope.commands.result import Result
from vitascope.hub_access import check_weights_can_be_had
from vitascope.inspection.options import InspectOptions
from vitascope.progress import Progress
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from torch import nn

    from vitascope.record import Record


@dataclass(frozen=True, kw_only=True)
class Inspect(InspectOptions):
    """Look inside any model: attention, gates, frequencies, similarity, lesions.

    Measures: nonlocality, gates, windows, entropy, maps, fourier, variance, norms, pca, cka,
    masking, lesion, and with --out explorer (every patch's attention, for `vitascope report`). All
    that make sense for the model are taken unless --measures names some. Taken only when named:
    relevance (which parts of an image the prediction depends on), lens (what each layer already
    knows), patching (which layers carry the difference between two images), occlusion, fgsm, pgd,
    frequency, corruption, calibration (vitascope evaluate --on has options),
    and hessian, blocks, density, landscape, trajectory on augmented training images.

    Examples:
      vitascope inspect runs/a --out runs/a/inside
      vitascope inspect timm:vit_tiny_patch16_224 --pretrained --data photos/ --out inside
      vitascope inspect convit_micro --data digits --measures nonlocality,gates
      vitascope inspect timm:resnet18 --pretrained --data photos/ --measures relevance --out inside
      vitascope inspect timm:resnet50 --pretrained --data photos/ --measures fourier --level block
      vitascope inspect convit_micro --model-args locality_strength=2 --data digits --measures maps
      vitascope inspect runs/a --other runs/b --measures cka --out inside
      vitascope inspect timm:vit_small_patch16_224 --pretrained --data photos/ --measures lens pca
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

    out: Path | None = None
    """Folder for MEASURE.json, figures/ and report.html."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Inspect, model: "nn.Module | None" = None) -> Result:
    """Look inside the model that is requested, or that is given; or list its units."""
    if options.pretrained:
        check_weights_can_be_had([options.model])
    if model is None and Path(options.model).is_dir():
        from vitascope.training.run_folder.run import finished_folder

        finished_folder(options.model)  # before torch is loaded
    use_threads(options.threads)
    from vitascope.inspection.inspect import inspect_subject, list_units

    if options.list:
        return _units(list_units(options, model), options)
    with Progress("inspecting", quiet=options.quiet or options.json) as bar:
        inspection = inspect_subject(
            options,
            bar.show,
            model,
            explorer=options.out is not None,
            parts=None if options.out is None else options.out / "parts",
        )
    from vitascope.report.sections.inspection import inspected, left_out, summary_text

    refused = [f"not {name}: {why}" for name, why in inspection.refused.items()]
    explorer = {} if inspection.explorer is None else {"explorer": inspection.explorer}
    measured = {name: dict(record.values) for name, record in inspection.records.items()}
    summary = [summary_text(inspection.records)] if inspection.records else []
    result = Result(
        records={**inspection.records, **explorer},
        summary="\n".join([*summary, *refused]),
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
    from vitascope.report.sections.inspection import units_table
    from vitascope.table import as_text

    if options.out is not None:
        record.save(options.out / "units")
    return Result(
        records={"units": record},
        summary=as_text(units_table(record)),
        values={"units": record.values["units"], "size": record.values["size"]},
    )
