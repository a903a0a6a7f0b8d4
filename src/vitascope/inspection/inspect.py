"""`vitascope inspect`: the units of a model, and every instrument that makes sense for it.

The instruments that need images alone share one pass over them; masking and lesions need labels and
a pass for each part they remove. Robustness, calibration and curvature are measured when asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from vitascope import capture, measure
from vitascope.data import EvalBatches
from vitascope.errors import UserError, unknown
from vitascope.explorer.explore import explore
from vitascope.inspection.curvature import BATCH_SIZE, CURVATURE, measure_curvature
from vitascope.inspection.options import EvaluateOptions, InspectOptions
from vitascope.inspection.robustness import ROBUSTNESS, measure_robustness
from vitascope.loading.opening import is_named
from vitascope.loading.session import Session, image_converter, open_session
from vitascope.measure.attention.windows import WEIGHT, position_weights
from vitascope.measure.registry import INSTRUMENTS
from vitascope.measure.streaming.one_pass import streaming_instruments
from vitascope.models.weights import read_state
from vitascope.progress import OnStep, Steps
from vitascope.record import Record
from vitascope.settings import check, pairs
from vitascope.training.classes import class_pairs
from vitascope.training.run_folder.run import run_folder

MEASURES = tuple(each.name for each in INSTRUMENTS.values() if each.by_default)
ON_REQUEST = tuple(each.name for each in INSTRUMENTS.values() if not each.by_default)
EXPLORER = "explorer"  # maps for a page; taken by default too, and no figure or line of its own
_SMALLEST_BATCH = 4  # CKA compares images within a batch


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Records by instrument, what was refused and why, and what a reader must know."""

    subject: str
    records: Mapping[str, Record]
    refused: Mapping[str, str]
    notes: tuple[str, ...] = ()
    explorer: Record | None = None  # the attention of every patch, for a page


def resolved(options: InspectOptions) -> InspectOptions:
    """Return the options with one name per measure, and a comparison's folder as its run's.

    Raises:
        UserError: If an option is out of its range, a measure is unknown, or options do not go
            together.
    """
    check(options)
    measures = tuple(name for word in options.measures for name in word.split(",") if name)
    for name in measures:
        if name not in (*MEASURES, *ON_REQUEST, EXPLORER):
            raise unknown("measure", name, (*MEASURES, *ON_REQUEST, EXPLORER))
    if options.other is not None and measures and "cka" not in measures:
        raise UserError("--other is for CKA: add cka to --measures, or leave --measures out")
    return replace(options, model=str(run_folder(options.model)), measures=measures)


def open_inspected(options: InspectOptions, model: torch.nn.Module | None = None) -> Session:
    """Open the model that the options name, or the one that is given, with its images."""
    return open_session(
        options.model if model is None else model,
        options.data,
        epoch=options.epoch,
        seed=options.seed,
        pretrained=options.pretrained,
        arguments=pairs(options.model_args, "--model-args"),
        image_size=options.image_size,
        device=options.device,
        map_classes=class_pairs(options.map_classes),
    )


def _token_grid(options: InspectOptions) -> dict[str, Any]:
    """The stated grid and prefix tokens, for tokens that cannot be traced."""
    return {"grid": options.grid, "num_prefix_tokens": options.prefix_tokens}


def _config(
    options: InspectOptions, *, explorer: bool, parts: Path | None, curvature_batch: int
) -> dict[str, Any]:
    """Return the options as records keep them."""
    return {
        "subject": options.model,
        "data": options.data,
        "measures": options.measures,
        "layers": options.layers,
        "units": options.units,
        "level": options.level,
        "end": options.end,
        "num_images": options.images,
        "batch_size": options.batch_size,
        "image_size": options.image_size,
        "map_classes": class_pairs(options.map_classes),
        "epoch": options.epoch,
        "other": options.other,
        "query": options.query,
        "grid": options.grid,
        "num_prefix_tokens": options.prefix_tokens,
        "pretrained": options.pretrained,
        "model_args": pairs(options.model_args, "--model-args"),
        "seed": options.seed,
        "device": options.device,
        "curvature": {
            "num_batches": options.batches,
            "batch_size": curvature_batch,
            "num_eigenvalues": options.eigenvalues,
            "tolerance": options.tolerance,
            "points": options.points,
            "along": options.along,
            "directions": options.directions,
            "weight_decay": options.weight_decay,
            "batch_norm": options.batch_norm,
            "double": options.double,
            "recipe": options.recipe,
            "processes": options.processes,
            "parts": parts,
        },
        "explorer": explorer,
    }


