"""`vitascope inspect`: the units of a model, and every instrument that makes sense for it.

The instruments that need images alone share one pass over them; masking and lesions need labels and
a pass for each part they remove. Robustness, calibration and curvature are measured when asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from time import perf_counter
from typing import Any

import torch

from vitascope import capture, measure
from vitascope.capture.structure.units import Level
from vitascope.data import EvalBatches
from vitascope.errors import UserError, unknown
from vitascope.explorer.explore import explore
from vitascope.inspection.curvature import CURVATURE, Curvature, measure_curvature
from vitascope.inspection.robustness import ROBUSTNESS, Trial, measure_robustness
from vitascope.loading.opening import is_named
from vitascope.loading.session import Session, image_converter, open_session
from vitascope.measure.attention.windows import WEIGHT, position_weights
from vitascope.measure.features.fourier import End
from vitascope.measure.streaming.one_pass import STREAMING
from vitascope.models.weights import read_state
from vitascope.progress import OnStep, Steps
from vitascope.record import Record

MEASURES = (*STREAMING, "gates", "windows", "masking", "lesion")
ON_REQUEST = ("relevance", *ROBUSTNESS, *CURVATURE)  # taken when they are named
EXPLORER = "explorer"  # maps for a page; taken by default too, and no figure or line of its own
_SMALLEST_BATCH = 4  # CKA compares images within a batch


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """What is measured, as records keep it."""

    subject: str  # a run's folder, a model's name, hf:NAME or package.module:function
    data: str | None = None
    measures: tuple[str, ...] = ()  # when empty, all of MEASURES that make sense
    layers: tuple[str, ...] = ("*",)
    units: tuple[str, ...] = ("*",)
    level: Level = "unit"
    end: End = "nyquist"
    num_images: int = 256
    batch_size: int = 64
    image_size: int | None = None
    map_classes: Mapping[str, str] = field(default_factory=dict)  # images' class -> model's
    epoch: int | None = None
    other: str | None = None
    query: tuple[float, float] = (0.5, 0.5)
    grid: tuple[int, int] | None = None
    num_prefix_tokens: int | None = None
    pretrained: bool = False
    model_args: Mapping[str, Any] = field(default_factory=dict)  # of a model given by name
    seed: int = 0
    device: str | None = None
    curvature: Curvature = field(default_factory=Curvature)
    explorer: bool = False  # also the maps of every patch, for a page; or name it in measures

    def __post_init__(self) -> None:
        for name in self.measures:
            if name not in (*MEASURES, *ON_REQUEST, EXPLORER):
                raise unknown("measure", name, (*MEASURES, *ON_REQUEST, EXPLORER))
        if self.other is not None and self.measures and "cka" not in self.measures:
            raise UserError("--other is for CKA: add cka to --measures, or leave --measures out")
        if self.num_images < 1 or self.batch_size < 1:
            raise UserError("give at least 1 for --images and --batch-size")
        if self.grid is not None and min(self.grid) < 1:
            raise UserError(f"a grid has at least one patch each way, not {self.grid}")

    def open_session(self, model: torch.nn.Module | None = None) -> Session:
        """Open the model that ``subject`` names, or the one that is given."""
        options = self.session_options
        return open_session(**(options if model is None else options | {"text": model}))

    @property
    def session_options(self) -> dict[str, Any]:
        """How the model is opened, here or in another process."""
        return {
            "text": self.subject,
            "data": self.data,
            "epoch": self.epoch,
            "seed": self.seed,
            "pretrained": self.pretrained,
            "arguments": dict(self.model_args),
            "image_size": self.image_size,
            "device": self.device,
            "map_classes": dict(self.map_classes),
        }

    @property
    def token_grid(self) -> dict[str, Any]:
        """The stated grid and prefix tokens, for tokens that cannot be traced."""
        return {"grid": self.grid, "num_prefix_tokens": self.num_prefix_tokens}


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Records by instrument, what was refused and why, and what a reader must know."""

    subject: str
    records: Mapping[str, Record]
    refused: Mapping[str, str]
    notes: tuple[str, ...] = ()
    explorer: Record | None = None  # the attention of every patch, for a page


def list_units(request: InspectRequest, model: torch.nn.Module | None = None) -> Record:
    """The units of a model, found on one image of noise."""
    started = perf_counter()
    session = request.open_session(model)
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
        for unit in capture.units(session.model, noise, level=request.level, **request.token_grid)
    ]
    config = {"subject": request.subject, **session.config}
    values = {"units": rows, "size": size}
    return Record(kind="units", values=values, config=config, seconds=perf_counter() - started)


