"""Watch attention while any loop trains a model: PyTorch, Lightning, the Trainer of Hugging Face.

The maps of a few fixed images, and the numbers of instruments on them, are taken whenever the watch
is called. Whatever this does to modes, gradients and random generators is undone, so that a
training with a watch gives the same weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitascope import capture, measure
from vitascope.measure.streaming.batches import on_device
from vitascope.record import Record
from vitascope.settings import Count, checked
from vitascope.training.observe import restoring_state

__all__ = ["AttentionWatch"]


class AttentionWatch:
    """Attention maps of a few images, and numbers on them, as a model trains.

    Args:
        model: The network itself, not a wrapper of it; it is left unchanged.
        images: (B, C, height, width), prepared as for training. A few are enough.
        layers: Wildcards for the attention layers whose maps are kept.
        measures: Instruments that need images alone, such as ``("nonlocality", "entropy")``.
        every: Steps between two looks; the other calls return at once.
        out: Folder for the records of every look, ``step-000100/entropy.json``; none when left out.

    Attributes:
        maps: ``{step: {layer: (B, H, T, T)}}`` on the CPU, in float16.
        records: ``{step: {instrument: Record}}``.

    >>> from torch.nn import TransformerEncoder, TransformerEncoderLayer
    >>> layer = TransformerEncoderLayer(4, 2, 8, batch_first=True)
    >>> watch = AttentionWatch(TransformerEncoder(layer, 1), torch.ones(1, 3, 4), every=10)
    >>> [watch(step) for step in range(11)].count(True), list(watch.maps)
    (2, [0, 10])
    """

    @checked
    def __init__(
        self,
        model: nn.Module,
        images: Tensor,
        *,
        layers: str | Iterable[str] = "*",
        measures: Sequence[str] = (),
        every: Count = 1,
        out: str | Path | None = None,
    ):
        self.model, self.images = model, images.detach().clone()
        self.layers, self.measures, self.every = layers, tuple(measures), every
        self.out = None if out is None else Path(out)
        self.maps: dict[int, Mapping[str, Tensor]] = {}
        self.records: dict[int, Mapping[str, Record]] = {}

    def __call__(self, step: int) -> bool:
        """Look at the model if ``step`` is one of those wanted; return whether it was."""
        if step % self.every:
            return False
        images = on_device(self.images, self.model)
        kind = images.device.type
        with restoring_state(self.model), torch.autocast(kind, enabled=False), torch.no_grad():
            with capture.attention(self.model, self.layers, _kept) as maps:
                self.model(images)
            self.maps[step] = dict(maps)
            results: dict[str, Any] = {}
            if self.measures:
                results = dict(measure.together(self.model, images, self.measures).results)
        self.records[step] = {name: result.to_record() for name, result in results.items()}
        if self.out is not None:
            for name, record in self.records[step].items():
                record.save(self.out / f"step-{step:06d}" / name)
        return True


def _kept(layer: str, weights: Tensor) -> Tensor:
    """A map as it is kept."""
    return weights.detach().to("cpu", torch.float16)
