"""What frozen features know of the classes: nearest neighbours and a linear classifier.

- *k-NN*: the k training images of highest cosine similarity vote, each with the inverse of its
  distance; k is 5 or 20.
- *linear*: logistic regression on standardised features, its inverse penalty C among 10^-4 … 1.

k and C are those that are right most often in an inner cross-validation of the training images
(three folds, class by class; images of a group stay together), never by the test images. Both
classifiers are scikit-learn's. Each seed trains on its own 90 % of each class, or of the groups:
with one training set there is no telling how much the answer owes to it. Shares are means over
seeds.

Scores of transferability (LogME and its kin) are left out on purpose: nearest neighbours on frozen
features predict the order after fine-tuning better.

Shapes: N training images, M test images, D features, S seeds.

Features are computed once for given weights and image content. A network without its head gives,
for one image,

    tokens with a class token   [c / |c|, m / |m|], c the class token, m the mean of the patches
    anything else of timm's     its own pooled features (``forward_head(…, pre_logits=True)``)
    any other network           what goes into its last linear layer

Features are kept in ``FOLDER/<weights>.safetensors`` under the hash of each image's pixels, as the
model gets them. The name has a hash of every weight and of the preprocessing: other weights,
another size, mean or crop have another file, and a changed image another row. Nothing is found by a
name or a date.

Shapes: N images, D features, T tokens.
"""

import hashlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.atomic import replacing
from vitascope.capture import evaluating
from vitascope.data.images import ImageSet
from vitascope.data.subsets import split
from vitascope.errors import UserError
from vitascope.loading.model import OpenedModel
from vitascope.training.predictions import Predictions

KS = (5, 20)

CS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)

INNER = 3  # folds

LEFT_OUT = 0.1  # of each class, by each seed


@dataclass(frozen=True, kw_only=True)
class Probed:
    """Correct predictions of a probe, and its settings."""

    knn: np.ndarray  # (S, M) bool
    linear: np.ndarray  # (S, M) bool
    k: int
    c: float
    inner: dict[str, float]  # share in the inner cross-validation: "5", "20", "0.01", …
    first: Predictions  # of the linear classifier with the first seed

    @property
    def shares(self) -> dict[str, float]:
        """Accuracies in [0, 1]."""
        return {"knn": float(self.knn.mean()), "linear": float(self.linear.mean())}


def neighbours(k: int, count: int) -> KNeighborsClassifier:
    """The nearest of ``count`` images by cosine."""
    return KNeighborsClassifier(min(k, count), metric="cosine", weights="distance")


def linear(c: float) -> Pipeline:
    """Logistic regression on standardised features."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=500, tol=1e-3))


def fitted(features: np.ndarray, labels: np.ndarray, groups: np.ndarray | None = None) -> Pipeline:
    """Logistic regression with its C chosen by the inner cross-validation, on all images."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")
        inner = _inner(features, labels, groups, ks=())
        return linear(_best_c(inner)).fit(features, labels)


def _best_c(inner: Mapping[str, float]) -> float:
    return max(CS, key=lambda each: (inner[f"{each:g}"], -each))