def inspect_subject(
    request: InspectRequest,
    on_step: OnStep = lambda what, done, total: None,
    model: torch.nn.Module | None = None,
) -> Inspection:
    """Open the model, load some test images in its size and normalisation, and measure."""
    session = request.open_session(model)
    if model is not None and request.curvature.processes > 1:
        raise UserError("several processes cannot share a model that is given; leave processes out")
    positions = session.draw(request.num_images, request.seed)
    batches = session.batches(positions, request.batch_size, smallest=_SMALLEST_BATCH)
    first = next(iter(batches)).images.to(session.device)
    _check_wildcards(session.model, first, request)
    if request.grid is not None and not any(
        unit.grid is None for unit in capture.units(session.model, first[:1]) if unit.kind != "head"
    ):
        raise UserError(
            f"--grid is for models whose tokens cannot be traced; those of {request.subject} can: "
            "leave it out"
        )
    notes = [*session.notes, *session.class_notes]
    options: dict[str, dict[str, Any]] = {
        name: {made.wildcards: getattr(request, made.wildcards)} for name, made in STREAMING.items()
    }
    options["fourier"] |= {"end": request.end}
    options["maps"] |= {"query": request.query}
    if request.other is not None:
        peer = _open_other(request, session)
        prepare = image_converter(session, peer)
        peer.try_image(prepare(first[:1]))
        notes += [note for note in peer.notes if note not in notes]
        options["cka"] |= {"other": peer.model, "prepare": prepare}
    steps = Steps(on_step, len(batches))
    records: dict[str, Record] = {}
    refused: dict[str, str] = {}
    wanted = request.measures or MEASURES
    streaming = [name for name in STREAMING if name in wanted]
    if streaming:
        begun = perf_counter()
        measured = measure.together(
            session.model,
            batches,
            streaming,
            options=options,
            skip_unsuitable=True,
            on_batch=lambda n: steps("images"),
            level=request.level,
            **request.token_grid,
        )
        refused |= measured.refused
        spent = perf_counter() - begun
        records |= {n: replace(r.to_record(), seconds=spent) for n, r in measured.results.items()}
    for name in [name for name in _ALONE if name in wanted]:
        begun = perf_counter()
        try:
            result = _ALONE[name](request, session, batches, steps)
        except UserError as error:
            refused[name] = str(error)
            continue
        record = result if isinstance(result, Record) else result.to_record()
        records[name] = replace(record, seconds=perf_counter() - begun)
    config = {
        **asdict(request),
        **session.config,
        "data": session.source,
        "image_size": session.loaded.test.size,
        "notes": notes,
    }
    explorer = _explorer(request, session, refused)
    if request.measures and not records and explorer is None:
        raise UserError("; ".join(dict.fromkeys(refused.values())))
    return Inspection(
        subject=request.subject,
        records={
            name: replace(
                records[name], config={**config, **records[name].config}, seed=request.seed
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
        explorer=explorer and replace(explorer, config=config),
    )


def _explorer(request: InspectRequest, session: Session, refused: dict[str, str]) -> Record | None:
    """The maps of every patch on a few images; None if not wanted, or if the model has none."""
    if EXPLORER not in request.measures and (request.measures or not request.explorer):
        return None
    try:
        return explore(
            session,
            layers=request.layers,
            num_images=min(6, request.num_images),
            seed=request.seed,
            **request.token_grid,
        )
    except UserError as error:
        refused[EXPLORER] = str(error)
        return None


def _open_other(request: InspectRequest, session: Session) -> Session:
    """The second model, for CKA between the two."""
    assert request.other is not None
    return open_session(
        request.other,
        session.source,
        pretrained=request.pretrained and is_named(request.other),
        seed=request.seed,
        device=request.device,
    )


def _check_wildcards(model: torch.nn.Module, images: torch.Tensor, request: InspectRequest) -> None:
    """Raise an error for wildcards that match nothing."""
    if request.layers != ("*",):
        there = [name for part in capture.trace_tokens(model, images) for name in part]
        capture.matching(request.layers, there, "attention layer")
    if request.units != ("*",):
        there = [unit.name for unit in capture.units(model, images, level=request.level)]
        capture.matching(request.units, there, "unit")


def _gates(request: InspectRequest, session: Session, *_: Any) -> Any:
    """Gates of the gated layers that match; wildcards for other attention layers are ignored."""
    gated = capture.gated_layers(session.model)
    fitting = [p for p in request.layers if any(fnmatchcase(name, p) for name in gated)]
    return measure.gates(session.model, layers=fitting or request.layers)


def _windows(request: InspectRequest, session: Session, *_: Any) -> Any:
    """Windows of the positional layers that match; of a run also at the epochs that it kept."""
    weights = position_weights(session.model)
    fitting = [p for p in request.layers if any(fnmatchcase(name, p) for name in weights)]
    run, earlier = session.opened.run, {}
    if run is not None and request.epoch is None:
        wanted = [f"{name}.{WEIGHT}" for name in weights]
        for file in sorted(run.folder.glob("weights/epoch-*.safetensors")):
            state = read_state(file)
            earlier[int(file.stem.split("-")[1])] = {n: state[n] for n in wanted if n in state}
        if earlier:
            earlier[run.epochs] = session.model.state_dict()
    return measure.windows(session.model, layers=fitting or request.layers, earlier=earlier)


def _labelled(
    name: str, request: InspectRequest, session: Session, batches: EvalBatches, steps: Steps
) -> Any:
    """A measure that needs labels; refused where accuracies would mean nothing."""
    if session.opened.random and not request.measures:
        raise UserError("accuracy of random weights says nothing; give a run or --pretrained")
    session.require_labels(name)
    if name in ROBUSTNESS:
        trial = Trial(on=(name,), seed=request.seed)
        return measure_robustness(name, trial, session.model, batches, session.statistics, steps)
    if name == "masking":
        return measure.masking(session.model, batches, on_mask=steps)
    units = None if request.units == ("*",) else request.units
    return measure.lesion(session.model, batches, units=units, level=request.level, on_unit=steps)


def _relevance(
    request: InspectRequest, session: Session, batches: EvalBatches, steps: Steps
) -> Any:
    return measure.relevance(
        session.model,
        batches,
        statistics=session.statistics,
        seed=request.seed,
        on_step=steps,
        **request.token_grid,
    )


def _curved(
    name: str, request: InspectRequest, session: Session, _: EvalBatches, steps: Steps
) -> Any:
    return measure_curvature(name, request.curvature, session, request.session_options, steps)


_ALONE: dict[str, Callable[[InspectRequest, Session, EvalBatches, Steps], Any]] = {
    "gates": _gates,
    "windows": _windows,
    "relevance": _relevance,
    **{name: partial(_labelled, name) for name in ("masking", "lesion", *ROBUSTNESS)},
    **{name: partial(_curved, name) for name in CURVATURE},
}
