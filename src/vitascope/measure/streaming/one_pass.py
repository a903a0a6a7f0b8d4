"""One pass over the images for any number of instruments.

An instrument declares the maps and features it needs, receives them while the model runs, and gives
its result at the end. Units are found once; every map and feature is computed once per batch.
``together(model, batches)`` gives exactly what the single functions give.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError, unknown
from vitascope.measure.registry import INSTRUMENTS
from vitascope.measure.streaming.batches import first_images, images_in
from vitascope.measure.streaming.model_structure import ModelStructure

__all__ = ["StreamingInstrument", "Together", "streaming_instruments", "together"]

Refusals = dict[str, str]
_MAX_ELEMENTS = 2**20  # of the maps that are shown at a time: they stay in the CPU's cache
_STREAMING: dict[str, type[Any]] = {}  # by name: subclasses of StreamingInstrument


class StreamingInstrument(ABC):
    """An instrument during a pass: what it needs, how it adds a batch, its result.

    :func:`~vitascope.measure.together` takes ``class StreamingEntropy(StreamingInstrument,
    name="entropy")`` by its name.
    """

    wildcards: Literal["layers", "units"] = "layers"  # what its argument of that name chooses
    maps: Mapping[str, tuple[str, ...]] = {}  # attention layer -> mixed, content, position
    streams: tuple[str, ...] = ()  # units after which the stream is wanted
    outputs: tuple[str, ...] = ()  # units whose own output is wanted

    def __init_subclass__(cls, name: str | None = None) -> None:
        if name is not None:
            _STREAMING[name] = cls

    def add_map(self, layer: str, part: str, weights: Tensor) -> None:
        """Add the map of a few images, from the first of the batch on. (b * windows, H, T, S)

        It is overwritten by the next one.
        """
        return

    def add_features(self, unit: str, tensor: Tensor) -> None:
        """Add the residual stream after a unit, or its output."""
        return

    def end_batch(self, images: Tensor) -> None:
        """Called after each batch."""
        return

    @abstractmethod
    def result(self, num_images: int) -> Any:
        """The result over all images."""


def streaming_instruments() -> dict[str, type[Any]]:
    """Return the instruments that can share a pass, by name and in a page's order."""
    listed = [each for each in INSTRUMENTS.values() if each.streaming]
    for each in listed:
        each.load()  # and so is in _STREAMING
    names = dict.fromkeys([*(each.name for each in listed), *_STREAMING])
    return {name: _STREAMING[name] for name in names}


@dataclass(frozen=True)
class Together:
    """Results by instrument, and the instruments that refused the model."""

    results: Mapping[str, Any]
    refused: Mapping[str, str]  # instrument -> why


def run_instrument(
    instrument: Callable[..., StreamingInstrument],
    model: nn.Module,
    batches: Iterable[Any],
    layout: Mapping[str, Any],
    **options: Any,
) -> Any:
    """Run one instrument with its options; ``layout`` is passed on to :class:`ModelStructure`."""
    images, batches = first_images(batches, model)
    structure = ModelStructure(model, images, **layout)
    return one_pass(structure, batches, {"": instrument(structure, **options)})[""]


def one_pass(
    structure: ModelStructure,
    batches: Iterable[Any],
    instruments: Mapping[str, StreamingInstrument],
    *,
    refused: Refusals | None = None,
    on_batch: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Show every batch to all instruments; their results by name.

    Args:
        structure: The model.
        batches: Images, or (images, labels).
        instruments: Instruments by name.
        refused: Where to note an instrument that gives up, and why; without it, that is an error.
        on_batch: Called with the number of images after each batch.
    """
    model, num_images = structure.model, 0
    active = dict(instruments)

    def attempt(name: str, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except UserError as error:
            if refused is None:
                raise
            refused[name] = str(error)
            active.pop(name, None)

    def show_map(layer: str, part: str, weights: Tensor) -> None:
        for name, instrument in list(active.items()):
            if part in instrument.maps.get(layer, ()):
                attempt(name, instrument.add_map, layer, part, weights)

    def show_features(wanted: str) -> Callable[[str, Tensor], None]:
        def show(unit: str, tensor: Tensor) -> None:
            for name, instrument in list(active.items()):
                if unit in getattr(instrument, wanted):
                    attempt(name, instrument.add_features, unit, tensor)

        return show

    shared = not capture.has_fused_layers(model)
    for images in images_in(batches, model):
        maps = _wanted(active.values())
        streams = list(dict.fromkeys(u for o in active.values() for u in o.streams))
        outputs = list(dict.fromkeys(u for o in active.values() for u in o.outputs))
        with ExitStack() as stack:
            stack.enter_context(capture.evaluating(model))
            if maps:
                stack.enter_context(
                    capture.watch_maps(model, maps, show_map, max_elements=_MAX_ELEMENTS)
                )
            if maps and not shared and (streams or outputs):
                model(images)  # fused layers give either maps or features
                stack.close()
                stack.enter_context(capture.evaluating(model))
            if outputs:
                show = show_features("outputs")
                stack.enter_context(capture.features(model, outputs, reduce=show))
            if streams:
                show = show_features("streams")
                stack.enter_context(capture.streams(model, structure.units, streams, show))
            model(images)
        for name, instrument in list(active.items()):
            attempt(name, instrument.end_batch, images)
        num_images += len(images)
        if on_batch is not None:
            on_batch(len(images))
        if not active:
            break
    results = {}
    for name, instrument in list(active.items()):
        value = attempt(name, instrument.result, num_images)
        if name in active:
            results[name] = value
    return results


def _wanted(instruments: Iterable[StreamingInstrument]) -> dict[str, list[str]]:
    """The parts of each attention layer that any instrument needs."""
    wanted: dict[str, list[str]] = {}
    for instrument in instruments:
        for layer, parts in instrument.maps.items():
            layer_parts = wanted.setdefault(layer, [])
            layer_parts += [part for part in parts if part not in layer_parts]
    return wanted


def together(
    model: nn.Module,
    batches: Iterable[Any],
    names: Iterable[str] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    skip_unsuitable: bool | None = None,
    on_batch: Callable[[int], None] | None = None,
    **layout: Any,
) -> Together:
    """Run instruments on ``model`` in one pass over ``batches``.

    Args:
        model: Any vision model; it is left unchanged.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        names: Some of the instruments; by default all.
        options: Arguments by instrument: ``{"maps": {"query": (0, 0)}}``.
        skip_unsuitable: Put instruments that cannot measure the model under ``refused``, with the
            reason, instead of raising an error. By default so when no ``names`` are given.
        on_batch: Called with the number of images after each batch, for a progress bar.
        layout: ``level="block"`` for one unit per residual block of convolutions; ``grid=(h, w)``
            and ``num_prefix_tokens`` where they cannot be found out.
    """
    refused: dict[str, str] = {}
    skip = names is None if skip_unsuitable is None else skip_unsuitable
    there = streaming_instruments()
    chosen = list(there) if names is None else list(names)
    images, batches = first_images(batches, model)
    structure = ModelStructure(model, images, **layout)
    instruments: dict[str, StreamingInstrument] = {}
    for name in chosen:
        if name not in there:
            raise unknown("instrument", name, there)
        try:
            instruments[name] = there[name](structure, **(options or {}).get(name, {}))
        except UserError as error:
            if not skip:
                raise
            refused[name] = str(error)
    noted = refused if skip else None
    results = one_pass(structure, batches, instruments, refused=noted, on_batch=on_batch)
    return Together(results, refused)
