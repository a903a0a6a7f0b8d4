"""Several instruments in one pass: units are found once, each batch runs once.

``together(model, batches)`` gives exactly what the single functions give.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from vitascope.errors import UserError, unknown
from vitascope.measure.streaming.batches import first_images
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.measure.streaming.one_pass import STREAMING, StreamingInstrument, one_pass

__all__ = ["Together", "together"]


@dataclass(frozen=True)
class Together:
    """Results by instrument, and the instruments that refused the model."""

    results: Mapping[str, Any]
    refused: Mapping[str, str]  # instrument -> why


def together(
    model: nn.Module,
    batches: Iterable[Any],
    names: Iterable[str] | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    on_batch: Callable[[int], None] | None = None,
    **known: Any,
) -> Together:
    """Run instruments on ``model`` in one pass over ``batches``.

    Args:
        model: Any vision model; it is left as it came.
        batches: Images (B, C, height, width), all of one size, or (images, labels).
        names: Some of the instruments; those that cannot measure the model are an error. By
            default all, and those that cannot are named under ``refused``.
        options: Arguments by instrument: ``{"maps": {"query": (0, 0)}}``.
        on_batch: Called with the number of images after each batch, for a progress bar.
        known: ``grid=(h, w)`` and ``num_prefix_tokens`` where they cannot be found out.
    """
    refused: dict[str, str] = {}
    chosen = list(STREAMING) if names is None else list(names)
    images, batches = first_images(batches, model)
    structure = ModelStructure(model, images, **known)
    instruments: dict[str, StreamingInstrument] = {}
    for name in chosen:
        if name not in STREAMING:
            raise unknown("instrument", name, STREAMING)
        try:
            instruments[name] = STREAMING[name](structure, **(options or {}).get(name, {}))
        except UserError as error:
            if names is not None:
                raise
            refused[name] = str(error)
    noted = refused if names is None else None
    results = one_pass(structure, batches, instruments, refused=noted, on_batch=on_batch)
    return Together(results, refused)
