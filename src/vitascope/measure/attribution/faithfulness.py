"""Is a relevance map faithful? Deletion and insertion curves, against a random order.

Petsiuk et al. 2018 (RISE, https://arxiv.org/abs/1806.07421): the places of the image are hidden,
most relevant first, and the probability of the class is followed (deletion: low is good); or they
are shown on an empty image, most relevant first (insertion: high is good). Each curve has one
number, the area below it. A map proves something only where it beats a random order of the same
places on the same image:

    gain_del = AUC_del(random) - AUC_del(map),      gain_ins = AUC_ins(map) - AUC_ins(random)

Both are differences within an image, so their mean has a standard error over images.

Because a network may react to the grey places themselves, there is a third curve, ``road``:
deletion in which the hidden places are filled in from what surrounds them
(:mod:`vitascope.measure.attribution.road`).

Deviations: places are cells of the map's own grid, not pixels; hidden ones are 0 after
normalisation, the mean of the images, in both curves (the paper blurs for insertion).

Shapes: B images, h x w places, S shares of the places.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.measure.attribution.road import imputed

SHARES = tuple(step / 10 for step in range(11))  # of the places that are hidden or shown
ROAD_SHARES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)  # something must be left to fill in from


def ranks(relevance: Tensor) -> Tensor:
    """Place of each cell in the order of relevance, 0 for the most relevant. (B, h, w)

    >>> ranks(torch.tensor([[[0.1, 0.7], [0.2, 0.0]]])).tolist()
    [[[2, 0], [1, 3]]]
    """
    flat = relevance.flatten(1)
    order = flat.sort(dim=1, descending=True, stable=True).indices
    return order.argsort(1).view_as(relevance)


def curves(
    model: nn.Module,
    images: Tensor,
    classes: Tensor,
    order: Tensor,
    shares: Sequence[float] = SHARES,
) -> tuple[Tensor, Tensor]:
    """Probability of each image's class along deletion and insertion. (B, S), (B, S)

    Args:
        model: Any classifier, in eval mode.
        images: Normalised. (B, C, H, W)
        classes: (B,)
        order: Of the places, 0 first. (B, h, w)
        shares: Of the places, from 0 to 1.
    """
    count = order[0].numel()
    both: tuple[list[Tensor], list[Tensor]] = ([], [])
    for share in shares:
        taken = (order < round(share * count)).unsqueeze(1).to(images)  # (B, 1, h, w)
        mask = nn.functional.interpolate(taken, size=images.shape[-2:], mode="nearest")
        for changed, out in zip((images * (1 - mask), images * mask), both, strict=True):
            out.append(probability(model, changed, classes))
    deletion, insertion = (torch.stack(values, 1) for values in both)
    return deletion, insertion


def road_curve(
    model: nn.Module, images: Tensor, classes: Tensor, order: Tensor, noise: Tensor
) -> Tensor:
    """Probability of each image's class while places are hidden and filled in. (B, S)

    Args:
        model: Any classifier, in eval mode.
        images: Normalised. (B, C, H, W)
        classes: (B,)
        order: Of the places, 0 first. (B, h, w)
        noise: Standard normal numbers. (B, H, W)
    """
    count = order[0].numel()
    changed = (imputed(images, order < round(share * count), noise) for share in ROAD_SHARES)
    return torch.stack([probability(model, batch, classes) for batch in changed], 1)


def probability(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    """Probability of each image's class. (B,)"""
    logits = capture.logits_of(model(images))
    return logits.double().softmax(1).gather(1, classes[:, None])[:, 0]
