"""What holds of every model of ours, in its own size or shrunk to one that a test can afford."""

import pytest
import timm
import timm.optim
import torch

import vitascope
from vitascope.loading.parameters import PARAMETERS
from vitascope.models.registry import OURS
from vitascope.models.resnet.resnet import PreActResNet
from vitascope.models.vit.pvt import PVT

SMALL = {"img_size": 16, "patch_size": 4, "num_classes": 7, "depth": 3}
STAGED = {"depths": (2, 2, 2), "widths": (20, 40, 80), "stem": "cifar", "head_dim": 8}
PYRAMID = {
    "img_size": 16,
    "patch_sizes": (1, 2, 2),
    "embed_dims": (20, 40, 80),
    "depths": (1, 1, 1),
    "num_heads": (1, 2, 4),
    "mlp_ratios": (2, 2, 2),
    "sr_ratios": (4, 2, 1),
}


def small(name, **kwargs):
    if not has_tokens(name):
        return vitascope.create_model(name, **{"num_classes": 7, **_shrink(name), **kwargs})
    if "convit" in name:
        kwargs.setdefault("num_gpsa_blocks", 2)
    if not name.split("_")[1].startswith("micro"):
        heads = OURS[name][1]["num_heads"]
        kwargs.setdefault("embed_dim", 4 * heads)
    return vitascope.create_model(name, **{**SMALL, **kwargs})


@pytest.fixture(params=sorted(OURS))
def name(request):
    return request.param


def has_tokens(name):
    return not issubclass(OURS[name][0], (PreActResNet, PVT))


def test_it_gives_finite_logits_and_every_parameter_a_gradient(name):
    model = small(name)
    images = torch.randn(2, 3, 16, 16)
    if name.endswith("distilled"):
        model.set_distilled_training(True)
        logits = torch.stack(model(images))
    else:
        logits = model(images)
    assert logits.shape[-2:] == (2, 7)
    assert logits.isfinite().all()
    logits.square().sum().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    if name.startswith("localvit"):  # the class token does not read what its last block adds
        dead = [n for n in dead if not n.startswith("blocks.2.mlp.")]
    assert not dead


def test_it_has_timms_surface(name):
    model = small(name).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        features = model.forward_features(images)
        torch.testing.assert_close(model.forward_head(features), model(images))
        assert model.forward_head(features, pre_logits=True).shape == (2, model.num_features)
        final, found = model.forward_intermediates(images, indices=2)
        torch.testing.assert_close(final, features)
        shapes = (
            [(2, model.embed_dim, 4, 4)] * 2 if has_tokens(name) else [(2, 40, 8, 8), (2, 80, 4, 4)]
        )
        assert [f.shape for f in found] == shapes
        model.reset_classifier(3)
        assert model(images).shape == (2, 3)
        model.reset_classifier(0)
        assert model(images).shape == (2, model.num_features)
    if has_tokens(name):
        assert {"pos_embed", "cls_token"} <= set(model.no_weight_decay())
    assert len(model.feature_info) == 3
    model.set_grad_checkpointing()


def test_timm_knows_it_and_its_tools_work_on_it(name):
    model = timm.create_model(f"vs_{name}", features_only=True, out_indices=(0, 2), **_shrink(name))
    found = model(torch.randn(1, 3, 16, 16))
    assert [f.shape[-1] for f in found] == ([4, 4] if has_tokens(name) else [16, 4])
    assert model.feature_info.channels() == [f.shape[1] for f in found]
    groups = timm.optim.param_groups_layer_decay(small(name))
    assert sum(len(group["params"]) for group in groups) == len(list(small(name).parameters()))


def _shrink(name):
    if issubclass(OURS[name][0], PVT):
        return PYRAMID
    if not has_tokens(name):
        if name.startswith("resnext"):
            return STAGED | {"groups": 4, "group_width": 16}
        return STAGED | ({"num_msa": (0, 1, 1)} if name.startswith("alternet") else {})
    width = {} if "micro" in name else {"embed_dim": 4 * OURS[name][1]["num_heads"]}
    gpsa = {"num_gpsa_blocks": 2} if "convit" in name else {}
    return {"img_size": 16, "patch_size": 4, "depth": 3, **width, **gpsa}


def test_other_channels_and_sizes_work(name):
    fixed = not issubclass(OURS[name][0], PreActResNet)
    sizes = {"img_size": (8, 16), "dynamic_img_size": True} if fixed else {}
    model = small(name, in_chans=1, **sizes).eval()
    with torch.no_grad():
        assert model(torch.randn(1, 1, 8, 16)).shape == (1, 7)
        assert model(torch.randn(1, 1, 12, 8)).shape == (1, 7)


def test_its_description_for_timm_is_whole(name):
    config = timm.get_pretrained_cfg(f"vs_{name}")
    few = {"depth": 2} if has_tokens(name) else {}  # the description does not depend on it
    if "convit" in name:
        few["num_gpsa_blocks"] = 1
    with torch.device("meta"):
        model = vitascope.create_model(name, **few)
    if has_tokens(name):
        assert config.input_size == (3, *model.patch_embed.img_size)
    heads = (config.classifier,) if isinstance(config.classifier, str) else config.classifier
    for part in (config.first_conv, *heads):
        assert model.get_submodule(part).weight.ndim >= 2


def test_pretrained_names_point_at_weights_that_timm_has():
    for name in OURS:
        hub = timm.get_pretrained_cfg(f"vs_{name}").hf_hub_id
        if hub:
            assert timm.get_pretrained_cfg(hub.removeprefix("timm/")).hf_hub_id == hub
    assert timm.get_pretrained_cfg("vs_convit_tiny").hf_hub_id == "timm/convit_tiny.fb_in1k"
    assert timm.get_pretrained_cfg("vs_convit_tiny_plus").hf_hub_id is None


def test_ours_come_first_and_timms_are_reached_too():
    assert "resnet18" not in vitascope.list_models()
    assert vitascope.list_models("resnet18") == ["resnet18"]
    ours = vitascope.create_model("convit_tiny", device="meta")
    assert type(ours).__module__ == "vitascope.models.convit.convit"
    theirs = vitascope.create_model("timm:convit_tiny", device="meta")
    assert type(theirs).__module__ == "timm.models.convit"
    assert type(vitascope.create_model("resnet18", device="meta")).__name__ == "ResNet"


def test_a_local_folder_in_timms_format_loads_through_timm(tmp_path):
    model = vitascope.create_model("convit_micro", num_classes=4)
    timm.models.save_for_hf(model, tmp_path, model_config={"num_classes": 4})
    again = vitascope.create_model(f"local-dir:{tmp_path}", pretrained=True)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], value)


def test_the_listed_parameters_are_those_of_the_models():
    assert set(PARAMETERS) == set(vitascope.list_models())
    some = sorted(PARAMETERS)[::9]
    with torch.device("meta"):
        counted = {
            name: sum(p.numel() for p in vitascope.create_model(name).parameters()) for name in some
        }
    assert counted == {name: PARAMETERS[name] for name in some}


def test_a_resnet_normalises_its_last_stage_alone():
    model = vitascope.create_model("resnet_micro", num_classes=2).eval()
    with torch.no_grad():
        images = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        plain = model.forward_intermediates(images, intermediates_only=True)
        final, normed = model.forward_intermediates(images, norm=True)
    for before, after in zip(plain[:-1], normed[:-1], strict=True):
        torch.testing.assert_close(after, before)
    torch.testing.assert_close(normed[-1], final)
    assert not torch.allclose(normed[-1], plain[-1])
