"""What is inside a model: its units, and every instrument that makes sense for it.

The instruments that need images alone share one pass over them; masking and lesions need labels
and a pass for each thing they take away.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np
import torch

from vitascope import capture, measure
from vitascope.data import Dataset, EvalBatches
from vitascope.errors import UserError, unknown
from vitascope.measure.batches import logits_of
from vitascope.measure.together import STREAMING
from vitascope.record import Record
from vitascope.studies.sitting import Sitting, matched, seat, size_of, tried

__all__ = ["MEASURES", "Inspection", "inspect_subject", "list_units"]

MEASURES = ("nonlocality", "gates", "entropy", "maps", "fourier", "variance", "cka", "masking",
            "lesion")  # fmt: skip
_OVER_LAYERS = ("nonlocality", "entropy", "maps")
_OVER_UNITS = ("fourier", "variance", "cka")
OnStep = Callable[[str, int, int], None]  # what is done, steps done, steps in all


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Records by instrument, what was refused and why, and what a reader must know."""

    subject: str
    records: Mapping[str, Record]
    refused: Mapping[str, str]
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    config: Mapping[str, Any] = field(default_factory=dict)


def list_units(
    subject: str,
    *,
    image_size: int | None = None,
    epoch: int | None = None,
    pretrained: bool = False,
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
    device: str | None = None,
) -> Record:
    """The units of a model, found on one image of noise."""
    started = perf_counter()
    sitting = seat(
        subject, epoch=epoch, pretrained=pretrained, image_size=image_size, device=device
    )
    size = size_of(sitting.subject, image_size)
    noise = torch.randn(1, *size, generator=torch.Generator().manual_seed(0)).to(sitting.device)
    tried(sitting.model, noise, sitting.subject.name)
    found = capture.units(sitting.model, noise, grid=grid, num_prefix_tokens=num_prefix_tokens)
    rows = [
        {"name": unit.name, "kind": unit.kind, "stage": unit.stage, "grid": unit.grid,
         "num_prefix_tokens": unit.num_prefix_tokens, "shape": unit.shape[1:]}
        for unit in found
    ]  # fmt: skip
    values = {"units": rows, "size": size, "notes": list(sitting.notes)}
    config = {"subject": subject, **sitting.subject.config}
    return Record(kind="units", values=values, config=config, seconds=perf_counter() - started)


def inspect_subject(
    subject: str,
    data: str | None = None,
    *,
    measures: Sequence[str] = (),
    layers: Sequence[str] = ("*",),
    units: Sequence[str] = ("*",),
    num_images: int = 256,
    batch_size: int = 64,
    image_size: int | None = None,
    epoch: int | None = None,
    other: str | None = None,
    query: tuple[float, float] = (0.5, 0.5),
    grid: tuple[int, int] | None = None,
    num_prefix_tokens: int | None = None,
    pretrained: bool = False,
    seed: int = 0,
    device: str | None = None,
    on_step: OnStep = lambda what, done, total: None,
) -> Inspection:
    """Open the model, load some test images in its size and statistics, and measure.

    Args:
        subject: A run's folder, a model's name, ``hf:NAME`` or ``package.module:function``.
        data: Images; a run's own when left out.
        measures: Of :data:`MEASURES`; one that cannot measure the model is an error. By default
            all that make sense, and the rest are listed under ``refused``.
        layers: Wildcards for attention layers.
        units: Wildcards for units.
        num_images: Test images, drawn with ``seed``.
        batch_size: Images a pass.
        image_size: Side of the images; the model's own when left out.
        epoch: Of a run, the weights kept then.
        other: A second model, for CKA between the two.
        query: Of the maps: down and across, 0 to 1.
        grid: Patches down and across, where they cannot be found out.
        num_prefix_tokens: Tokens before the patches there.
        pretrained: timm's weights for a model given by name.
        seed: Of random weights and of the choice of images.
        device: cpu, cuda, mps.
        on_step: For a progress bar.
    """
    started = perf_counter()
    for name in measures:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    if other is not None and measures and "cka" not in measures:
        raise UserError("--other is for CKA: add cka to --measures, or leave --measures out")
    sitting = seat(
        subject, data, epoch=epoch, pretrained=pretrained, image_size=image_size, seed=seed,
        device=device)  # fmt: skip
    images = sitting.images
    batches = _batches(sitting, images, num_images, batch_size, seed)
    first = next(iter(batches)).images
    tried(sitting.model, first.to(sitting.device), sitting.subject.name)
    _no_typos(sitting.model, first.to(sitting.device), layers, units)
    options: dict[str, dict[str, Any]] = {name: {"layers": layers} for name in _OVER_LAYERS}
    options |= {name: {"units": units} for name in _OVER_UNITS}
    options["maps"]["query"] = query
    notes = list(sitting.notes)
    if other is not None:
        peer = seat(other, data or sitting.source, pretrained=pretrained, seed=seed, device=device)
        notes += [f"{other}: {note}" for note in peer.notes if note not in notes]
        size = size_of(peer.subject, None, sitting.size)
        prepare = matched(sitting, peer, size)
        tried(peer.model, prepare(first[:1].to(sitting.device)), other)
        options["cka"] |= {"other": peer.model, "prepare": prepare}
    steps = _Steps(on_step, len(batches))
    records: dict[str, Record] = {}
    refused: dict[str, str] = {}

    def attempt(name: str, run: Callable[[], Any]) -> None:
        begun = perf_counter()
        try:
            result = run()
        except UserError as error:
            if measures:
                raise UserError(_one_line(f"{name}: {error}")) from None
            refused[name] = str(error)
            return
        records[name] = replace(result.to_record(), seconds=perf_counter() - begun)

    wanted = measures or MEASURES
    streaming = [name for name in STREAMING if name in wanted]
    if streaming:
        begun = perf_counter()
        found = measure.together(
            sitting.model, batches, streaming if measures else None, options=options,
            on_batch=lambda n: steps("images"), grid=grid,
            num_prefix_tokens=num_prefix_tokens)  # fmt: skip
        refused |= found.refused
        spent = perf_counter() - begun
        records |= {n: replace(r.to_record(), seconds=spent) for n, r in found.results.items()}
    if "gates" in wanted:
        attempt("gates", lambda: measure.gates(sitting.model, layers=_gated(sitting.model, layers)))
    for name in ("masking", "lesion"):
        if name in wanted:
            reason = _no_accuracy(sitting, images, asked=bool(measures))
            attempt(name, lambda: _with_labels(name, reason, sitting, batches, units, steps))  # noqa: B023
    config = {
        "subject": subject, **sitting.subject.config, "data": sitting.source, "layers": layers,
        "units": units, "num_images": num_images, "batch_size": batch_size,
        "image_size": sitting.size, "other": other, "query": query, "notes": notes}  # fmt: skip
    records = {n: replace(records[n], config=config, seed=seed) for n in MEASURES if n in records}
    refused = {n: _one_line(refused[n]) for n in MEASURES if n in refused}
    return Inspection(
        subject=subject, records=records, refused=refused, notes=tuple(notes),
        seconds=perf_counter() - started, config=config)  # fmt: skip


