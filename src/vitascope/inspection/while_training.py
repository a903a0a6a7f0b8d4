"""Pictures of the heads of a model while it trains: maps of a patch, gates, nonlocality.

The instruments are those of `vitascope inspect`, on a few test images that are the same in every
run on these data; how their records become pictures is the caller's, since drawing is `report`'s.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from vitascope import capture, measure
from vitascope.data import Dataset, EvalBatches
from vitascope.record import Record
from vitascope.training.observe import Observer, Pictures, at_epochs, log_spaced, restoring_state

Draw = Callable[[Mapping[str, Record], str], Pictures]  # records by instrument, words for them
NUM_IMAGES = 8
NUM_PICTURES = 10  # epochs with pictures, the first weights among them


def head_records(model: nn.Module, images: Tensor) -> dict[str, Record]:
    """Return what the heads look at on these images, by instrument; gates of gated models alone.

    Raises:
        UserError: If the model has no attention that can be measured.
    """
    results = measure.together(model, images, ("maps", "nonlocality")).results
    records = {name: result.to_record() for name, result in results.items()}
    gated = {"gates": measure.gates(model).to_record()} if capture.gated_layers(model) else {}
    return records | gated


def picture_heads(model: nn.Module, dataset: Dataset, epochs: int, draw: Draw) -> Observer:
    """An observer that returns pictures at about ten epochs of ``epochs``, at equal ratios.

    Raises:
        UserError: If there would be nothing to draw.
    """
    chosen = np.random.default_rng(0).permutation(len(dataset.test))[:NUM_IMAGES]
    few = dataset.test.take(np.sort(chosen))
    batches = EvalBatches(few, batch_size=NUM_IMAGES, mean=dataset.mean, std=dataset.std)
    images = next(iter(batches)).images
    with restoring_state(model):
        head_records(model, images)

    def observe(epoch: int, step: int, model: nn.Module, run_folder: Path) -> Pictures:
        return draw(head_records(model, images), f"epoch {epoch}")

    return at_epochs(log_spaced(epochs, NUM_PICTURES), observe)
