"""The sizes of the papers' models, entered in timm's registry under ``vs_*``.

ConViT and the DeiT baselines of Table 1 (d'Ascoli et al. 2021), their distilled forms, AlterNets
and the pre-activation ResNets they come from (Park and Kim 2022), ResNets in their first form
(``postact``) and ResNeXt, Park and Kim's ViTs without a class token (``gap``) and with attention
over neighbourhoods (``convolutional_vit``), the LocalViT and PVTs into which context broadcasting
goes, the compact transformer CCT, and small ones for small images, which train on two CPU cores:
*micro* (0.26M parameters, for tests and demonstrations) and *mini* (1M, shaped so that a CPU runs
near its best: heads of 16 channels, a 16 x 16 grid, all matched in parameters and multiply-adds).
``+`` models have as many channels per head as DeiT. Other networks of the papers at CIFAR size:
:mod:`vitascope.models.vit.cifar`.
"""

from typing import Any

from timm.data import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn
from torch import nn

from vitascope.layers.self_attention import SelfAttention
from vitascope.models.convit.convit import ConViT, ConViTDistilled
from vitascope.models.resnet.alternet import AlterNet
from vitascope.models.resnet.resnet import PostActResNet, PreActResNet
from vitascope.models.vit.cct import CCT
from vitascope.models.vit.convolutional_vit import ConvolutionalViT
from vitascope.models.vit.head_dim import with_head_dim
from vitascope.models.vit.localvit import LocalViT
from vitascope.models.vit.patches import PatchEmbed
from vitascope.models.vit.pvt import PVT

PREFIX = "vs_"

_CONVIT = {  # heads, width
    "tiny": (4, 192),
    "tiny_plus": (4, 256),
    "small": (9, 432),
    "small_plus": (9, 576),
    "base": (16, 768),
    "base_plus": (16, 1024),
}
_DEIT = {
    "tiny": (3, 192),
    "tiny_plus": (4, 256),
    "small": (6, 384),
    "small_plus": (9, 576),
    "base": (12, 768),
    "base_plus": (16, 1024),
}
_RESNET: dict[str, tuple[str, tuple[int, ...]]] = {  # blocks and depths of He et al. 2016
    "18": ("basic", (2, 2, 2, 2)),
    "34": ("basic", (3, 4, 6, 3)),
    "50": ("bottleneck", (3, 4, 6, 3)),
    "101": ("bottleneck", (3, 4, 23, 3)),
    "152": ("bottleneck", (3, 8, 36, 3)),
}
# Heads of 28 give an attention block the parameters of the convolution block that it replaces.
_MICRO_RESNET = {"img_size": 32, "head_dim": 28}
_RESNEXT = {"groups": 32, "group_width": 4}  # Xie et al. 2017: 32 x 4d
_MICRO_RESNEXT = {"block": "bottleneck", "widths": (64, 128, 256), "groups": 8, "group_width": 16}
_MICRO_PVT = {  # 32 x 32 images, grids of 16, 8 and 4, all with 4 x 4 keys: 240k parameters
    "img_size": 32,
    "patch_sizes": (2, 2, 2),
    "embed_dims": (32, 48, 76),
    "depths": (1, 1, 2),
    "num_heads": (1, 2, 4),
    "mlp_ratios": (4, 4, 4),
    "sr_ratios": (4, 2, 1),
}
# 32 x 32 images, an 8 x 8 grid, 3 x 3 heads: about 260k parameters.
_MICRO = {"img_size": 32, "patch_size": 4, "embed_dim": 72, "depth": 4, "num_heads": 9}
_CCT = {"img_size": 32, "patch_size": 4, "embed_dim": 128, "depth": 2, "num_heads": 2}
# 32 x 32 images, a 16 x 16 grid, 3 x 3 heads of 16: about 1.04M parameters, 330M multiply-adds.
_MINI = {"img_size": 32, "patch_size": 2, "embed_dim": 144, "depth": 4, "num_heads": 9}
# As many parameters and multiply-adds as those, so wide at first; maps of 32 x 32 after the stem.
_MINI_RESNET = {"img_size": 32, "stem_stride": 1, "widths": (72, 96, 128), "head_dim": 48}