def list_units(options: InspectOptions, model: torch.nn.Module | None = None) -> Record:
    """The units of a model, found on one image of noise."""
    started = perf_counter()
    options = resolved(options)
    session = open_inspected(options, model)
    size = session.input_size()
    noise = torch.randn(1, *size, generator=torch.Generator().manual_seed(0)).to(session.device)
    session.try_image(noise)
    rows = [
        {
            "name": unit.name,
            "kind": unit.kind,
            "stage": unit.stage,
            "grid": unit.grid,
            "num_prefix_tokens": unit.num_prefix_tokens,
            "shape": unit.shape[1:],
        }
        for unit in capture.units(session.model, noise, level=options.level, **_token_grid(options))
    ]
    config = {"subject": options.model, **session.config}
    values = {"units": rows, "size": size}
    return Record(kind="units", values=values, config=config, seconds=perf_counter() - started)


def inspect_subject(
    options: InspectOptions,
    on_step: OnStep = lambda what, done, total: None,
    model: torch.nn.Module | None = None,
    *,
    explorer: bool = False,
    parts: Path | None = None,
    curvature_batch: int = BATCH_SIZE,
) -> Inspection:
    """Open the model, load some test images in its size and normalisation, and measure.

    Args:
        options: What is measured, of which model, on which images.
        on_step: Called with what is done, and the steps that are done and wanted.
        model: The model itself; the one that the options name when left out.
        explorer: Also take the maps of every patch, for a page, if no measures are named.
        parts: Folder where finished parts of Hessian spectra and landscapes are kept, to go on
            from.
        curvature_batch: Images per mini-batch of the curvature.
    """
    options = resolved(options)
    session = open_inspected(options, model)
    if model is not None and options.processes > 1:
        raise UserError("several processes cannot share a model that is given; leave processes out")
    positions = session.draw(options.images, options.seed)
    batches = session.batches(positions, options.batch_size, smallest=_SMALLEST_BATCH)
    first = next(iter(batches)).images.to(session.device)
    _check_wildcards(session.model, first, options)
    if options.grid is not None and not any(
        unit.grid is None for unit in capture.units(session.model, first[:1]) if unit.kind != "head"
    ):
        raise UserError(
            f"--grid is for models whose tokens cannot be traced; those of {options.model} can: "
            "leave it out"
        )
    notes = [*session.notes, *session.class_notes]
    arguments: dict[str, dict[str, Any]] = {
        name: {made.wildcards: getattr(options, made.wildcards)}
        for name, made in streaming_instruments().items()
    }
    arguments["fourier"] |= {"end": options.end}
    arguments["maps"] |= {"query": options.query}
    if options.other is not None:
        peer = _open_other(options, session)
        prepare = image_converter(session, peer)
        peer.try_image(prepare(first[:1]))
        notes += [note for note in peer.notes if note not in notes]
        arguments["cka"] |= {"other": peer.model, "prepare": prepare}

    def curved(
        name: str, options: InspectOptions, session: Session, _: EvalBatches, steps: Steps
    ) -> Record:
        return measure_curvature(
            name,
            options,
            session,
            steps,
            reopen=partial(open_inspected, options),
            batch_size=curvature_batch,
            parts=parts,
        )

    steps = Steps(on_step, len(batches))
    records: dict[str, Record] = {}
    refused: dict[str, str] = {}
    wanted = options.measures or MEASURES
    streaming = [name for name in arguments if name in wanted]
    if streaming:
        begun = perf_counter()
        measured = measure.together(
            session.model,
            batches,
            streaming,
            options=arguments,
            skip_unsuitable=True,
            on_batch=lambda n: steps("images"),
            level=options.level,
            **_token_grid(options),
        )
        refused |= measured.refused
        spent = perf_counter() - begun
        records |= {n: replace(r.to_record(), seconds=spent) for n, r in measured.results.items()}
    alone = _ALONE | {name: partial(curved, name) for name in CURVATURE}
    for name in [name for name in alone if name in wanted]:
        begun = perf_counter()
        try:
            result = alone[name](options, session, batches, steps)
        except UserError as error:
            refused[name] = str(error)
            continue
        record = result if isinstance(result, Record) else result.to_record()
        records[name] = replace(record, seconds=perf_counter() - begun)
    config = {
        **_config(options, explorer=explorer, parts=parts, curvature_batch=curvature_batch),
        **session.config,
        "data": session.source,
        "image_size": session.loaded.test.size,
        "notes": notes,
    }
    maps = None
    if EXPLORER in options.measures or (explorer and not options.measures):
        maps = _maps_of_every_patch(options, session, refused)
    if options.measures and not records and maps is None:
        raise UserError("; ".join(dict.fromkeys(refused.values())))
    return Inspection(
        subject=options.model,
        records={
            name: replace(
                records[name], config={**config, **records[name].config}, seed=options.seed
            )
            for name in (*MEASURES, *ON_REQUEST)
            if name in records
        },
        refused={
            n: " ".join(refused[n].split())
            for n in (*MEASURES, *ON_REQUEST, EXPLORER)
            if n in refused
        },
        notes=tuple(notes),
        explorer=maps and replace(maps, config=config),
    )


