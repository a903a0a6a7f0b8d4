"""The networks of "How do vision transformers work?" at each scale, and their augmentation.

Park and Kim 2022, https://arxiv.org/abs/2202.06709, appendix A. Each network has three forms: for
CIFAR, for ImageNet, and the small one that stands for it on a laptop's 8 x 8 images. There timm's
PiT and Swin have patches of one pixel and three short stages, Swin with windows of 2 x 2; at a desk
patches of two pixels, windows of 4 x 4, and about a million parameters. A study that reads much off
many runs takes the laptop's networks at a desk, too (``small``): micro ones, ViTs with an 8 x 8
grid, that see an eighth of the images (``seen`` says where it is more).

Deviations. ResNets are pre-activation (the paper: only below AlterNet), but for frequencies and
variance, which are measured in a post-activation one, too. AlterNet's
CIFAR form has one attention block in its third stage, which is as many as Fig. 12a finds useful.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vitascope.papers.plan import Training
from vitascope.papers.scale import REAL, Role, Scale, Spec

CIFAR = {"paper": "CIFAR-100 (cifar100:PATH)", "desk": REAL, "laptop": "digits (embedded)"}

_NO_BIAS = {"qkv_bias": False}  # as released
STRONG: dict[str, Any] = {  # DeiT's, on a laptop and at a desk; the paper's scale has recipes
    "augmentation.rand_augment": "rand-m9-mstd0.5-inc1",
    "augmentation.random_erasing": 0.25,
    "augmentation.mixup": 0.8,
    "augmentation.cutmix": 1.0,
    "augmentation.label_smoothing": 0.1,
}
WEAK = {name: None if isinstance(value, str) else 0.0 for name, value in STRONG.items()}


_SWIN: dict[str, Any] = {"patch_size": 1, "window_size": 2, "embed_dim": 24}
_SWIN |= {"depths": (2, 2, 2), "num_heads": (2, 4, 8)}
_PIT: dict[str, Any] = {"patch_size": 1, "stride": 1, "base_dims": (10, 10, 10)}
_PIT |= {"depth": (1, 1, 2), "heads": (2, 4, 8)}
_PIT_AT_A_DESK = {**_PIT, "patch_size": 2, "stride": 2, "base_dims": (24, 24, 24)}
_SWIN_AT_A_DESK = {**_SWIN, "patch_size": 2, "window_size": 4, "embed_dim": 48}
_ONE_BY_ONE = {"stem": "cifar", "kinds": ("ccc", "ccca", "ccccca", "caca")}

_CIFAR: dict[str, Spec] = {
    "ViT-Ti": ("vit_tiny_cifar", _NO_BIAS),
    "ViT-S": ("vit_small_cifar", _NO_BIAS),
    "ViT-Ti GAP": ("vit_tiny_cifar", {**_NO_BIAS, "class_token": False, "global_pool": "avg"}),
    "ConViT-Ti": ("convit_tiny", {"img_size": 32, "patch_size": 2}),
    "PiT-Ti": ("pit_tiny_cifar", {"stride": 1}),
    "Swin-Ti": ("swin_tiny_cifar", _NO_BIAS),
    "ResNet-50": ("resnet_preact_50", {"stem": "cifar"}),
    "ResNet-50, post-activation": ("resnet_postact_50", {"stem": "cifar"}),
    "ResNet-101": ("resnet_preact_101", {"stem": "cifar"}),
    "AlterNet-50": ("alternet_50", _ONE_BY_ONE),
}
_IMAGENET: dict[str, Spec] = {
    "ViT-Ti": ("deit_tiny", {}),
    "ViT-S": ("deit_small", {}),
    "ViT-Ti GAP": ("deit_tiny_gap", {}),
    "ConViT-Ti": ("convit_tiny", {}),
    "PiT-Ti": ("pit_ti_224", {}),
    "Swin-Ti": ("swin_tiny_patch4_window7_224", {}),
    "ResNet-50": ("resnet_preact_50", {}),
    "ResNet-50, post-activation": ("resnet_postact_50", {}),
    "ResNet-101": ("resnet_preact_101", {}),
    "AlterNet-50": ("alternet_50", {}),
}
_LAPTOP: dict[str, tuple[str, Spec]] = {  # its name in tables, and the network
    "ViT-Ti": ("vit_micro", ("vit_micro", {})),
    "ViT-S": ("vit_micro wide", ("vit_micro", {"embed_dim": 108, "num_heads": 9})),
    "ViT-Ti GAP": ("vit_micro_gap", ("vit_micro_gap", {})),
    "ConViT-Ti": ("convit_micro", ("convit_micro", {})),
    "PiT-Ti": ("pit_micro", ("pit_tiny_cifar", _PIT)),
    "Swin-Ti": ("swin_micro", ("swin_tiny_cifar", _SWIN)),
    "ResNet-50": ("resnet_micro", ("resnet_micro", {})),
    "ResNet-50, post-activation": ("resnet_postact_micro", ("resnet_postact_micro", {})),
    "ResNet-101": ("resnet_micro wide", ("resnet_micro", {"widths": (30, 60, 120)})),
    "AlterNet-50": ("alternet_micro", ("alternet_micro", {})),
}
_DESK: dict[str, Spec] = {  # where it is not the laptop's at the size of mini
    "PiT-Ti": ("pit_tiny_cifar", _PIT_AT_A_DESK),
    "Swin-Ti": ("swin_tiny_cifar", _SWIN_AT_A_DESK),
}


@dataclass(frozen=True)
class Network:
    """One network of the paper in its forms."""

    name: str  # in the paper

    def label(self, scale: Scale, small: bool = False) -> str:
        """The network's name in tables."""
        if scale.is_paper:
            return self.name
        short, _ = _LAPTOP[self.name]
        return short.replace("micro", "mini") if scale.name == "desk" and not small else short

    def training(
        self,
        scale: Scale,
        *,
        imagenet: bool = False,
        small: bool = False,
        recipe: str | None = None,
        **options: Any,
    ) -> Training:
        """Return how it is trained.

        Args:
            scale: The scale of the study.
            imagenet: On ImageNet, in place of CIFAR, at the paper's scale.
            small: The laptop's network at a desk, too.
            recipe: At the paper's scale; the authors' for these images when left out.
            options: ``changes``, ``fraction``, ``seen`` and arguments of the model.
        """
        spec = (_IMAGENET if imagenet else _CIFAR)[self.name]
        recipe = recipe or ("imagenet_park" if imagenet else "cifar")
        _, laptop = _LAPTOP[self.name]
        desk = laptop if small else _DESK.get(self.name)
        role: Role = (spec, laptop, desk) if desk else (spec, laptop)
        make = scale.few if small else scale.training
        return make(role, recipe=recipe, **options)


