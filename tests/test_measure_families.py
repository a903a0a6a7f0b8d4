"""Capture, units and every instrument over the families people use: random weights, small inputs.

Each family says which instruments make no sense for it; they must refuse, all others must give
finite numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torchvision.models.swin_transformer import SwinTransformer

import vitascope
from model_making import SMALL, moved_weights, of_hub, of_timm
from slow_marks import slow_if
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.inspection import inspect

INSTRUMENTS = inspect.MEASURES
ATTENTION = {"nonlocality", "entropy", "maps"}


@dataclass(frozen=True)
class Family:
    make: Callable[[], nn.Module]
    attentions: int  # layers that attend over tokens
    mlps: int
    size: int = 32
    refuses: frozenset[str] = field(default_factory=frozenset)


def no(*names):
    return frozenset(names)


NO_GATES = no("gates", "windows")
NO_POSITIONS = NO_GATES | no("masking")
NO_ATTENTION = NO_POSITIONS | ATTENTION

SMALL_SWIN = {"img_size": 32, "window_size": 4, "embed_dim": 16, "num_heads": (1, 2)}
FAMILIES = {
    "vit": Family(SMALL["vit"], 2, 2, refuses=NO_GATES),
    "deit": Family(SMALL["deit"], 1, 1, refuses=NO_GATES),
    "swin": Family(
        SMALL["swin"],
        4,
        4,
        refuses=NO_POSITIONS,
    ),
    "swin v2": Family(
        of_timm("swinv2_tiny_window8_256", depths=(2, 1), **SMALL_SWIN), 3, 3, refuses=NO_POSITIONS
    ),
    "pit": Family(SMALL["pit"], 3, 3, 64, NO_GATES),
    "twins": Family(
        of_timm("twins_svt_small", img_size=32, depths=(2, 2, 1, 1), wss=(4, 4, 2, 2)),
        4,
        6,
        refuses=NO_POSITIONS,  # two more have a single key
    ),
    "pvt v2": Family(SMALL["pvt v2"], 4, 4, 64, NO_POSITIONS),
    "coat": Family(
        SMALL["coat"],
        0,
        4,
        refuses=NO_ATTENTION,
    ),
    "levit": Family(SMALL["levit"], 4, 5, 64, NO_POSITIONS),
    "beit": Family(
        SMALL["beit"],
        1,
        1,
        refuses=NO_POSITIONS,
    ),
    "eva02": Family(SMALL["eva02"], 1, 1, 28, NO_GATES),
    "maxvit": Family(
        SMALL["maxvit"],
        4,
        4,
        64,
        NO_POSITIONS,
    ),
    "cait": Family(SMALL["cait"], 3, 3, refuses=NO_GATES),
    "xcit": Family(
        of_timm("xcit_nano_12_p16_224", img_size=32, depth=1),
        2,
        3,
        refuses=NO_POSITIONS | {"nonlocality"},
    ),
    "convit": Family(SMALL["convit"], 3, 3),
    "our convit": Family(partial(vitascope.create_model, "convit_micro", num_classes=5), 4, 4),
    "mixer": Family(SMALL["mixer"], 0, 4, 64, NO_ATTENTION),
    "resnet": Family(of_timm("resnet26", channels=(8, 16, 16, 32)), 0, 0, 64, NO_ATTENTION),
    "convnext": Family(SMALL["convnext"], 0, 4, 64, NO_ATTENTION),
    "torchvision vit": Family(SMALL["torchvision vit"], 2, 2, refuses=NO_GATES),
    "torchvision swin": Family(
        lambda: SwinTransformer([4, 4], 16, [2, 2], [1, 2], [4, 4], num_classes=5),
        4,
        4,
        refuses=NO_POSITIONS,
    ),
    "hub vit": Family(of_hub("ViT"), 2, 2, refuses=NO_GATES),
    "hub vit, eager": Family(of_hub("ViT", attn_implementation="eager"), 2, 2, refuses=NO_GATES),
    "hub beit": Family(of_hub("Beit", use_relative_position_bias=True), 2, 2, refuses=NO_POSITIONS),
    "hub dinov2": Family(of_hub("Dinov2"), 2, 2, refuses=NO_GATES),
    "hub swin": Family(
        lambda: transformers.SwinForImageClassification(
            transformers.SwinConfig(
                image_size=32,
                patch_size=4,
                embed_dim=16,
                depths=[2, 2],
                num_heads=[1, 2],
                window_size=4,
                num_labels=5,
            )
        ),
        4,
        4,
        refuses=NO_POSITIONS,
    ),
}


@cache
def built(name):
    """The model, with every constant weight shaken so that no unit is idle."""
    torch.manual_seed(0)
    return moved_weights(FAMILIES[name].make())


# Those that take longest, and have kin among the others.
LONG = (
    "cait",
    "coat",
    "hub beit",
    "hub swin",
    "hub vit, eager",
    "levit",
    "maxvit",
    "pvt v2",
    "swin v2",
    "torchvision swin",
    "twins",
    "xcit",
)


@pytest.fixture(params=slow_if(FAMILIES, LONG))
def family(request):
    kind = FAMILIES[request.param]
    return kind, built(request.param), torch.randn(4, 3, kind.size, kind.size)


def output(model, images):
    with torch.no_grad():
        out = model(images)
    return getattr(out, "logits", out)


def test_capture_sees_every_layer_and_changes_nothing(family):
    kind, model, images = family
    expected = output(model, images)
    if kind.attentions == 0:
        with pytest.raises(UserError, match="no attention map"), capture.attention(model):
            model(images)
        return
    with capture.attention(model) as maps:
        seen = output(model, images)
    assert torch.equal(seen, expected)
    for weights in maps.values():
        assert weights.ndim == 4
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    places = capture.token_coordinates(model, images)
    assert set(places) == set(maps)
    for name, place in places.items():
        windows, queries, keys = *place.query.shape[:2], place.key.shape[1]
        assert maps[name].shape[0] == windows * len(images)
        assert maps[name].shape[2:] == (queries, keys)


def test_units_are_found_and_followed(family):
    kind, model, images = family
    units = capture.units(model, images)
    kinds = [unit.kind for unit in units]
    assert kinds[0] == "stem"
    assert kinds[-1] == "head"
    over_tokens = sum(
        place.over_tokens for place in capture.token_coordinates(model, images).values()
    )
    assert kinds.count("attention") == over_tokens
    assert kinds.count("mlp") == kind.mlps
    for unit in units:
        if unit.kind in ("attention", "mlp", "block"):
            assert unit.residual or "downsample" in unit.name, unit
    expected = output(model, images)
    with capture.streams(model, units) as seen:
        assert torch.equal(output(model, images), expected)
    for unit in units:
        assert tuple(seen[unit.name].shape[1:]) == unit.shape[1:]
        if unit.grid is not None:
            assert unit.as_image(seen[unit.name]).shape[2:] == unit.grid


def numbers_in(record):
    """All floating point numbers of a record."""
    numbers = [np.asarray(array).ravel() for array in record.arrays.values()]
    for value in record.values.values():
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):  # None: it does not apply to a layer
            value = [item for item in value if item is not None]
        flat = np.asarray(value if value is not None else 0.0).ravel()
        numbers += [flat] if flat.dtype.kind == "f" else []
    return np.concatenate(numbers)


def test_every_instrument_gives_finite_numbers_or_refuses(family):
    kind, model, images = family
    batches = [(images, torch.arange(4))]
    found = measure.together(model, batches)
    records = {name: result.to_record() for name, result in found.results.items()}
    refused = set(found.refused)
    for name in ("gates", "windows", "masking", "pca"):
        try:
            records[name] = getattr(measure, name)(model, batches).to_record()
        except UserError:
            refused.add(name)
    records["lesion"] = measure.lesion(model, batches, units=some_units(model, images)).to_record()
    assert refused == kind.refuses
    assert refused | set(records) == set(INSTRUMENTS)
    for name, record in records.items():
        assert record.kind == name
        assert len(numbers_in(record))
        assert np.isfinite(numbers_in(record)).all(), name
    if "entropy" in records:
        assert len(records["entropy"].values["layers"]) == kind.attentions
    for name in found.refused:
        with pytest.raises(UserError):
            measure.together(model, batches, [name])


@pytest.mark.slow
def test_robustness_and_curvature_are_finite_on_every_family(family):
    _, model, images = family
    batches = [((torch.rand_like(images) - 0.5) / 0.25, torch.arange(4))]
    pixels = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
    some = {"corruptions": ("contrast",), "severities": (3,)}
    results = [
        measure.occlusion(model, batches, **pixels),
        measure.fgsm(model, batches, epsilons=(1 / 255,), **pixels),
        measure.frequency(model, batches, frequencies=(0.5,), **pixels),
        measure.corruption(model, batches, **some, **pixels),
        measure.hessian(model, batches, num_eigenvalues=1, tolerance=0.5),
        measure.landscape(model, batches, directions=1, grid=2, span=0.1),
    ]
    for result in results:
        record = result.to_record()
        assert np.isfinite(numbers_in(record)).all(), record.kind
    assert results[-2].converged.all()


def some_units(model, images):
    """The first unit of each kind that can be dropped."""
    first = {unit.kind: unit.name for unit in reversed(capture.units(model, images)) if unit.branch}
    inner = {u.kind: u.name for u in capture.units(model, images) if u.kind == "convolution"}
    return list((first or inner).values())