def _maps_of_every_patch(
    options: InspectOptions, session: Session, refused: dict[str, str]
) -> Record | None:
    """The maps of every patch on a few images; None if the model has none."""
    try:
        return explore(
            session,
            layers=options.layers,
            num_images=min(6, options.images),
            seed=options.seed,
            **_token_grid(options),
        )
    except UserError as error:
        refused[EXPLORER] = str(error)
        return None


def _open_other(options: InspectOptions, session: Session) -> Session:
    """The second model, for CKA between the two."""
    assert options.other is not None
    return open_session(
        options.other,
        session.source,
        pretrained=options.pretrained and is_named(options.other),
        seed=options.seed,
        device=options.device,
    )


def _check_wildcards(model: torch.nn.Module, images: torch.Tensor, options: InspectOptions) -> None:
    """Raise an error for wildcards that match nothing."""
    if options.layers != ("*",):
        there = [name for part in capture.trace_tokens(model, images) for name in part]
        capture.matching(options.layers, there, "attention layer")
    if options.units != ("*",):
        there = [unit.name for unit in capture.units(model, images, level=options.level)]
        capture.matching(options.units, there, "unit")


def _gates(options: InspectOptions, session: Session, *_: Any) -> Any:
    """Gates of the gated layers that match; wildcards for other attention layers are ignored."""
    gated = capture.gated_layers(session.model)
    fitting = [p for p in options.layers if any(fnmatchcase(name, p) for name in gated)]
    return measure.gates(session.model, layers=fitting or options.layers)


def _windows(options: InspectOptions, session: Session, *_: Any) -> Any:
    """Windows of the positional layers that match; of a run also at the epochs that it kept."""
    weights = position_weights(session.model)
    fitting = [p for p in options.layers if any(fnmatchcase(name, p) for name in weights)]
    run, earlier = session.opened.run, {}
    if run is not None and options.epoch is None:
        wanted = [f"{name}.{WEIGHT}" for name in weights]
        for file in sorted(run.folder.glob("weights/epoch-*.safetensors")):
            state = read_state(file)
            earlier[int(file.stem.split("-")[1])] = {n: state[n] for n in wanted if n in state}
        if earlier:
            earlier[run.epochs] = session.model.state_dict()
    return measure.windows(session.model, layers=fitting or options.layers, earlier=earlier)


def _labelled(
    name: str, options: InspectOptions, session: Session, batches: EvalBatches, steps: Steps
) -> Any:
    """A measure that needs labels; refused where accuracies would mean nothing."""
    if session.opened.random and not options.measures:
        raise UserError("accuracy of random weights says nothing; give a run or --pretrained")
    session.require_labels(name)
    if name in ROBUSTNESS:
        robust = EvaluateOptions(model=options.model, on=(name,), seed=options.seed)
        return measure_robustness(name, robust, session.model, batches, session.statistics, steps)
    if name == "masking":
        return measure.masking(session.model, batches, on_mask=steps)
    if name == "lens":
        return measure.lens(
            session.model, batches, units=options.units, seed=options.seed, on_unit=steps
        )
    units = None if options.units == ("*",) else options.units
    return measure.lesion(session.model, batches, units=units, level=options.level, on_unit=steps)


def _patching(options: InspectOptions, session: Session, batches: EvalBatches, steps: Steps) -> Any:
    """Patch between the first two images to which the model gives different classes."""
    images = next(iter(batches)).images.to(session.device)
    with capture.evaluating(session.model):
        answers = capture.logits_of(session.model(images)).argmax(1)
    others = (answers != answers[0]).nonzero()[:, 0]
    if not len(others):
        raise UserError(
            f"the model gives the first {len(images)} images the same class; patching needs two"
        )
    other = int(others[0])
    return measure.patching(
        session.model, images[:1], images[other : other + 1], units=options.units
    )


def _pca(options: InspectOptions, session: Session, batches: EvalBatches, _: Steps) -> Any:
    return measure.pca(session.model, batches, units=options.units, **_token_grid(options))


def _relevance(
    options: InspectOptions, session: Session, batches: EvalBatches, steps: Steps
) -> Any:
    return measure.relevance(
        session.model,
        batches,
        statistics=session.statistics,
        seed=options.seed,
        on_step=steps,
        **_token_grid(options),
    )


_ALONE: dict[str, Callable[[InspectOptions, Session, EvalBatches, Steps], Any]] = {
    "gates": _gates,
    "windows": _windows,
    "pca": _pca,
    "relevance": _relevance,
    "patching": _patching,
    **{name: partial(_labelled, name) for name in ("masking", "lesion", "lens", *ROBUSTNESS)},
}