def _sizes() -> dict[str, tuple[type[nn.Module], dict[str, Any]]]:
    """Every model of ours: its class and what it is made with."""
    models: dict[str, tuple[type[nn.Module], dict[str, Any]]] = {}
    for size, (heads, width) in _CONVIT.items():
        kwargs: dict[str, Any] = {"num_heads": heads, "embed_dim": width, "num_gpsa_blocks": 10}
        models[f"convit_{size}"] = (ConViT, kwargs)
        models[f"convit_{size}_distilled"] = (ConViTDistilled, kwargs)
    for size, (heads, width) in _DEIT.items():
        kwargs = {"num_heads": heads, "embed_dim": width, "embed_layer": PatchEmbed}
        models[f"deit_{size}"] = (VisionTransformer, kwargs)
        models[f"deit_{size}_distilled"] = (VisionTransformerDistilled, kwargs)
    models["convit_micro"] = (ConViT, {**_MICRO, "num_gpsa_blocks": 3})
    models["convit_micro_distilled"] = (ConViTDistilled, {**_MICRO, "num_gpsa_blocks": 3})
    models["vit_micro"] = (VisionTransformer, {**_MICRO, "embed_layer": PatchEmbed})
    models["vit_micro_distilled"] = (VisionTransformerDistilled, models["vit_micro"][1])
    models["convit_mini"] = (ConViT, {**_MINI, "num_gpsa_blocks": 3})
    models["convit_mini_distilled"] = (ConViTDistilled, {**_MINI, "num_gpsa_blocks": 3})
    models["vit_mini"] = (VisionTransformer, {**_MINI, "embed_layer": PatchEmbed})
    models["vit_mini_distilled"] = (VisionTransformerDistilled, models["vit_mini"][1])
    for name in ("deit_tiny", "deit_small", "vit_micro", "vit_mini"):
        no_token = {"class_token": False, "global_pool": "avg"}
        models[f"{name}_gap"] = (VisionTransformer, {**models[name][1], **no_token})
    models["convolutional_vit_tiny"] = (ConvolutionalViT, models["deit_tiny"][1])
    models["convolutional_vit_small"] = (ConvolutionalViT, models["deit_small"][1])
    models["convolutional_vit_micro"] = (ConvolutionalViT, _MICRO)
    models["convolutional_vit_mini"] = (ConvolutionalViT, _MINI)
    models["cct_2_3x2"] = (CCT, _CCT)
    models["localvit_tiny"] = (LocalViT, {"num_heads": 4, "embed_dim": 192})
    models["localvit_micro"] = (LocalViT, _MICRO)
    models["pvt_tiny"] = (PVT, {"depths": (2, 2, 2, 2)})
    models["pvt_small"] = (PVT, {"depths": (3, 4, 6, 3)})
    models["pvt_micro"] = (PVT, _MICRO_PVT)
    for size, (block, depths) in _RESNET.items():
        scale = 4 if block == "bottleneck" else 1
        widths = tuple(scale * width for width in (64, 128, 256, 512))
        kwargs = {"block": block, "widths": widths, "stem": "imagenet"}
        models[f"resnet_preact_{size}"] = (PreActResNet, {**kwargs, "depths": depths})
        models[f"resnet_blur_{size}"] = (PreActResNet, {**kwargs, "depths": depths, "blur": 2})
        models[f"resnet_postact_{size}"] = (PostActResNet, {**kwargs, "depths": depths})
        if size == "50":
            models["resnext_50"] = (PostActResNet, {**kwargs, **_RESNEXT, "depths": depths})
        if size != "18":
            depths = (*depths[:3], 4)  # even, so that attention ends it
        turns = {"depths": depths, "num_msa": (0, 1, 1, 1) if size == "18" else (0, 1, 3, 2)}
        models[f"alternet_{size}"] = (AlterNet, {**kwargs, **turns})
    models["resnet_micro"] = (PreActResNet, _MICRO_RESNET)
    models["resnet_blur_micro"] = (PreActResNet, {**_MICRO_RESNET, "blur": 2})
    models["alternet_micro"] = (AlterNet, _MICRO_RESNET)
    models["resnet_postact_micro"] = (PostActResNet, _MICRO_RESNET)
    models["resnext_micro"] = (PostActResNet, {**_MICRO_RESNET, **_MICRO_RESNEXT})
    models["resnet_mini"] = (PreActResNet, _MINI_RESNET)
    models["resnet_postact_mini"] = (PostActResNet, _MINI_RESNET)
    models["alternet_mini"] = (AlterNet, _MINI_RESNET)
    return models


