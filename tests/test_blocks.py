"""Curvature by block against the dense Hessian and Gauss-Newton matrix of a tiny net."""

from functools import cache

import numpy as np
import pytest
import timm
import torch
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from vitascope import measure
from vitascope.errors import UserError
from vitascope.measure.curvature.blocks import groups_of


@cache
def tiny():
    torch.manual_seed(0)
    model = (
        timm.create_model(
            "vit_tiny_patch16_224",
            img_size=8,
            patch_size=4,
            in_chans=1,
            embed_dim=4,
            depth=1,
            num_heads=2,
            mlp_ratio=1,
            num_classes=3,
        )
        .double()
        .eval()
    )
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(6, 1, 8, 8, generator=generator, dtype=torch.float64)
    return model, [(images[:4], torch.tensor([0, 1, 2, 0])), (images[4:], torch.tensor([2, 1]))]


def _loss(logits, labels, flat):
    return F.cross_entropy(logits(flat), labels)


@cache
def dense():
    """H and G over all weights, by torch.autograd.functional, and the weights' places."""
    model, batches = tiny()
    names = [name for name, _ in model.named_parameters()]
    weights = [weight.detach() for weight in model.parameters()]
    sizes = [weight.numel() for weight in weights]
    images, labels = (torch.cat(part) for part in zip(*batches, strict=True))

    def logits(flat):
        parts = [p.view_as(w) for p, w in zip(flat.split(sizes), weights, strict=True)]
        return functional_call(model, dict(zip(names, parts, strict=True)), (images,))

    flat = torch.cat([weight.reshape(-1) for weight in weights])
    with sdpa_kernel(SDPBackend.MATH):
        hessian = torch.autograd.functional.hessian(
            lambda w: F.cross_entropy(logits(w), labels), flat
        )
        jacobian = torch.autograd.functional.jacobian(logits, flat)  # (N, K, n)
    p = logits(flat).softmax(1)
    bend = torch.diag_embed(p) - p[:, :, None] * p[:, None]
    newton = torch.einsum("nka,nkl,nlb->ab", jacobian, bend, jacobian) / len(images)
    ends = np.cumsum([0, *sizes])
    places = {n: range(a, b) for n, a, b in zip(names, ends[:-1], ends[1:], strict=True)}
    return {"hessian": hessian.detach(), "gauss_newton": newton.detach()}, places


def test_every_blocks_trace_and_eigenvalues_are_those_of_the_dense_matrices():
    model, batches = tiny()
    found = measure.blocks(
        model, batches, dtype=torch.float64, tolerance=1e-4, num_probes=12, num_eigenvalues=2
    )
    matrices, places = dense()
    groups = groups_of(model, batches[0][0])
    assert found.groups == tuple(group for _, group in groups)
    assert {"network", "blocks.0", "patch_embed", "head"} <= set(found.groups)
    for name, whole in matrices.items():
        for number, weights in enumerate(groups.values()):
            index = torch.tensor([i for weight in weights for i in places[weight]])
            part = whole[index][:, index]
            assert len(index) == found.num_weights[number]
            values = torch.linalg.eigvalsh(part)
            wanted = values[values.abs().argsort(descending=True)][:2]
            np.testing.assert_allclose(
                found.eigenvalues[name][number], wanted, rtol=1e-6, atol=1e-7
            )
            off = abs(found.trace[name][number] - part.trace().item())
            assert off <= 8 * found.error[name][number] + 1e-8 * part.norm().item() + 1e-12


def test_blocks_hold_every_weight_once_and_so_do_kinds():
    model, batches = tiny()
    groups = groups_of(model, batches[0][0])
    names = [name for name, _ in model.named_parameters()]
    for by in ("block", "kind"):
        held = [name for (kind, _), weights in groups.items() if kind == by for name in weights]
        assert sorted(held) == sorted(names)
    assert {"attention", "mlp", "stem", "head", "other"} == {g for b, g in groups if b == "kind"}


def test_too_few_probes_are_refused():
    model, batches = tiny()
    with pytest.raises(UserError, match="at least 1 and 2"):
        measure.blocks(model, batches, num_probes=1)
