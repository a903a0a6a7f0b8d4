"""Logit lens and layer-wise probe: what does each layer already know?

Two readings of the residual stream after unit u, on labelled images:

* **lens** (nostalgebraist 2020, "logit lens"): the model's own answer if it stopped there. All
  later units on a residual branch are left out of their sums, so that the stream after u reaches
  the last norm and the classifier as it is. What is no branch (patch merging, a projected shortcut)
  stays.
* **probe** (Alain and Bengio 2016, https://arxiv.org/abs/1610.01644): a linear classifier on the
  frozen features after u, cross-validated over the images: standardised means over the patches and
  each prefix token, logistic regression.

The lens tells in which layer the answer is written in the classifier's own terms; the probe whether
it is there in any linear form. A probe far above the lens means that later layers only translate.
With few images for many classes both are low: compare them with the network's own accuracy.

The lens needs one pass over the images for each unit. One residual block of convolutions is one
unit. Accuracies are fractions, 0 to 1.

Shapes: N images, U units.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.ablation.lesion import correct
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.streaming.batches import labelled_in
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.settings import Seed, checked

__all__ = ["Lens", "lens"]

FOLDS = 5
FEWEST = 2 * FOLDS  # images of a class, below which it is left out of the probe


@dataclass(frozen=True, kw_only=True)
class Lens(InstrumentResult, kind="lens", rows="units"):
    """Accuracy after each unit, by the model's own classifier and by a linear probe."""

    kind: Mapping[str, str]
    stage: Mapping[str, int]
    lens: Mapping[str, float]  # without all later branches
    probe: Mapping[str, float]  # cross-validated; empty where there are too few images
    intact: float
    folds: int
    num_images: int
    num_probed: int  # images of classes with enough of them
    seed: int = 0
    left_out: Mapping[str, str] = field(default_factory=dict)  # reading -> why
    correct: np.ndarray | None = per_image(np.uint8)  # intact, then by the lens. (1 + U, N)

    def summary(self) -> dict[str, Any]:
        """Return the first unit after which the lens is within a tenth of the whole network."""
        enough = 0.9 * self.intact
        return {"known_after": next((u for u, a in self.lens.items() if a >= enough), None)}


@checked
def lens(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    units: str | Iterable[str] = "*",
    seed: Seed = 0,
    on_unit: Callable[[str, int], None] = lambda name, ahead: None,
) -> Lens:
    """Read every unit of ``model`` by its own classifier and by a linear probe.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels), kept in memory: every unit needs a pass over them.
        units: Wildcards for the units to read after.
        seed: Of the folds.
        on_unit: Called before each unit's pass with its name and the number of passes ahead.
    """
    pairs = labelled_in(batches, model)
    structure = ModelStructure(model, pairs[0][0], level="block")
    body = [unit for unit in structure.units if unit.kind not in ("stem", "head")]
    branches = [unit.name for unit in body if _can_be_left_out(structure, unit)]
    wanted = {unit.name for unit in structure.chosen_units(units)}
    read = [unit for unit in body if unit.name in wanted]
    if not read or not branches:
        raise UserError(
            f"the lens leaves units out that stand next to a shortcut; {type(model).__name__} has "
            "none that match"
        )
    order = [unit.name for unit in body]
    right: dict[str, np.ndarray] = {}
    for done, unit in enumerate(read):
        on_unit(unit.name, len(read) + 2 - done)
        later = [name for name in branches if order.index(name) > order.index(unit.name)]
        with capture.without(model, structure.units, later):
            right[unit.name] = correct(model, pairs)
    on_unit("", 2)
    intact = correct(model, pairs)
    on_unit("probe", 1)
    labels = np.concatenate([_classes(answer) for _, answer in pairs])
    chosen = _of_large_classes(labels)
    probes, left_out = {}, {}
    if len(np.unique(labels[chosen])) < 2:
        left_out["probe"] = (
            f"a probe needs two classes of {FEWEST} images or more; give more --images"
        )
    else:
        features = _features(model, structure, [unit.name for unit in read], pairs)
        probes = {
            name: _probed(each[chosen], labels[chosen], seed) for name, each in features.items()
        }
    return Lens(
        kind={unit.name: unit.kind for unit in read},
        stage={unit.name: unit.stage for unit in read},
        lens={name: float(hits.mean()) for name, hits in right.items()},
        probe=probes,
        intact=float(intact.mean()),
        folds=FOLDS,
        num_images=len(intact),
        num_probed=len(chosen) if probes else 0,
        seed=seed,
        left_out=left_out,
        correct=np.stack([intact, *right.values()]),
    )


def _can_be_left_out(structure: ModelStructure, unit: capture.Unit) -> bool:
    """Return whether the network runs without a unit: its branch, or a block of one shape."""
    if unit.kind == "subsampling":
        return False
    try:
        with (
            capture.evaluating(structure.model),
            capture.without(structure.model, structure.units, unit.name),
        ):
            structure.model(structure.images)
    except UserError:
        return False
    return True


def _classes(labels: Tensor) -> np.ndarray:
    """The class of each image; soft labels stand for their largest."""
    return (labels.argmax(1) if labels.ndim == 2 else labels).cpu().numpy()


def _of_large_classes(labels: np.ndarray) -> np.ndarray:
    """Positions of the images whose class has enough of them.

    >>> _of_large_classes(np.array([0] * 10 + [1] * 3)).tolist() == list(range(10))
    True
    """
    names, counts = np.unique(labels, return_counts=True)
    return np.flatnonzero(np.isin(labels, names[counts >= FEWEST]))


def _features(
    model: nn.Module,
    structure: ModelStructure,
    names: list[str],
    pairs: list[tuple[Tensor, Tensor]],
) -> dict[str, np.ndarray]:
    """The stream after each unit as one vector an image. name -> (N, D)"""
    units = {unit.name: unit for unit in structure.units}
    batches: dict[str, list[Tensor]] = {name: [] for name in names}

    def keep(name: str, tensor: Tensor) -> None:
        batches[name].append(_pooled(units[name], tensor))

    with capture.evaluating(model):
        for images, _ in pairs:
            with capture.streams(model, structure.units, names, reduce=keep):
                model(images)
    return {name: torch.cat(parts).cpu().numpy() for name, parts in batches.items()}


def _pooled(unit: capture.Unit, tensor: Tensor) -> Tensor:
    """Mean over the patches, and the prefix tokens next to it. (B, (1 + prefix) C)"""
    if unit.grid is None:
        return tensor.float().flatten(1)
    mean = unit.as_image(tensor).float().mean((2, 3))
    if unit.layout != "NLC" or not unit.num_prefix_tokens:
        return mean
    return torch.cat([mean, tensor[:, : unit.num_prefix_tokens].float().flatten(1)], dim=1)


def _probed(features: np.ndarray, labels: np.ndarray, seed: int) -> float:
    """Cross-validated accuracy of a linear classifier."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return float(cross_val_score(classifier, features, labels, cv=folds).mean())