class _Steps:
    """Counts steps for a progress bar whose length becomes known on the way."""

    def __init__(self, on_step: OnStep, total: int):
        self.on_step, self.done, self.total = on_step, 0, total

    def __call__(self, what: str, ahead: int | None = None) -> None:
        """One more step; ``ahead`` are left, this one included."""
        if ahead is not None:
            self.total = self.done + ahead
        self.done += 1
        self.on_step(what, self.done, self.total)


def _batches(
    sitting: Sitting, images: Dataset, num_images: int, batch_size: int, seed: int
) -> EvalBatches:
    """Some test images in batches of about the size wanted, none smaller than 4 if possible."""
    if num_images < 1 or batch_size < 1:
        raise UserError("give at least 1 for --images and --batch-size")
    count = min(num_images, len(images.test))
    order = np.random.default_rng(seed).permutation(len(images.test))[:count]
    size = min(batch_size, count)
    while 0 < count % size < 4 and size < count:
        size += 1
    mean, std = sitting.statistics
    return EvalBatches(images.test.take(np.sort(order)), batch_size=size, mean=mean, std=std)


def _no_typos(
    model: torch.nn.Module, images: torch.Tensor, layers: Sequence[str], units: Sequence[str]
) -> None:
    """Wildcards that match nothing are a mistake, not a reason to measure less."""
    if tuple(layers) != ("*",):
        there = [name for part in capture.located(model, images) for name in part]
        capture.matching(layers, there, "attention layer")
    if tuple(units) != ("*",):
        there = [unit.name for unit in capture.units(model, images)]
        capture.matching(units, there, "unit")


def _gated(model: torch.nn.Module, layers: Sequence[str]) -> Any:
    """The wildcards, for gates: those that match plain attention layers alone are no mistake."""
    gated = capture.gated_layers(model)
    fitting = [p for p in layers if any(True for _ in _matches(p, gated))]
    return fitting or list(layers)


def _matches(pattern: str, names: Mapping[str, Any]) -> Sequence[str]:
    try:
        return capture.matching(pattern, names, "gated layer")
    except UserError:
        return []


def _no_accuracy(sitting: Sitting, images: Dataset, *, asked: bool) -> str | None:
    """Why the accuracy of this model on these images says nothing, if it does not."""
    if sitting.random and not asked:
        return "accuracy of random weights says nothing; give a run or --pretrained"
    with capture.evaluating(sitting.model):
        noise = torch.zeros(1, *sitting.size, device=sitting.device)
        outputs = logits_of(sitting.model(noise)).shape[-1]
    if outputs != len(images.classes):
        classes = len(images.classes)
        return f"needs labels of the model's own {outputs} classes; these images have {classes}"
    return None


def _with_labels(
    name: str,
    reason: str | None,
    sitting: Sitting,
    batches: EvalBatches,
    units: Sequence[str],
    steps: _Steps,
) -> Any:
    """Masking or lesion, which compare accuracies."""
    if reason is not None:
        raise UserError(reason)
    if name == "masking":
        return measure.masking(sitting.model, batches, on_mask=steps)
    chosen = None if tuple(units) == ("*",) else units
    return measure.lesion(sitting.model, batches, units=chosen, on_unit=steps)


def _one_line(text: str) -> str:
    return " ".join(text.split())