NETWORKS = {name: Network(name) for name in _CIFAR}


def trainings(
    scale: Scale, names: Iterable[str], *, small: bool = False, **options: Any
) -> dict[str, Training]:
    """Networks of these names, by their name in tables."""
    networks = [NETWORKS[name] for name in names]
    return {n.label(scale, small): n.training(scale, small=small, **options) for n in networks}


def looked_into(scale: Scale, *, imagenet: bool = False) -> dict[str, Training]:
    """Return the networks whose units are measured: ViT, ResNet, PiT and Swin.

    At a desk ViT, ResNet and AlterNet, all images once, the ViT with 8 blocks of 4 heads.
    """
    four = ("ViT-Ti", "ResNet-50", "PiT-Ti", "Swin-Ti")
    if scale.name != "desk":
        names = scale.pick(paper=four, smoke=four[:2])
        return trainings(scale, names, imagenet=imagenet)
    deep = trainings(scale, four[:1], small=True, depth=8, embed_dim=64, num_heads=4)
    return deep | trainings(scale, ("ResNet-50", "AlterNet-50"), small=True)


def augmented(scale: Scale, strong: bool) -> dict[str, Any]:
    """Return how a training has strong or weak augmentation: its recipe, or what changes in it."""
    if scale.is_paper:
        return {"recipe": "cifar" if strong else "cifar_weak"}
    return {"changes": STRONG if strong else {}}
