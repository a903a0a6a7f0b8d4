"""Every instrument leaves a model as it came, whatever the model shares, ties or was made under."""

from collections.abc import Mapping
from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from model_making import small_convit
from slow_marks import slow_if
from vitascope import capture, measure
from vitascope.errors import UserError
from vitascope.measure.curvature.landscape import random_direction
from vitascope.measure.curvature.objective import deterministic, objective, trainable_weights
from vitascope.measure.robustness.corruption import corruption_of_sets
from vitascope.measure.streaming.one_pass import Together

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
PIXELS = {"mean": MEAN, "std": STD}


class Fuse(nn.Module):
    """The identity, which fails in one of its runs."""

    def __init__(self):
        super().__init__()
        self.runs, self.fails_at = 0, None

    def forward(self, x):
        self.runs += 1
        if self.runs == self.fails_at:
            raise ZeroDivisionError("the fuse blew")
        return x


class PerPixel(nn.Module):
    """A classifier's logits at every pixel."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        return self.model(images)[..., None, None].expand(-1, -1, *images.shape[2:])


def plain():
    torch.manual_seed(0)
    model = small_convit(depth=3, num_gpsa_blocks=2)
    model.norm = nn.Sequential(model.norm, Fuse())
    return model


def woven():
    """The first block runs twice, and its weights are also the last one's."""
    model = plain()
    first, last = model.blocks[0], model.blocks[2]
    model.blocks[1] = first
    last.mlp.fc1.weight, last.norm1.weight = first.mlp.fc1.weight, first.norm1.weight
    return model


def made_in_inference_mode():
    with torch.inference_mode():
        return plain()


def apart(model):
    """The same network, in which nothing is shared, tied or of inference mode."""
    state = {n: w.clone() for n, w in model.state_dict().items()}
    copied = plain()
    copied.load_state_dict(state)
    return copied


def images():
    generator = torch.Generator().manual_seed(1)
    pixels = torch.rand(2, 4, 3, 16, 16, generator=generator, dtype=torch.float32)
    return [((p - 0.5) / 0.25, torch.tensor([0, 1, 2, 0])) for p in pixels]


def masks(batches):
    return [(x, y[:, None, None].expand(-1, 16, 16)) for x, y in batches]


def path(model):
    states = {epoch: {n: w + epoch for n, w in model.state_dict().items()} for epoch in (0, 1, 2)}
    return measure.trajectory(states, weights=model)


INSTRUMENTS = {
    "blocks": lambda m, b: measure.blocks(m, b[:1], num_eigenvalues=1, num_probes=2, tolerance=0.5),
    "calibration": measure.calibration,
    "cka": lambda m, b: measure.cka(m, b, other=m, at="unit"),
    "corruption": lambda m, b: measure.corruption(
        m, b, **PIXELS, corruptions=("fog", "contrast"), severities=(1,)
    ),
    "corruption of sets": lambda m, b: corruption_of_sets(
        m, lambda name, level: b, clean=b, corruptions=("fog",), severities=(1,)
    ),
    "density": lambda m, b: measure.density(m, b[:1], num_probes=2, num_steps=2),
    "entropy": measure.entropy,
    "fgsm": lambda m, b: measure.fgsm(m, b, **PIXELS, epsilons=(8 / 255,), against="prediction"),
    "fourier": measure.fourier,
    "frequency": lambda m, b: measure.frequency(m, b, **PIXELS, frequencies=(0.0, 0.5)),
    "gates": measure.gates,
    "hessian": lambda m, b: measure.hessian(m, b[:1], num_eigenvalues=1, tolerance=0.5),
    "landscape": lambda m, b: measure.landscape(m, b, grid=2),
    "lens": measure.lens,
    "lesion": measure.lesion,
    "maps": measure.maps,
    "masking": measure.masking,
    "miou": lambda m, b: measure.miou(PerPixel(m), masks(b), window=16),
    "nonlocality": measure.nonlocality,
    "norms": measure.norms,
    "occlusion": lambda m, b: measure.occlusion(m, b, **PIXELS, sizes=(0.5,)),
    "patching": lambda m, b: measure.patching(m, b[0][0][:1], b[1][0][1:2], classes=(0, 2)),
    "pca": measure.pca,
    "pgd": lambda m, b: measure.pgd(m, b, **PIXELS, epsilons=(8 / 255,), steps=2),
    "relevance": lambda m, b: measure.relevance(m, b[:1]),
    "together": measure.together,
    "trajectory": lambda m, b: path(m),
    "variance": measure.variance,
    "windows": measure.windows,
}


