"""Read batches of any form: image tensors, (images, labels) pairs, or objects with both."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.capture.input_check import require_weights
from vitascope.errors import UserError


def split(batch: Any) -> tuple[Tensor, Tensor | None]:
    """Images and, where there are any, labels.

    >>> import torch
    >>> images, labels = split((torch.zeros(2, 3, 8, 8), torch.tensor([0, 1])))
    >>> images.shape[0], labels.tolist()
    (2, [0, 1])
    """
    if isinstance(batch, Tensor):
        return batch, None
    if hasattr(batch, "images"):
        return batch.images, getattr(batch, "labels", None)
    if isinstance(batch, (tuple, list)) and batch and isinstance(batch[0], Tensor):
        return batch[0], batch[1] if len(batch) > 1 else None
    if isinstance(batch, dict) and "pixel_values" in batch:
        return batch["pixel_values"], batch.get("labels")
    raise UserError(
        f"a batch must be images, (images, labels) or have .images, got {type(batch).__name__}"
    )


def each_batch(batches: Any) -> Iterable[Any]:
    """Return the batches one by one; a tensor (B, C, H, W) is one batch."""
    if isinstance(batches, Tensor):
        if batches.ndim not in (4, 5):
            raise UserError(f"images have the shape (B, C, H, W), not {tuple(batches.shape)}")
        return [batches] if batches.ndim == 4 else batches
    if not isinstance(batches, Iterable) or isinstance(batches, str | bytes):
        raise UserError(
            "give images as a tensor (B, C, H, W), or as batches such as a DataLoader yields, not "
            f"{batches!r:.80}"
        )
    return batches


def images_in(batches: Iterable[Any], model: nn.Module | None = None) -> Iterator[Tensor]:
    """The images of each batch, on the model's device; no batch is an error."""
    empty = True
    for batch in each_batch(batches):
        empty = False
        yield on_device(split(batch)[0], model)
    if empty:
        raise UserError("no images to measure on: the batches are empty")


def labelled_in(
    batches: Iterable[Any], model: nn.Module | None = None
) -> list[tuple[Tensor, Tensor]]:
    """Images with labels, kept for several passes."""
    pairs = []
    for batch in each_batch(batches):
        images, labels = split(batch)
        if labels is None:
            raise UserError("accuracy needs labels: give batches of (images, labels)")
        pairs.append((on_device(images, model), on_device(labels, model)))
    if not pairs:
        raise UserError("no images to measure on: the batches are empty")
    return pairs


def first_images(
    batches: Iterable[Any], model: nn.Module | None = None
) -> tuple[Tensor, Iterable[Any]]:
    """The first batch's images, and all batches again."""
    iterator = iter(each_batch(batches))
    first = next(iterator, None)
    if first is None:
        raise UserError("no images to measure on: the batches are empty")

    def again() -> Iterator[Any]:
        yield first
        yield from iterator

    return on_device(split(first)[0], model), again()


def normal_tensor(tensor: Tensor) -> Tensor:
    """The tensor, or a copy where it was made in inference mode: those have no derivatives."""
    with torch.inference_mode(False):
        return tensor.clone() if tensor.is_inference() else tensor


def on_device(tensor: Tensor, model: nn.Module | None) -> Tensor:
    """The tensor on the model's device, as one that has derivatives.

    Raises:
        UserError: For what is no model, and for images with NaN or infinity.
    """
    if model is not None:
        require_weights(model)
    if not bool(torch.isfinite(tensor).all()):
        raise UserError("the images have pixels that are NaN or infinite; leave those images out")
    parameter = next(model.parameters(), None) if model is not None else None
    return normal_tensor(tensor if parameter is None else tensor.to(parameter.device))
