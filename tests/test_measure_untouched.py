"""Every instrument leaves a model as it came, whatever the model shares, ties or was made under."""

from contextlib import nullcontext
from copy import deepcopy

import pytest
import torch
from torch import nn

import vitascope
from vitascope import measure
from vitascope.measure.corruption import corruption_of_sets
from vitascope.measure.hessian import eigenvectors

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
    model = vitascope.create_model(
        "convit_micro", num_classes=3, img_size=16, embed_dim=16, num_heads=4, depth=4,
        num_gpsa_blocks=2)  # fmt: skip
    model.norm = nn.Sequential(model.norm, Fuse())
    return model


def shared():
    model = plain()
    model.blocks[1], model.blocks[3] = model.blocks[0], model.blocks[2]
    return model


def tied():
    model = plain()
    for first, second in ((0, 1), (2, 3)):
        model.blocks[second].mlp.fc1.weight = model.blocks[first].mlp.fc1.weight
        model.blocks[second].norm1.weight = model.blocks[first].norm1.weight
    return model


def made_in_inference_mode():
    with torch.inference_mode():
        return plain()


MODELS = {make.__name__: make for make in (plain, shared, tied, made_in_inference_mode)}


def images(inference=False):
    generator = torch.Generator().manual_seed(1)
    with torch.inference_mode(inference):
        pixels = torch.rand(2, 6, 3, 16, 16, generator=generator)
        return [((p - 0.5) / 0.25, torch.tensor([0, 1, 2, 0, 1, 2])) for p in pixels]


def masks(batches):
    return [(x, y[:, None, None].expand(-1, 16, 16)) for x, y in batches]


def path(model):
    states = {epoch: {n: w + epoch for n, w in model.state_dict().items()} for epoch in (0, 1, 2)}
    return measure.trajectory(states, weights=model)


INSTRUMENTS = {
    "calibration": measure.calibration,
    "cka": measure.cka,
    "cka of another": lambda m, b: measure.cka(m, b, other=m, at="unit"),
    "corruption": lambda m, b: measure.corruption(
        m, b, **PIXELS, corruptions=("fog", "contrast"), severities=(1,)
    ),
    "corruption of sets": lambda m, b: corruption_of_sets(
        m, lambda name, level: b, clean=b, corruptions=("fog",), severities=(1,)
    ),
    "density": lambda m, b: measure.density(m, b[:1], num_probes=2, num_steps=2),
    "eigenvectors": lambda m, b: eigenvectors(m, b[:1], num_eigenvalues=1, tolerance=0.5),
    "entropy": measure.entropy,
    "fgsm": lambda m, b: measure.fgsm(m, b, **PIXELS, epsilons=(8 / 255,), against="prediction"),
    "fourier": measure.fourier,
    "frequency": lambda m, b: measure.frequency(m, b, **PIXELS, frequencies=(0.0, 0.5)),
    "gates": measure.gates,
    "hessian": lambda m, b: measure.hessian(m, b, num_eigenvalues=1, tolerance=0.5),
    "landscape": lambda m, b: measure.landscape(m, b, grid=2),
    "landscape of batches": lambda m, b: measure.landscape(m, b, grid=2, batch_norm="batch"),
    "lesion": measure.lesion,
    "maps": measure.maps,
    "masking": measure.masking,
    "miou": lambda m, b: measure.miou(PerPixel(m), masks(b), window=16),
    "nonlocality": measure.nonlocality,
    "occlusion": lambda m, b: measure.occlusion(m, b, **PIXELS, sizes=(0.5,)),
    "pgd": lambda m, b: measure.pgd(m, b, **PIXELS, epsilons=(8 / 255,), steps=2),
    "together": measure.together,
    "trajectory": lambda m, b: path(m),
    "variance": measure.variance,
}


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


@pytest.mark.parametrize("inference", [False, True], ids=["images", "images_of_inference_mode"])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", INSTRUMENTS)
def test_an_instrument_leaves_the_model_as_it_came_to_the_bit(name, make, inference):
    model, batches = in_use(make()), images(inference)
    before = state_of(model)
    INSTRUMENTS[name](model, batches)
    assert state_of(model) == before