OURS = _sizes()


def _pretrained(name: str, model: type[nn.Module], kwargs: dict[str, Any]) -> dict[str, Any]:
    """timm's description of a model: input, statistics and, where there are any, weights."""
    staged = issubclass(model, PreActResNet)
    patches = "stages.0.patch_embed.proj" if issubclass(model, PVT) else "patch_embed.proj"
    patches += ".0" if issubclass(model, CCT) else ""
    size = kwargs.get("img_size", 224)
    heads = ("head", "head_dist") if name.endswith("_distilled") else "head"
    return {
        "num_classes": 1000,
        "input_size": (3, size, size),
        "pool_size": None,
        "crop_pct": 0.9 if size == 224 else 1.0,
        "interpolation": "bicubic",
        "mean": IMAGENET_DEFAULT_MEAN,
        "std": IMAGENET_DEFAULT_STD,
        "fixed_input_size": not staged,
        "first_conv": ("stem.0" if issubclass(model, PostActResNet) else "stem")
        if staged
        else patches,
        "classifier": "head.fc" if staged else heads,
        "license": "apache-2.0",
        **_released(name),
    }


def _released(name: str) -> dict[str, Any]:
    """Return where timm keeps weights that fit."""
    family, size, *rest = name.split("_")
    forms: dict[str, tuple[list[str], ...]] = {"convit": ([],), "deit": ([], ["distilled"])}
    if size not in ("tiny", "small", "base") or rest not in forms.get(family, ()):
        return {}
    theirs = name if family == "convit" else "_".join([family, size, *rest, "patch16_224"])
    return {"hf_hub_id": f"timm/{theirs}.fb_in1k"}


default_cfgs = generate_default_cfgs(
    {
        PREFIX + name + (".fb_in1k" if _released(name) else ""): _pretrained(name, model, kwargs)
        for name, (model, kwargs) in OURS.items()
    }
)


def _register(name: str, model: type[nn.Module], defaults: dict[str, Any]) -> None:
    tokens = not issubclass(model, (PreActResNet, PVT))
    stages = tuple(range(len(defaults.get("depths", (2, 2, 2)))))
    layer = {"attn_layer": SelfAttention} if issubclass(model, VisionTransformer) else {}

    def create(pretrained: bool = False, **kwargs: Any) -> nn.Module:
        if issubclass(model, VisionTransformer) and not issubclass(model, ConvolutionalViT):
            kwargs = with_head_dim(kwargs)
        return build_model_with_cfg(
            model,
            PREFIX + name,
            pretrained,
            pretrained_filter_fn=checkpoint_filter_fn if tokens else None,
            feature_cfg={"out_indices": 3 if tokens else stages, "feature_cls": "getter"},
            **{**layer, **defaults, **kwargs},
        )

    create.__name__ = create.__qualname__ = PREFIX + name
    register_model(create)


for _name, (_model, _defaults) in OURS.items():
    _register(_name, _model, _defaults)
