"""How good a model is on labelled images: top-1, top-5, NLL and calibration.

    NLL = -1/N sum_i log p_i[y_i]

and the ECE over 15 bins of confidence (:mod:`vitascope.reliability`). A model that always says 1.0
and is right half the time has ECE 0.5. Accuracies are shares in [0, 1]. Everything is a sum over
images, so processes that hold disjoint parts add theirs up exactly.

With ``label_sets`` (ImageNet-ReaL) a prediction is a hit if it is among the image's labels, images
without any are left out, and the NLL, which needs one label, is None.

Shapes: b images, K classes.
"""

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.capture import evaluating, logits_of
from vitascope.data import Batch
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.reliability import NUM_BINS, bin_sums, reliability
from vitascope.training.predictions import Collector, Predictions

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result, with what a reliability diagram needs."""

    top1: float  # share in [0, 1]
    top5: float | None  # None for fewer than 5 classes (it would be 1)
    nll: float | None
    ece: float
    num_images: int
    num_left_out: int  # images without a valid label
    bin_count: tuple[int, ...]  # (15,)
    bin_confidence: tuple[float, ...]  # mean in each bin, 0 where it is empty
    bin_accuracy: tuple[float, ...]
    predictions: Predictions | None = field(default=None, compare=False, repr=False)

    @property
    def error(self) -> float:
        """Share of images that were got wrong."""
        return 1.0 - self.top1

    def to_record(self, **config: Any) -> Record:
        """The numbers as values, the bins and the predictions as arrays."""
        numbers = asdict(replace(self, predictions=None))
        del numbers["predictions"]
        values = {k: v for k, v in numbers.items() if not k.startswith("bin_")}
        arrays = {k: np.asarray(v) for k, v in numbers.items() if k.startswith("bin_")}
        if self.predictions is not None:
            arrays |= self.predictions.arrays
        return Record(kind="evaluation", values=values, arrays=arrays, config=config)


def batch_sums(logits: Tensor, labels: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Images, hits, hits in five, NLL and the bins, as one row of sums on the CPU. (4 + 3 * 15,)

    Args:
        logits: (b, K)
        labels: (b,), used unless there is ``allowed``
        allowed: Classes that count as a hit. (b, K) bool
    """
    logits = logits.cpu() if logits.device.type == "mps" else logits  # no float64 there
    log_p = F.log_softmax(logits.double(), dim=-1)
    ranked = log_p.topk(min(5, logits.shape[-1]), dim=-1).indices
    labels = labels.to(log_p.device)
    if allowed is None:
        hits = (ranked == labels[:, None]).double()
        nll = F.nll_loss(log_p, labels, reduction="sum")
    else:
        hits = allowed.to(log_p.device).gather(1, ranked).double()
        nll = log_p.new_tensor(float("nan"))
    confidence = log_p.amax(dim=-1).exp().clamp(max=1.0)
    bins = bin_sums(confidence.cpu().numpy(), hits[:, 0].cpu().numpy())
    counts = torch.stack([hits.new_tensor(len(hits)), hits[:, 0].sum(), hits.amax(1).sum(), nll])
    return torch.cat([counts.cpu(), torch.from_numpy(bins).flatten()])


def evaluate(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    class_map: Sequence[int] | np.ndarray | None = None,
    label_sets: Sequence[AbstractSet[int]] | None = None,
    combine: Callable[[Tensor], Tensor] | None = None,
    rounds: int | None = None,
) -> Evaluation:
    """Measure ``model`` on ``batches``; it is left in the mode it came in.

    Args:
        model: Any classifier.
        batches: Of :class:`~vitascope.data.Batch`; several processes give disjoint parts.
        class_map: Column of each class of the images among the model's outputs (ImageNet-A).
        label_sets: Per image of the set, the labels that count as a hit (ImageNet-ReaL).
        combine: Adds a tensor up over processes.
        rounds: Forward passes every process makes, for sharded models that compute together.
    """
    device = next(model.parameters()).device
    total = torch.zeros(4 + 3 * NUM_BINS, dtype=torch.float64)
    left_out, num_classes, done, images = 0, 0, 0, None
    collected = Collector()
    with evaluating(model):
        for batch in batches:
            images = batch.images.to(device, non_blocking=True)
            logits = logits_of(model(images))
            done += 1
            if class_map is not None:
                logits = logits[:, torch.as_tensor(np.asarray(class_map), device=logits.device)]
            num_classes = logits.shape[-1]
            if len(batch.labels) and int(batch.labels.max()) >= num_classes:
                raise UserError(
                    f"the images have label {int(batch.labels.max())} but the model only "
                    f"{num_classes} outputs; give a model for these classes, or a class map"
                )
            allowed = None
            if label_sets is not None:
                allowed, usable = _allowed(label_sets, batch.indices, num_classes)
                left_out += int((~usable).sum())
                logits, allowed = logits[usable.to(logits.device)], allowed[usable]
                total += batch_sums(logits, batch.labels[usable], allowed)
            else:
                total += batch_sums(logits, batch.labels)
                collected.add(logits, batch.labels, batch.indices)
        for _ in range(done, rounds or 0):
            if images is not None:
                model(images)
    together = None
    if combine is not None:

        def together(tensor: Tensor) -> Tensor:
            return combine(tensor.to(device)).cpu()

        sums = together(torch.cat([total, total.new_tensor([left_out])]))
        total, left_out = sums[:-1], int(sums[-1])
    result = _result(total, left_out, num_classes)
    if label_sets is not None:
        return result  # there is no one true label
    return replace(result, predictions=collected.joined(num_classes, result.num_images, together))


def _allowed(
    label_sets: Sequence[AbstractSet[int]], indices: Tensor, num_classes: int
) -> tuple[Tensor, Tensor]:
    allowed = torch.zeros(len(indices), num_classes, dtype=torch.bool)
    for row, index in enumerate(indices.tolist()):
        allowed[row, sorted(label_sets[index])] = True
    return allowed, allowed.any(dim=1)


def _result(total: Tensor, left_out: int, num_classes: int) -> Evaluation:
    images, hits, hits5, nll = total[:4].tolist()
    if images == 0:
        raise UserError("no images to evaluate on")
    return Evaluation(
        top1=hits / images,
        top5=hits5 / images if num_classes >= 5 else None,
        nll=nll / images if nll == nll else None,
        num_images=int(images),
        num_left_out=left_out,
        **reliability(total[4:].view(3, NUM_BINS).numpy()),
    )
