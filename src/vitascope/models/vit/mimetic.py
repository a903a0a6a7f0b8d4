"""Mimetic initialisation: attention weights with the structure of trained transformers.

In trained ViTs the product of query and key weights is near a multiple of the identity, and that of
value and projection weights near a negative one. So start there (Trockman and Kolter 2023,
https://arxiv.org/abs/2305.09828, section 3):

    W_q,h^T W_k,h  ~  0.7 Z + 0.7 I      per head, the rank-d part by its SVD
    W_proj W_v     ~  0.4 Z - 0.4 I      one D x D matrix over all heads

with Z normal of variance 1/D. With U S V^T the SVD of the right side, the left factor is U S^1/2
and the right one S^1/2 V^T. Attention then begins with patches that are alike; together with the
two-dimensional sine-cosine table of positions, from which the position embeddings start as in the
paper and go on learning, these are patches that are near. ``+sincos`` starts the table alone, which
tells what the weights bring next to it.

Shapes: D width, H heads of d channels.
"""

from typing import Any

import torch
from timm.layers import Attention, build_sincos2d_pos_embed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from vitascope.errors import UserError


def noisy_identity(dim: int, noise: float, diagonal: float) -> Tensor:
    """``noise Z + diagonal I``. (D, D)"""
    return noise * torch.randn(dim, dim, dtype=torch.float64) * dim**-0.5 + diagonal * torch.eye(
        dim, dtype=torch.float64
    )


def factors(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """The two halves of the best approximation of a rank. (..., D, D) -> (..., D, r), (..., r, D)

    >>> left, right = factors(torch.diag(torch.tensor([4.0, 1.0, 0.0])), 2)
    >>> (left @ right).diagonal().round().tolist()
    [4.0, 1.0, 0.0]
    """
    u, s, vt = torch.linalg.svd(product, full_matrices=False)
    root = s[..., :rank].sqrt()
    return u[..., :rank] * root[..., None, :], root[..., :, None] * vt[..., :rank, :]


@torch.no_grad()
def start_values(layer: Attention) -> None:
    """Value and projection weights whose product is near ``0.4 Z - 0.4 I``."""
    dim = layer.proj.weight.shape[0]
    left, right = factors(noisy_identity(dim, 0.4, -0.4), dim)
    layer.proj.weight.copy_(left)
    layer.qkv.weight[2 * dim :].copy_(right)


@torch.no_grad()
def set_positions(model: VisionTransformer, table: Tensor) -> None:
    """Initialise the position embeddings of the patches with ``table``. (N, D)"""
    if model.pos_embed is None:
        raise UserError("this start needs a table of positions, and the model has none")
    model.pos_embed[0, -len(table) :].copy_(table)


def start_sincos(model: VisionTransformer) -> None:
    """Initialise the position table of a new model with sines and cosines, and nothing else."""
    if model.embed_dim % 4:
        raise UserError(f"sines and cosines need a width of 4, 8, ..., not {model.embed_dim}")
    set_positions(
        model, build_sincos2d_pos_embed(list(model.patch_embed.grid_size), model.embed_dim)
    )


@torch.no_grad()
def start_mimetic(model: VisionTransformer) -> None:
    """Initialise every attention layer and the position table of a new model."""
    start_sincos(model)
    for layer in model.modules():
        if isinstance(layer, Attention):
            dim, width = layer.qkv.weight.shape[1], layer.head_dim
            for head in range(layer.num_heads):
                left, right = factors(noisy_identity(dim, 0.7, 0.7), width)
                rows = slice(head * width, (head + 1) * width)
                layer.qkv.weight[:dim][rows].copy_(left.mT)
                layer.qkv.weight[dim : 2 * dim][rows].copy_(right)
            start_values(layer)
    labelled: Any = model  # an attribute that says what the layers start with
    labelled.locality = "soft at the start: mimetic weights, patches that are alike and near"
