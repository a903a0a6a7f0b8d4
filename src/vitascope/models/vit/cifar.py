"""The other networks of the papers for images of 32 x 32: timm's, with patches that fit.

timm's definitions start with patches of 4 to 16 pixels, or a stem that halves twice: on CIFAR
little of the image would be left. Park and Kim 2022 (https://arxiv.org/abs/2202.06709, appendix A)
take patches of 2 x 2 for ViT and PiT, and 1 x 1 with windows of 4 x 4 for Swin. For the others the
paper names no size, and the choice is ours:

* PiT's patches do not overlap (stride 2; half a patch in PiT's own 16 x 16; ``stride=1`` as in
  the released configuration);
* Twins has Swin's patches and windows; MLP-Mixer-Ti has ViT-Ti's patches, width and depth;
* ResNeXt has a 3 x 3 stem and no pooling, as is common on CIFAR;
* LeViT's stem reduces by 8 in place of 16; CoaT-Lite and PVTv2 keep their stem, which reduces by 4:
  timm's definitions leave no other choice.

``create_model("swin_tiny_cifar", num_classes=100)``; any argument of timm's model may be changed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import timm
from timm.models import (
    build_model_with_cfg,
    generate_default_cfgs,
    model_entrypoint,
    register_model,
)
from timm.models.mlp_mixer import MlpMixer
from timm.models.resnet import Bottleneck, ResNet
from torch import nn

from vitascope.models.registry import PREFIX
from vitascope.models.vit.head_dim import with_head_dim


class SmallStemResNet(ResNet):
    """timm's ResNet with a stem that keeps the size of the image: 3 x 3, no pooling."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        stem: Any = self.conv1
        small: Any = nn.Conv2d(stem.in_channels, stem.out_channels, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(small.weight, mode="fan_out", nonlinearity="relu")
        nothing: Any = nn.Identity()
        self.conv1, self.maxpool = small, nothing
        for info in self.feature_info:
            info["reduction"] = max(1, info["reduction"] // 4)


_RESNEXT = {"block": Bottleneck, "layers": [3, 4, 6, 3], "cardinality": 32, "base_width": 4}
_SWIN = {"img_size": 32, "patch_size": 1}

# name: timm's name, or a class of timm's where its names fix the patches; what differs from it
CIFAR: dict[str, tuple[str | type[nn.Module], dict[str, Any]]] = {
    "vit_tiny_cifar": ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 2}),
    "vit_small_cifar": ("vit_small_patch16_224", {"img_size": 32, "patch_size": 2}),
    "pit_tiny_cifar": ("pit_ti_224", {"img_size": 32, "patch_size": 2, "stride": 2}),
    "swin_tiny_cifar": ("swin_tiny_patch4_window7_224", {**_SWIN, "window_size": 4}),
    "twins_small_cifar": ("twins_svt_small", {**_SWIN, "wss": (4, 4, 4, 4)}),
    "mixer_tiny_cifar": (
        MlpMixer,
        {"img_size": 32, "patch_size": 2, "num_blocks": 12, "embed_dim": 192},
    ),
    "levit_128s_cifar": ("levit_128s", {"img_size": 32, "stem_type": "s8", "distilled": False}),
    "coat_lite_tiny_cifar": ("coat_lite_tiny", {"img_size": 32}),
    "pvt_v2_b0_cifar": ("pvt_v2_b0", {}),
    "resnext50_cifar": (SmallStemResNet, _RESNEXT),
}


def _description(source: str | type[nn.Module]) -> dict[str, Any]:
    """timm's description of its own model, for images of 32 x 32 and without weights."""
    like: dict[type[nn.Module], str] = {
        MlpMixer: "mixer_s16_224",
        SmallStemResNet: "resnext50_32x4d",
    }
    theirs = timm.get_pretrained_cfg(source if isinstance(source, str) else like[source])
    names = ("num_classes", "interpolation", "mean", "std", "first_conv", "classifier")
    fields = {name: getattr(theirs, name) for name in names}
    return {**fields, "input_size": (3, 32, 32), "pool_size": None, "crop_pct": 1.0}


default_cfgs = generate_default_cfgs(
    {PREFIX + name: _description(source) for name, (source, _) in CIFAR.items()}
)


def _register(name: str, source: str | type[nn.Module], defaults: dict[str, Any]) -> None:
    build: Callable[..., nn.Module] = (
        model_entrypoint(source)
        if isinstance(source, str)
        else partial(build_model_with_cfg, source, name)
    )

    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        ours = kwargs.pop("pretrained_cfg", None) or timm.get_pretrained_cfg(name)
        if name.startswith(PREFIX + "vit_"):
            kwargs = with_head_dim(kwargs)
        return build(pretrained=pretrained, pretrained_cfg=ours, **{**defaults, **kwargs})

    create.__name__ = create.__qualname__ = name
    register_model(create)


for _name, (_source, _defaults) in CIFAR.items():
    _register(PREFIX + _name, _source, _defaults)
