"""Small models and few images that several test files share."""

from dataclasses import replace
from functools import partial

import timm
import torch
from timm.models.mlp_mixer import MlpMixer
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import VisionTransformer

import vitascope
from vitascope import data


def small_vit(**options):
    """timm's ViT for digits: 2 x 2 patches, 2 blocks of width 24."""
    sizes = {"img_size": 8, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
    sizes |= {"in_chans": 1, "num_classes": 10}
    return timm.create_model("vit_tiny_patch16_224", **{**sizes, **options})


def small_convit(**options):
    """A ConViT for 3 classes of 16 x 16 images: width 16, 4 heads."""
    sizes = {"num_classes": 3, "img_size": 16, "embed_dim": 16, "num_heads": 4}
    return vitascope.create_model("convit_micro", **sizes, **options)


def randomised(model, scale=0.1):
    """Away from initialisation, where much is equal by symmetry."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(scale * torch.randn_like(parameter))
    return model


def moved_weights(model):
    """The model for inference, with every weight moved a little so that no part is idle."""
    with torch.no_grad():
        for parameter in model.eval().parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    return model


def few_digits(num_train, num_test):
    """The first digits of the training and of the test set."""
    digits = data.load("digits")
    train, test = digits.train.take(range(num_train)), digits.test.take(range(num_test))
    return replace(digits, train=train, test=test)


def of_timm(name, **kwargs):
    """A function that makes timm's model for 5 classes."""
    return partial(timm.create_model, name, num_classes=5, **kwargs)


def of_hub(kind, **kwargs):
    """A function that makes a small Hugging Face model for 5 classes."""
    import transformers  # slow to import

    config = getattr(transformers, f"{kind}Config")
    model = getattr(transformers, f"{kind}ForImageClassification")
    sizes = {"hidden_size": 32, "intermediate_size": 64, "image_size": 32, "patch_size": 8}
    numbers = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_labels": 5}
    return lambda: model(config(**sizes, **numbers, **kwargs))


SMALL = {  # one small network of each family, for 5 classes
    "vit": of_timm("vit_tiny_patch16_224", img_size=32, depth=2),
    "deit": of_timm("deit_tiny_distilled_patch16_224", img_size=32, depth=1),
    "pvt v2": of_timm("pvt_v2_b0", depths=(1, 1, 1, 1)),
    "pit": of_timm("pit_ti_224", img_size=64, depth=(1, 1, 1)),
    "coat": of_timm("coat_lite_tiny", img_size=32, serial_depths=(1, 1, 1, 1)),
    "levit": of_timm("levit_128s", img_size=64, depth=(1, 1, 1)),
    "beit": of_timm("beit_base_patch16_224", img_size=32, depth=1, embed_dim=48, num_heads=3),
    "eva02": of_timm("eva02_tiny_patch14_224", img_size=28, depth=1),
    "cait": of_timm("cait_xxs24_224", img_size=32, depth=1),
    "convit": of_timm("convit_tiny", img_size=32, depth=3, local_up_to_layer=2),
    "convnext": of_timm("convnext_atto", depths=(1, 1, 1, 1)),
    "mixer": lambda: MlpMixer(5, 64, num_blocks=2, patch_size=16, embed_dim=32),
    "torchvision vit": lambda: VisionTransformer(32, 8, 2, 2, 32, 64, num_classes=5),
    "swin": of_timm(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        embed_dim=16,
        depths=(2, 2),
        num_heads=(1, 2),
    ),
    "maxvit": of_timm(
        "maxvit_rmlp_pico_rw_256",
        img_size=64,
        depths=(1, 1),
        embed_dim=(32, 64),
        block_type=("M", "M"),
        stem_width=8,
    ),
}


class Says(nn.Module):
    """Gives its images back as logits."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return x.flatten(1) * self.scale


class Largest(TorchDispatchMode):
    """The size of the largest tensor that any operator returns."""

    numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for leaf in torch.utils._pytree.tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.numel = max(self.numel, leaf.numel())
        return out


def check_gradient_checkpointing(model, images):
    """With and without checkpointing the gradients are the same."""
    gradients = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        model.zero_grad()
        model(images).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for plain, recomputed in zip(*gradients, strict=True):
        torch.testing.assert_close(plain, recomputed)
