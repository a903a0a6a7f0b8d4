"""What is inside a model: its units, and every instrument that makes sense for it.

The instruments that need images alone share one pass over them; masking and lesions need labels
and a pass for each thing they take away. Robustness, calibration and curvature are measured when
asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from time import perf_counter
from typing import Any

import torch

from vitascope import capture, measure
from vitascope.data import EvalBatches
from vitascope.errors import UserError
from vitascope.measure.streaming.together import STREAMING
from vitascope.progress import OnStep, Steps
from vitascope.record import Record
from vitascope.studies.explorer.explore import explored
from vitascope.studies.inspection.curvature import CURVATURE, curvature
from vitascope.studies.inspection.request import EXPLORER, MEASURES, ON_REQUEST, Look
from vitascope.studies.inspection.robustness import ROBUSTNESS, Trial, measured
from vitascope.studies.session.session import (
    Session,
    is_named,
    matched,
    open_session,
    size_of,
    tried,
)

__all__ = ["MEASURES", "ON_REQUEST", "Inspection", "Look", "inspect_subject", "list_units"]


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Records by instrument, what was refused and why, and what a reader must know."""

    subject: str
    records: Mapping[str, Record]
    refused: Mapping[str, str]
    notes: tuple[str, ...] = ()
    explorer: Record | None = None  # the attention of every patch, for a page


def list_units(look: Look) -> Record:
    """The units of a model, found on one image of noise."""
    started = perf_counter()
    session = look.open_session()
    size = size_of(session.subject, look.image_size)
    noise = torch.randn(1, *size, generator=torch.Generator().manual_seed(0)).to(session.device)
    tried(session.model, noise, look.subject)
    rows = [
        {"name": unit.name, "kind": unit.kind, "stage": unit.stage, "grid": unit.grid,
         "num_prefix_tokens": unit.num_prefix_tokens, "shape": unit.shape[1:]}
        for unit in capture.units(session.model, noise, **look.stated)
    ]  # fmt: skip
    config = {"subject": look.subject, **session.subject.config}
    values = {"units": rows, "size": size}
    return Record(kind="units", values=values, config=config, seconds=perf_counter() - started)


def inspect_subject(look: Look, on_step: OnStep = lambda what, done, total: None) -> Inspection:
    """Open the model, load some test images in its size and statistics, and measure."""
    session = look.open_session()
    batches = session.batches(look.num_images, look.batch_size, look.seed)
    first = next(iter(batches)).images.to(session.device)
    tried(session.model, first, look.subject)
    _no_typos(session.model, first, look)
    notes = [*session.notes, *session.class_notes]
    options: dict[str, dict[str, Any]] = {"maps": {"layers": look.layers, "query": look.query}}
    options |= {name: {"layers": look.layers} for name in ("nonlocality", "entropy")}
    options |= {name: {"units": look.units} for name in ("fourier", "variance", "cka")}
    if look.other is not None:
        peer, prepare = _peer(look, session)
        tried(peer.model, prepare(first[:1]), look.other)
        notes += [note for note in peer.notes if note not in notes]
        options["cka"] |= {"other": peer.model, "prepare": prepare}
    steps = Steps(on_step, len(batches))
    records: dict[str, Record] = {}
    refused: dict[str, str] = {}
    wanted = look.measures or MEASURES
    streaming = [name for name in STREAMING if name in wanted]
    if streaming:
        begun = perf_counter()
        found = measure.together(
            session.model, batches, streaming if look.measures else None, options=options,
            on_batch=lambda n: steps("images"), **look.stated)  # fmt: skip
        refused |= found.refused
        spent = perf_counter() - begun
        records |= {n: replace(r.to_record(), seconds=spent) for n, r in found.results.items()}
    for name in [name for name in _ALONE if name in wanted]:
        begun = perf_counter()
        try:
            result = _ALONE[name](look, session, batches, steps)
        except UserError as error:
            if look.measures:
                raise
            refused[name] = str(error)
            continue
        record = result if isinstance(result, Record) else result.to_record()
        records[name] = replace(record, seconds=perf_counter() - begun)
    config = {**asdict(look), **session.subject.config, "data": session.source,
              "image_size": session.size, "notes": notes}  # fmt: skip
    explorer = _explorer(look, session, refused)
    return Inspection(
        subject=look.subject,
        records={
            name: replace(records[name], config={**config, **records[name].config}, seed=look.seed)
            for name in (*MEASURES, *ON_REQUEST)
            if name in records
        },
        refused={n: " ".join(refused[n].split()) for n in (*MEASURES, EXPLORER) if n in refused},
        notes=tuple(notes),
        explorer=explorer and replace(explorer, config=config),
    )


def _explorer(look: Look, session: Session, refused: dict[str, str]) -> Record | None:
    """The maps of every patch on a few images; None if not wanted, or if the model has none."""
    named = EXPLORER in look.measures
    if not named and (look.measures or not look.explorer):
        return None
    try:
        return explored(
            session.subject, session.images, statistics=session.statistics, layers=look.layers,
            num_images=min(6, look.num_images), seed=look.seed, **look.stated)  # fmt: skip
    except UserError as error:
        if named:
            raise
        refused[EXPLORER] = str(error)
        return None


def _peer(look: Look, session: Session) -> tuple[Session, Callable[..., Any]]:
    """The other model, and how it is given the same images."""
    assert look.other is not None
    pretrained = look.pretrained and is_named(look.other)
    peer = open_session(
        look.other, session.source, pretrained=pretrained, seed=look.seed, device=look.device
    )
    return peer, matched(session, peer, size_of(peer.subject, None, session.size))


def _no_typos(model: torch.nn.Module, images: torch.Tensor, look: Look) -> None:
    """Wildcards that match nothing are a mistake, not a reason to measure less."""
    if look.layers != ("*",):
        there = [name for part in capture.located(model, images) for name in part]
        capture.matching(look.layers, there, "attention layer")
    if look.units != ("*",):
        there = [unit.name for unit in capture.units(model, images)]
        capture.matching(look.units, there, "unit")


def _gates(look: Look, session: Session, *_: Any) -> Any:
    """The wildcards are for all attention layers: some may match no gated one."""
    gated = capture.gated_layers(session.model)
    fitting = [p for p in look.layers if any(fnmatchcase(name, p) for name in gated)]
    return measure.gates(session.model, layers=fitting or look.layers)


def _labelled(name: str, look: Look, session: Session, batches: EvalBatches, steps: Steps) -> Any:
    """What compares accuracies; refused where those would say nothing."""
    if session.random and not look.measures:
        raise UserError("accuracy of random weights says nothing; give a run or --pretrained")
    session.labelled(name)
    if name in ROBUSTNESS:
        trial = Trial(on=(name,), seed=look.seed)
        return measured(name, trial, session.model, batches, session.statistics, steps)
    if name == "masking":
        return measure.masking(session.model, batches, on_mask=steps)
    units = None if look.units == ("*",) else look.units
    return measure.lesion(session.model, batches, units=units, on_unit=steps)


def _curved(name: str, look: Look, session: Session, _: EvalBatches, steps: Steps) -> Any:
    return curvature(name, look.curvature, session, look.opened, steps)


_ALONE: dict[str, Callable[[Look, Session, EvalBatches, Steps], Any]] = {
    "gates": _gates,
    **{name: partial(_labelled, name) for name in ("masking", "lesion", *ROBUSTNESS)},
    **{name: partial(_curved, name) for name in CURVATURE},
}
