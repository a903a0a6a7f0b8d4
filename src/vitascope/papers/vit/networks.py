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
from dataclasses import dataclass, field
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


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network of the paper in its three forms."""

    name: str  # in the paper
    short: str  # on a laptop
    cifar: Spec
    laptop: Spec
    imagenet: Spec = field(default=("", {}))
    desk: Spec | None = None  # the laptop's at the size of mini when left out

    def label(self, scale: Scale, small: bool = False) -> str:
        """How a table calls it."""
        mini = scale.name == "desk" and not small
        short = self.short.replace("micro", "mini") if mini else self.short
        return self.name if scale.is_paper else short

    def training(
        self,
        scale: Scale,
        *,
        imagenet: bool = False,
        small: bool = False,
        recipe: str | None = None,
        **how: Any,
    ) -> Training:
        """How it is trained.

        Args:
            scale: Of the study.
            imagenet: On ImageNet, in place of CIFAR, at the paper's scale.
            small: The laptop's network at a desk, too.
            recipe: At the paper's scale; the authors' for these images when left out.
            how: ``changes``, ``fraction``, ``seen`` and arguments of the model.
        """
        spec = self.imagenet if imagenet else self.cifar
        recipe = recipe or ("imagenet_park" if imagenet else "cifar")
        desk = self.laptop if small else self.desk
        role: Role = (spec, self.laptop, desk) if desk else (spec, self.laptop)
        make = scale.few if small else scale.training
        return make(role, recipe=recipe, **how)


_SWIN = {
    "patch_size": 1,
    "window_size": 2,
    "embed_dim": 24,
    "depths": (2, 2, 2),
    "num_heads": (2, 4, 8),
}
_PIT = {
    "patch_size": 1,
    "stride": 1,
    "base_dims": (10, 10, 10),
    "depth": (1, 1, 2),
    "heads": (2, 4, 8),
}
_ONE_BY_ONE = {"stem": "cifar", "kinds": ("ccc", "ccca", "ccccca", "caca")}

_ALL = (
    Network(
        name="ViT-Ti",
        short="vit_micro",
        cifar=("vit_tiny_cifar", _NO_BIAS),
        imagenet=("deit_tiny", {}),
        laptop=("vit_micro", {}),
    ),
    Network(
        name="ViT-S",
        short="vit_micro wide",
        cifar=("vit_small_cifar", _NO_BIAS),
        imagenet=("deit_small", {}),
        laptop=("vit_micro", {"embed_dim": 108, "num_heads": 9}),
    ),
    Network(
        name="ViT-Ti GAP",
        short="vit_micro_gap",
        cifar=("vit_tiny_cifar", {**_NO_BIAS, "class_token": False, "global_pool": "avg"}),
        imagenet=("deit_tiny_gap", {}),
        laptop=("vit_micro_gap", {}),
    ),
    Network(
        name="ConViT-Ti",
        short="convit_micro",
        cifar=("convit_tiny", {"img_size": 32, "patch_size": 2}),
        imagenet=("convit_tiny", {}),
        laptop=("convit_micro", {}),
    ),
    Network(
        name="PiT-Ti",
        short="pit_micro",
        cifar=("pit_tiny_cifar", {"stride": 1}),
        imagenet=("pit_ti_224", {}),
        laptop=("pit_tiny_cifar", _PIT),
        desk=(
            "pit_tiny_cifar",
            {**_PIT, "patch_size": 2, "stride": 2, "base_dims": (24, 24, 24)},
        ),
    ),
    Network(
        name="Swin-Ti",
        short="swin_micro",
        cifar=("swin_tiny_cifar", _NO_BIAS),
        imagenet=("swin_tiny_patch4_window7_224", {}),
        laptop=("swin_tiny_cifar", _SWIN),
        desk=("swin_tiny_cifar", {**_SWIN, "patch_size": 2, "window_size": 4, "embed_dim": 48}),
    ),
    Network(
        name="ResNet-50",
        short="resnet_micro",
        cifar=("resnet_preact_50", {"stem": "cifar"}),
        imagenet=("resnet_preact_50", {}),
        laptop=("resnet_micro", {}),
    ),
    Network(
        name="ResNet-50, post-activation",
        short="resnet_postact_micro",
        cifar=("resnet_postact_50", {"stem": "cifar"}),
        imagenet=("resnet_postact_50", {}),
        laptop=("resnet_postact_micro", {}),
    ),
    Network(
        name="ResNet-101",
        short="resnet_micro wide",
        cifar=("resnet_preact_101", {"stem": "cifar"}),
        imagenet=("resnet_preact_101", {}),
        laptop=("resnet_micro", {"widths": (30, 60, 120)}),
    ),
    Network(
        name="AlterNet-50",
        short="alternet_micro",
        cifar=("alternet_50", _ONE_BY_ONE),
        imagenet=("alternet_50", {}),
        laptop=("alternet_micro", {}),
    ),
)
NETWORKS = {network.name: network for network in _ALL}


def trainings(
    scale: Scale, names: Iterable[str], *, small: bool = False, **how: Any
) -> dict[str, Training]:
    """Networks of these names, by what a table calls them."""
    found = [NETWORKS[name] for name in names]
    return {n.label(scale, small): n.training(scale, small=small, **how) for n in found}


def looked_into(scale: Scale, *, imagenet: bool = False) -> dict[str, Training]:
    """Whose units are looked at: ViT, ResNet, PiT and Swin.

    At a desk ViT, ResNet and AlterNet, all images once, the ViT with 8 blocks of 4 heads.
    """
    four = ("ViT-Ti", "ResNet-50", "PiT-Ti", "Swin-Ti")
    if scale.name != "desk":
        names = scale.pick(paper=four, laptop=four, smoke=four[:2])
        return trainings(scale, names, imagenet=imagenet)
    deep = trainings(scale, four[:1], small=True, depth=8, embed_dim=64, num_heads=4)
    return deep | trainings(scale, ("ResNet-50", "AlterNet-50"), small=True)


def augmented(scale: Scale, strong: bool) -> dict[str, Any]:
    """How a training has strong or weak augmentation: its recipe, or what changes in it."""
    if scale.is_paper:
        return {"recipe": "cifar" if strong else "cifar_weak"}
    return {"changes": STRONG if strong else {}}
