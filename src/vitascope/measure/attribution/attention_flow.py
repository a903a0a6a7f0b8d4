"""Relevance followed back through attention layers: rollout and gradient-weighted attention.

Attention rollout (Abnar & Zuidema 2020, https://arxiv.org/abs/2005.00928) mixes every layer's map,
averaged over heads, half and half with the shortcut around it:

    R = prod_l (A_l / 2 + I / 2),                A_l = mean_h A_l^h

Gradient-weighted attention (Chefer et al. 2021, https://arxiv.org/abs/2103.15679, eq. 5-6) keeps
what raises the score y of a class, head by head:

    R = prod_l (I + A_l),                        A_l = mean_h max(0, dy/dA_l^h * A_l^h)

The relevance of the image is r = u R, with u over the tokens that the head reads: the share of each
in |dy/dx| behind the last layer. That is the class token's row where the head reads the class
token, and a mean of rows where it pools patches. r is followed from the last layer to the first as
a vector, so nothing of size T x T is made but the maps themselves.

The papers have one set of tokens. Here tokens are known by their image coordinates, so that
windows (shifted or not), merged patches, pooled keys and class tokens that join late need no rule
of their own: a token that stands for several of the layer before takes their mean, and one that
joins brings nothing of the image with it. What lies between attention layers is the identity.

Shapes: B images, W windows per image, H heads, T queries, S keys, N tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vitascope.capture import TokenCoordinates
from vitascope.errors import UserError


def mean_over_heads(weights: Tensor) -> Tensor:
    """The map of rollout. (B * W, H, T, S) -> (B * W, T, S)"""
    return weights.mean(1)


def gradient_weighted(weights: Tensor, gradient: Tensor) -> Tensor:
    """The map of gradient-weighted attention: positive parts alone. -> (B * W, T, S)"""
    return (gradient * weights).clamp(min=0).mean(1)


@dataclass(frozen=True)
class TokenLink:
    """Share of each of N earlier tokens in each of M later ones. (M, N)"""

    later: Tensor  # (links,)
    earlier: Tensor  # (links,)
    weight: Tensor  # (links,)
    num_earlier: int

    @classmethod
    def between(cls, earlier: Tensor, later: Tensor) -> "TokenLink":
        """Link tokens by their coordinates; prefix tokens (NaN) by their number.

        >>> four = torch.tensor([[0.0, 0], [0, 1], [1, 0], [1, 1]])
        >>> TokenLink.between(four, torch.tensor([[0.5, 0.5]])).back(torch.ones(1, 1)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]

        Args:
            earlier: (N, 2)
            later: (M, 2)
        """
        before, after = ((~c[:, 0].isnan()).nonzero()[:, 0] for c in (earlier, later))
        prefix = [c[:, 0].isnan().nonzero()[:, 0] for c in (later, earlier)]
        common = min(map(len, prefix))
        pairs = [torch.stack([tokens[:common] for tokens in prefix])]
        if len(before) and len(after):
            distance = torch.cdist(later[after].double(), earlier[before].double())
            if len(after) <= len(before):  # merged: each earlier token is part of the nearest
                pairs.append(torch.stack([after[distance.argmin(0)], before]))
            else:
                pairs.append(torch.stack([after, before[distance.argmin(1)]]))
        of, to = torch.cat(pairs, 1)
        count = torch.bincount(of, minlength=len(later)).clamp(min=1)
        return cls(of, to, 1 / count[of].double(), len(earlier))

    def back(self, relevance: Tensor) -> Tensor:
        """Relevance of the later tokens (B, M), put on the earlier ones. (B, N)"""
        moved = relevance[:, self.later] * self.weight.to(relevance)
        out = relevance.new_zeros(len(relevance), self.num_earlier)
        return out.index_add_(1, self.earlier.to(out.device), moved)


@dataclass(frozen=True)
class _Step:
    """One attention layer between two sets of tokens; its queries come first in the later one."""

    before: Tensor  # (N, 2)
    after: Tensor  # (M, 2)
    query: Tensor  # which of the layer's W * T queries count: padding of windows does not
    key: Tensor
    key_places: Tensor  # (keys, 2)


def _steps(coordinates: Sequence[TokenCoordinates]) -> list[_Step]:
    """The tokens before and after each layer, in order of execution.

    In class attention, where only the class token is a query, the patches stay as they were.
    """
    steps: list[_Step] = []
    for tokens in coordinates:
        query, key = _counted(tokens.query), _counted(tokens.key)
        asking, seen = (c.reshape(-1, 2)[i] for c, i in ((tokens.query, query), (tokens.key, key)))
        before = steps[-1].after if steps else max(asking, seen, key=len)
        patches = before[~before[:, 0].isnan()]
        after = asking if (~asking[:, 0].isnan()).any() else torch.cat([asking, patches])
        steps.append(_Step(before, after, query, key, seen))
    return steps


def _counted(coordinates: Tensor) -> Tensor:
    """Indices of the tokens of all windows (W, T, 2) that are not padding."""
    there = torch.ones(coordinates.shape[:2], dtype=torch.bool)
    if len(coordinates) > 1:
        there = ~coordinates[..., 0].isnan()
    return there.flatten().nonzero()[:, 0]


def follow_back(
    read: Tensor,
    coordinates_read: Tensor,
    maps: Sequence[Tensor],
    coordinates: Sequence[TokenCoordinates],
    *,
    attention: float,
    shortcut: float,
) -> tuple[Tensor, Tensor]:
    """Relevance of the tokens before the first layer, and their coordinates. (B, N), (N, 2)

    Args:
        read: Relevance of the tokens behind the last layer. (B, M)
        coordinates_read: Their coordinates, NaN for prefix tokens. (M, 2)
        maps: Of each layer, in order of execution. (B * W, T, S)
        coordinates: Of each layer's queries and keys.
        attention: Weight of the map, 1/2 in rollout.
        shortcut: Weight of the identity.
    """
    steps = _steps(coordinates)
    relevance = TokenLink.between(steps[-1].after, coordinates_read).back(read)
    for step, weights, tokens in reversed(list(zip(steps, maps, coordinates, strict=True))):
        windows, num_queries = len(tokens.query), len(step.query)
        asked = relevance.new_zeros(len(relevance), windows * tokens.query.shape[1])
        asked[:, step.query] = relevance[:, :num_queries]
        rows = asked.unflatten(1, (windows, 1, -1))  # (B, W, 1, T)
        drawn = (rows @ weights.to(rows).unflatten(0, (-1, windows))).flatten(1)[:, step.key]
        seen = TokenLink.between(step.before, step.key_places).back(drawn)
        past = TokenLink.between(step.before, step.after[:num_queries])
        reached = past.back(relevance[:, :num_queries])
        waiting = relevance[:, num_queries:]  # patches that are not queries
        relevance = attention * seen + shortcut * reached
        if waiting.shape[1]:
            relevance[:, ~step.before[:, 0].isnan()] += waiting
    return relevance, steps[0].before


def on_grid(relevance: Tensor, coordinates: Tensor) -> Tensor:
    """Relevance of tokens (B, N) at their coordinates on the image. (B, h, w)

    Raises:
        UserError: If the patches do not fill a grid.
    """
    there = ~coordinates[:, 0].isnan()
    down, across = (
        (coordinates[there, axis] * 16).round().unique(return_inverse=True) for axis in (0, 1)
    )
    height, width = len(down[0]), len(across[0])
    if height * width != int(there.sum()):
        raise UserError("the patches of its first attention layer do not fill a grid")
    out = relevance.new_zeros(len(relevance), height * width)
    out[:, down[1] * width + across[1]] = relevance[:, there]
    return out.unflatten(1, (height, width))
