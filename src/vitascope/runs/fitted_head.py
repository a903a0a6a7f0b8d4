"""A new head that begins as logistic regression on the frozen features.

A random head sends large, random gradients back and spoils good features before it knows anything;
with few images they never recover. So the head is fitted first, on what goes into it, and only then
is anything trained on: linear probing, then fine-tuning (Kumar et al. 2022,
https://arxiv.org/abs/2202.10054). Fitted alone it is the recipe ``linear``.

On features x with mean m and standard deviation s, logistic regression gives V (x - m) / s + a; as
a linear layer that is W = V / s, b = a - W m. Of two classes V is one row v: W is -v/2 and v/2.

Shapes: N images, D features, K classes.
"""

from dataclasses import replace

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import nn

from vitascope.capture import evaluating
from vitascope.data.images import ImageSet
from vitascope.errors import UserError
from vitascope.inspection.probe import BATCH, fitted, into_last_linear
from vitascope.loading.model import OpenedModel

NEVER = -30.0  # logit of a class that none of the images have


def fit_head(opened: OpenedModel, images: ImageSet, known: np.ndarray | None = None) -> OpenedModel:
    """Give the new head of a model the weights of a logistic regression; changed in place.

    Args:
        opened: With a new head (:meth:`OpenedModel.for_classes`); a head that was kept stays.
        images: To fit it on, as the model's preprocessing loads them.
        known: Features of these images by the same weights, which are used if they are what goes
            into the new head, by the first few. (N, D)

    Raises:
        UserError: If the model does not end in a linear layer with a bias and an output for each
            class, or features are not finite.
    """
    if not opened.new:
        return opened
    parts = []
    normalize, layer = opened.preprocessing.normalize, nn.Linear(1, 1)
    device = next(opened.model.parameters()).device
    with evaluating(opened.model):
        for start in range(0, len(images), BATCH):
            pixels = images.pixels(np.arange(start, min(start + BATCH, len(images))))
            layer, into = into_last_linear(opened.model, normalize(pixels).to(device))
            parts.append(into.float().cpu().numpy())
            if start == 0 and known is not None and _same(parts[0], known[: len(into)]):
                parts = [known]
                break
    features, labels = np.concatenate(parts), images.labels
    if layer.bias is None or layer.out_features <= labels.max():
        raise UserError(
            f"{opened.name} ends in {layer}, which cannot hold a logistic regression of these "
            "classes; begin with a random head: --recipe finetune --set head=random"
        )
    if not np.isfinite(features).all():
        raise UserError(f"{opened.name} gives features that are not finite for these images")
    if len(np.unique(labels)) < 2:
        return opened  # nothing to predict
    weight, bias = as_linear(fitted(features, labels, images.groups), layer.out_features)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    return replace(opened, head=f"{opened.head}, fitted to the frozen features")


def _same(first: np.ndarray, second: np.ndarray) -> bool:
    """Return whether features agree up to rounding."""
    return first.shape == second.shape and np.allclose(first, second, rtol=1e-3, atol=1e-4)


def as_linear(regression: Pipeline, num_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Weight (K, D) and bias (K,) of the linear layer that says what the regression says.

    >>> rng = np.random.default_rng(0)
    >>> x, labels = rng.normal(size=(30, 4)), np.arange(30) % 3
    >>> result = fitted(x, labels)
    >>> weight, bias = as_linear(result, 3)
    >>> bool((result.predict(x) == (x @ weight.T + bias).argmax(1)).all())
    True
    """
    scaler, last = regression[0], regression[-1]
    weight, bias = last.coef_ / scaler.scale_, last.intercept_
    bias = bias - weight @ scaler.mean_
    if len(weight) == 1:
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    rows, shifts = np.zeros((num_classes, weight.shape[1])), np.full(num_classes, NEVER)
    rows[last.classes_], shifts[last.classes_] = weight, bias
    return rows, shifts