# One instrument of each kind (maps, units, curvature, labels, changed images) is tried in every
# condition by `make test`, all others in one condition; `make slow` tries all in all.
IN_EVERY_CONDITION = {"entropy", "fourier", "hessian", "lesion", "fgsm", "gates", "together"}
LONG = {*INSTRUMENTS} - IN_EVERY_CONDITION


def test_no_instrument_is_missing_here():
    assert set(measure.__all__) <= set(INSTRUMENTS)


def hooked(module, inputs, output):
    return None


def in_use(model):
    """As a user may have it: partly frozen, in mixed modes, with gradients and a hook."""
    model.train()
    model.blocks[0].mlp.eval()
    model.blocks[2].norm2.weight.requires_grad_(False)
    with torch.inference_mode(model.norm[0].bias.is_inference()):
        model.norm[0].bias.grad = torch.ones_like(model.norm[0].bias)
    model.blocks[0].register_forward_hook(hooked)
    return model


def state_of(model):
    """Everything of the model, and of torch, that an instrument may not change."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers", "_modules"):
                found |= {(name, key, own): id(held) for own, held in value.items()}
            elif isinstance(value, dict):
                found[name, key] = [(k, id(v)) for k, v in value.items()]
            elif key != "runs":
                found[name, key] = value if isinstance(value, (bool, int, float)) else id(value)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        grad = getattr(tensor, "grad", None)
        found[name] = (tensor.requires_grad, tensor.is_inference(), type(tensor), id(grad))
        found[name, "bytes"] = tensor.detach().numpy().tobytes()
        found[name, "gradient"] = None if grad is None else grad.numpy().tobytes()
    return found | {
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "seen": torch._C._is_torch_function_all_disabled(),
        "kernels": (
            torch.backends.cuda.flash_sdp_enabled(),
            torch.backends.cuda.mem_efficient_sdp_enabled(),
            torch.backends.cuda.math_sdp_enabled(),
        ),
        "chance": torch.get_rng_state().tolist(),
    }


def numbers_of(result):
    """All numbers of a result in their order: names of runs are not compared."""
    if isinstance(result, Together):
        assert not result.refused
        return [n for part in result.results.values() for n in numbers_of(part)]
    record = result.to_record()
    return [*_numbers(record.values), *_numbers(record.arrays)]


def _numbers(value):
    if isinstance(value, (int, float)):
        return [float(value)]
    if isinstance(value, np.ndarray):
        return value.ravel().tolist()
    if isinstance(value, Mapping):
        value = list(value.values())
    return [n for v in value for n in _numbers(v)] if isinstance(value, (list, tuple)) else []


def assert_same_numbers(found, expected, tolerance=1e-4):
    np.testing.assert_allclose(
        numbers_of(found), numbers_of(expected), rtol=tolerance, atol=tolerance
    )


@cache
def expected(name, make):
    """What the instrument says of the network when nothing of it is shared, tied or unusual."""
    return INSTRUMENTS[name](apart(make()), images())


OF_WEIGHTS = {
    "blocks",
    "density",
    "hessian",
    "landscape",
    "gates",
    "masking",
    "trajectory",
    "windows",
}  # not of runs


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_an_instrument_leaves_the_model_as_it_came_to_the_bit(name):
    check_left_as_it_came(name, woven)


@pytest.mark.parametrize("name", slow_if(INSTRUMENTS, LONG))
def test_so_it_does_with_one_made_in_inference_mode(name):
    check_left_as_it_came(name, made_in_inference_mode)


def check_left_as_it_came(name, make):
    model = in_use(make())
    with torch.inference_mode():
        batches = images()
    before = state_of(model)
    found = INSTRUMENTS[name](model, batches)
    assert state_of(model) == before
    if name not in OF_WEIGHTS:
        assert_same_numbers(found, expected(name, make))


@pytest.mark.parametrize("name", slow_if(INSTRUMENTS, LONG))
def test_an_instrument_works_within_inference_mode(name):
    model = plain()
    before = state_of(model)
    with torch.inference_mode():
        found = INSTRUMENTS[name](model, images())
    assert state_of(model) == before
    assert_same_numbers(found, expected(name, plain))


RUN = sorted({*INSTRUMENTS} - {"gates", "trajectory", "windows"})  # instruments that run the model


@pytest.mark.parametrize("name", slow_if(RUN, LONG))
def test_an_instrument_that_fails_leaves_the_model_as_it_came_to_the_bit(name):
    model, batches = in_use(woven()), images()
    fuse = model.norm[1]
    INSTRUMENTS[name](model, batches)
    for fails_at in {(fuse.runs + 1) // 2, fuse.runs}:
        fuse.runs, fuse.fails_at = 0, fails_at
        before = state_of(model)
        with pytest.raises(ZeroDivisionError):
            INSTRUMENTS[name](model, batches)
        assert state_of(model) == before


@pytest.fixture
def double_precision():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.mark.parametrize("name", slow_if(INSTRUMENTS, LONG))
def test_an_instrument_gives_the_same_numbers_with_double_precision_as_default(name, request):
    single, drawn = expected(name, plain), plain()
    request.getfixturevalue("double_precision")
    model = apart(drawn)
    assert {weight.dtype for weight in model.parameters()} == {torch.float64}
    found = INSTRUMENTS[name](model, [(x.double(), y) for x, y in images()])
    assert_same_numbers(found, single, tolerance=1e-3)


def test_a_module_that_runs_twice_is_two_units():
    model, (batch, _) = woven(), images()
    names = [unit.name for unit in capture.units(model, batch[0])]
    blocks = [
        f"blocks.{block}.{part}{run}"
        for block, run in ((0, ""), (0, "@2"), (2, ""))
        for part in ("attn", "mlp")
    ]
    assert [name for name in names if name.startswith("blocks")] == blocks
    assert list(measure.lesion(model, [batch]).accuracy) == blocks
    assert list(measure.entropy(model, [batch]).nats) == blocks[::2]
    with capture.features(model, "blocks.0.mlp@2") as seen:
        model(batch[0])
    assert list(seen) == ["blocks.0.mlp@2"]


def test_one_run_of_a_shared_module_is_dropped_as_the_layer_of_a_copy_is():
    model, (batch, _) = woven().eval(), images()
    with torch.no_grad():
        for weight in model.blocks.parameters():
            weight *= 5  # fresh layers hardly matter
    copied = apart(model).eval()
    for run, layer in {"blocks.0.mlp@2": "blocks.1.mlp", "blocks.2.attn": "blocks.2.attn"}.items():
        with capture.without(model, capture.units(model, batch[0]), run):
            found = model(batch[0])
        with capture.without(copied, capture.units(copied, batch[0]), layer):
            torch.testing.assert_close(found, copied(batch[0]))
        assert not torch.allclose(found, model(batch[0]), atol=1e-2)


def test_an_edit_of_one_run_of_a_module_leaves_the_other_run_alone():
    model, (batch, _) = woven().eval(), images()
    for run in ("blocks.0.mlp@1", "blocks.0.mlp@2"):
        with capture.edit(model, {run: torch.zeros_like}), capture.features(model, "*.mlp*") as out:
            model(batch[0])
        zeros = {name: bool((tensor == 0).all()) for name, tensor in out.items()}
        first, second = zeros["blocks.0.mlp"], zeros["blocks.0.mlp@2"]
        assert (first, second) == (run.endswith("1"), run.endswith("2"))
    with pytest.raises(UserError, match="did not run"), capture.edit(model, {"head@2": abs}):
        model(batch[0])


def test_shared_and_tied_weights_move_together_in_the_objective():
    model, (batch, _) = woven().eval(), images()
    weights = trainable_weights(model)
    with deterministic(model):
        loss = objective(model, weights, *batch)
    slopes = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
    nn.functional.cross_entropy(model(batch[0]), batch[1]).backward()
    for slope, (name, weight) in zip(slopes, model.named_parameters(), strict=True):
        expected = torch.zeros_like(weight) if weight.grad is None else weight.grad
        torch.testing.assert_close(slope, expected, msg=name)


def test_the_landscape_of_shared_and_tied_weights_is_that_of_written_ones():
    model, batches = woven().eval(), images()
    step = random_direction(model, torch.Generator().manual_seed(3))
    assert set(step) <= {name for name, _ in model.named_parameters()}
    found = measure.landscape(model, batches, directions=[step], grid=[[0.0, 0.5]])
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight += 0.5 * step.get(name, 0.0)
        losses = [nn.functional.cross_entropy(model(x), y).item() for x, y in batches]
    assert found.nll[1] == pytest.approx(sum(losses) / 2, abs=1e-5)
    assert found.nll[0] != pytest.approx(found.nll[1], abs=1e-4)