def probe(
    train: np.ndarray,
    train_labels: np.ndarray,
    test: np.ndarray,
    test_labels: np.ndarray,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    groups: np.ndarray | None = None,
) -> Probed:
    """Both classifiers on features.

    Args:
        train: (N, D)
        train_labels: (N,)
        test: (M, D)
        test_labels: (M,)
        seeds: One training set each.
        groups: Of the training images, which stay together in the inner cross-validation and in
            what a seed leaves out. (N,)

    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(60) % 2
    >>> features = rng.normal(size=(60, 4)) + 9 * np.eye(4)[labels]
    >>> probe(features[:40], labels[:40], features[40:], labels[40:]).shares
    {'knn': 1.0, 'linear': 1.0}
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class")
        inner = _inner(train, train_labels, groups)
        k = max(KS, key=lambda each: (inner[f"{each}"], -each))
        c = _best_c(inner)
        nearest: list[np.ndarray] = []
        straight: list[np.ndarray] = []
        predictions: list[Predictions] = []
        for seed in seeds:
            folds = _kept(train_labels, seed, groups)
            features, labels = train[folds], train_labels[folds]
            if len(np.unique(labels)) == 1:  # nothing to tell apart
                shares = np.ones((len(test_labels), 1))
                nearest.append(test_labels == labels[0])
                predictions.append(_said(shares, labels[:1], test_labels))
            else:
                near, line = neighbours(k, len(folds)), linear(c).fit(features, labels)
                nearest.append(near.fit(features, labels).predict(test) == test_labels)
                predictions.append(_said(line.predict_proba(test), line.classes_, test_labels))
            straight.append(predictions[-1].correct)
    return Probed(
        knn=np.stack(nearest),
        linear=np.stack(straight),
        k=k,
        c=c,
        inner=inner,
        first=predictions[0],
    )


def _said(shares: np.ndarray, classes: np.ndarray, labels: np.ndarray) -> Predictions:
    """Predictions from the probabilities (M, K) of these classes (K,)."""
    true = np.where(labels[:, None] == classes, shares, 0.0).sum(1)  # 0 for a class not trained on
    return Predictions(
        predicted=classes[shares.argmax(1)],
        probability=true.astype(np.float32),
        label=labels,
        confidence=shares.max(1).astype(np.float32),
    )


def _kept(labels: np.ndarray, seed: int, groups: np.ndarray | None) -> np.ndarray:
    """Positions of the training images of one seed; of few groups one is left out."""
    count = None if groups is None else len(np.unique(groups))
    if count == 1:
        return np.arange(len(labels))
    return split(labels, LEFT_OUT if count is None else max(LEFT_OUT, 1 / count), seed, groups)[0]


def _inner(
    features: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray | None,
    ks: Sequence[int] = KS,
) -> dict[str, float]:
    """The share that each setting gets right, by its name."""
    right = {f"{setting:g}": 0.0 for setting in (*ks, *CS)}
    most = int(np.bincount(labels).max())
    folds = min(INNER, most, len(labels) if groups is None else len(np.unique(groups)))
    if folds < 2:
        return right
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    parts = kind(folds, shuffle=True, random_state=0).split(features, labels, groups)
    for inside, outside in parts:
        if len(np.unique(labels[inside])) < 2:
            continue
        models = [(f"{k}", neighbours(k, len(inside))) for k in ks]
        models += [(f"{c:g}", linear(c)) for c in CS]
        for name, model in models:
            predicted = model.fit(features[inside], labels[inside]).predict(features[outside])
            right[name] += float((predicted == labels[outside]).sum()) / len(labels)
    return right


BATCH = 8  # with channels last, more at a time is slower on a CPU

BYTES = 16  # of an image's hash

VERSION = "1"  # of how features are taken; part of the name of the file


def features_of(model: nn.Module, images: Tensor) -> Tensor:
    """The features of normalised images. (B, D)"""
    forward = getattr(model, "forward_features", None)
    head = getattr(model, "forward_head", None)
    if not callable(forward) or not callable(head):
        return into_last_linear(model, images)[1]
    outputs = forward(images)
    prefix = int(getattr(model, "num_prefix_tokens", 0) or 0)
    if outputs.ndim == 3 and prefix:
        parts = (outputs[:, 0], outputs[:, prefix:].mean(dim=1))
        return torch.cat([F.normalize(part, dim=-1) for part in parts], dim=-1)
    return head(outputs, pre_logits=True).flatten(1)


def into_last_linear(model: nn.Module, images: Tensor) -> tuple[nn.Linear, Tensor]:
    """The last linear layer that was computed, and what went into it. (B, D)"""
    seen: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        layer.register_forward_pre_hook(lambda one, inputs: seen.append((one, inputs[0])))
        for layer in model.modules()
        if isinstance(layer, nn.Linear)
    ]
    try:
        model(images)
    finally:
        for hook in hooks:
            hook.remove()
    if not seen or len(seen[-1][1]) != len(images):
        raise UserError("the model has no linear head whose input could be its features")
    layer, entering = seen[-1]
    return layer, entering.flatten(1)


def frozen_features(
    opened: OpenedModel,
    images: ImageSet,
    folder: Path,
    *,
    on_step: Callable[[int], None] = lambda count: None,
) -> np.ndarray:
    """The features of all images, from the cache where they are there. (N, D) float32

    Args:
        opened: The model.
        images: As its preprocessing loads them.
        folder: Of the cache.
        on_step: Told how many more images are done.
    """
    path = folder / f"{opened.weights_key}-{VERSION}.safetensors"
    cached, rows = _read(path)
    row_of = {bytes(key): row for row, key in enumerate(cached)}
    wanted: list[bytes] = []
    fresh: dict[bytes, np.ndarray] = {}
    normalize = opened.preprocessing.normalize
    device = next(opened.model.parameters()).device
    opened.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with evaluating(opened.model):
        for start in range(0, len(images), BATCH):
            pixels = images.pixels(np.arange(start, min(start + BATCH, len(images))))
            keys = [_key(image) for image in pixels]
            new = [i for i, key in enumerate(keys) if key not in row_of and key not in fresh]
            if new:
                batch = normalize(pixels[new]).to(device, memory_format=torch.channels_last)
                values = features_of(opened.model, batch)
                made = values.float().cpu().numpy()
                fresh |= {keys[i]: row for i, row in zip(new, made, strict=True)}
            wanted += keys
            on_step(len(keys))
    if fresh:
        cached = np.concatenate([cached, np.array([list(key) for key in fresh], dtype=np.uint8)])
        made = np.stack(list(fresh.values()))
        rows = made if rows is None else np.concatenate([rows, made])
        with replacing(path) as temporary:
            save_file({"images": cached, "features": np.ascontiguousarray(rows)}, temporary)
        row_of = {bytes(key): row for row, key in enumerate(cached)}
    assert rows is not None
    result = rows[[row_of[key] for key in wanted]]
    if not np.isfinite(result).all():
        raise UserError(f"{opened.name} gives features that are not finite for these images")
    return result


def kept_features(opened: OpenedModel, images: ImageSet, folder: Path) -> np.ndarray | None:
    """The features of all images, if :func:`frozen_features` has kept them there. (N, D)"""
    path = folder / f"{opened.weights_key}-{VERSION}.safetensors"
    cached, rows = _read(path) if path.is_file() else (np.zeros((0, BYTES)), None)
    row_of = {bytes(key): row for row, key in enumerate(cached)}
    wanted: list[int] = []
    for start in range(0, len(images) if rows is not None else 0, BATCH):
        pixels = images.pixels(np.arange(start, min(start + BATCH, len(images))))
        row_numbers = [row_of.get(_key(image)) for image in pixels]
        if None in row_numbers:
            return None
        wanted += [row for row in row_numbers if row is not None]
    return None if rows is None else rows[wanted]


def _key(image: Tensor) -> bytes:
    """A hash of an image's pixels and shape."""
    digest = hashlib.blake2b(str(tuple(image.shape)).encode(), digest_size=BYTES)
    digest.update(image.contiguous().numpy().tobytes())
    return digest.digest()


def _read(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Keys and features of a cache; nothing where there is none, or it is damaged."""
    nothing = np.zeros((0, BYTES), dtype=np.uint8), None
    try:
        held = load_file(path)
        keys, rows = held["images"], held["features"]
    except (OSError, SafetensorError, KeyError):
        return nothing
    whole = keys.ndim == rows.ndim == 2 and len(keys) == len(rows) and keys.shape[1] == BYTES
    return (keys, rows) if whole else nothing
