"""ConViT: equal to timm's, exact under every switch, lean when its gates are shut."""

import pytest
import timm
import torch
from torch import nn

import vitascope
from model_making import check_gradient_checkpointing, randomised
from vitascope import capture, create_model
from vitascope.errors import UserError
from vitascope.layers import GPSA, gpsa_layers
from vitascope.measure.ablation.masking import forced_gates, without_positions
from vitascope.models.weights import from_timm, to_timm

MICRO = {"img_size": 16, "patch_size": 4, "embed_dim": 36, "depth": 4, "num_classes": 5}


def micro(**kwargs):
    return create_model("convit_micro", **{**MICRO, "num_gpsa_blocks": 2, **kwargs})


def pair(name, num_blocks=12, **kwargs):
    """Ours and timm's with the same weights; of fewer blocks the last has no positions."""
    shape, local = {"num_classes": 10, "depth": num_blocks}, min(10, num_blocks - 1)
    theirs = timm.create_model(name, local_up_to_layer=local, **shape, **kwargs)
    theirs = randomised(theirs, 0.05).eval()
    ours = create_model(name, num_gpsa_blocks=local, **shape, **kwargs).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize(
    ("name", "size", "num_blocks"),
    [
        ("convit_tiny", 224, 12),
        ("convit_tiny", 96, 12),
        ("convit_small", 96, 4),
        ("convit_base", 64, 2),
    ],
)
def test_logits_equal_timms_in_single_precision(name, size, num_blocks):
    ours, theirs = pair(name, num_blocks, img_size=size)
    images = torch.randn(1, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "size", "num_blocks"),
    [("convit_tiny", 96, 12), ("convit_small", 64, 4), ("convit_base", 32, 2)],
)
def test_logits_and_gradients_equal_timms_in_double_precision(name, size, num_blocks):
    ours, theirs = (model.double() for model in pair(name, num_blocks, img_size=size))
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    for model in (ours, theirs):
        model(images).square().sum().backward()
    torch.testing.assert_close(ours(images), theirs(images), rtol=1e-10, atol=1e-10)
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-7, atol=1e-9)


def test_weights_travel_to_timm_and_back():
    ours, theirs = pair("convit_tiny", img_size=32)
    theirs.load_state_dict(to_timm(ours.state_dict()))
    back = from_timm(theirs.state_dict())
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(back[name], value, rtol=0, atol=0)
    assert back.keys() == ours.state_dict().keys()


def test_a_fresh_model_starts_as_convolutions_as_timms_does():
    ours = create_model("convit_small", img_size=32)
    theirs = timm.create_model("convit_small", img_size=32)
    expected = theirs.state_dict()
    for name, value in ours.state_dict().items():
        if name.endswith(("attn.v.weight", "pos_proj.weight", "gating_param")):
            torch.testing.assert_close(value, expected[name], rtol=0, atol=0)
        elif value.ndim > 1 and "patch_embed" not in name:
            assert value.std() == pytest.approx(expected[name].std().item(), rel=0.2), name


def test_the_class_token_joins_after_the_last_gpsa_block():
    model = micro().eval()
    lengths = []
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _i, out: lengths.append(out.shape[1]))
    model(torch.randn(1, 3, 16, 16))
    assert lengths == [16, 16, 17, 17]


@pytest.mark.parametrize("count", [0, 1, 4])
def test_any_number_of_gpsa_blocks(count):
    model = micro(num_gpsa_blocks=count)
    kinds = [isinstance(block.attn, GPSA) for block in model.blocks]
    assert kinds == [True] * count + [False] * (4 - count)
    assert model(torch.randn(2, 3, 16, 16)).shape == (2, 5)
    assert (model.cls_token is None) == (count == 4)


def test_with_gpsa_everywhere_the_patches_are_averaged():
    model = micro(num_gpsa_blocks=4).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = model.head(model.forward_features(images).mean(dim=1))
        torch.testing.assert_close(model(images), expected)


def test_average_pooling_leaves_the_class_token_out():
    model = micro(global_pool="avg").eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        expected = model.head(model.forward_features(images)[:, 1:].mean(dim=1))
        torch.testing.assert_close(model(images), expected)


def test_a_dynamic_size_equals_a_model_made_for_it():
    dynamic = randomised(micro(dynamic_img_size=True)).eval()
    fixed = micro(img_size=(16, 24)).eval()
    images = torch.randn(2, 3, 16, 24)
    state = dynamic.state_dict()
    resampled = timm.layers.resample_abs_pos_embed(
        state["pos_embed"], [4, 6], [4, 4], num_prefix_tokens=0
    )
    fixed.load_state_dict({**state, "pos_embed": resampled})
    with torch.no_grad():
        torch.testing.assert_close(dynamic(images), fixed(images))
        again = dynamic(torch.randn(1, 3, 16, 16))
    assert again.shape == (1, 5)


def test_gates_change_the_logits_and_forcing_them_leaves_nothing_behind():
    model = randomised(micro()).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        before = model(images)
        with forced_gates(list(gpsa_layers(model).values())[:1], 1.0):
            assert [layer.gate[0].item() == 1 for layer in gpsa_layers(model).values()] == [1, 0]
            forced = model(images)
        with pytest.raises(ZeroDivisionError), forced_gates(gpsa_layers(model).values(), 0.0):
            assert (model(images) - forced).abs().max() > 1e-4
            1 / 0  # noqa: B018
        torch.testing.assert_close(model(images), before, rtol=0, atol=0)
    assert (forced - before).abs().max() > 1e-4


def test_forced_gates_are_the_gates_of_saturated_parameters():
    model = randomised(micro()).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad(), forced_gates(gpsa_layers(model).values(), 0.0):
        forced = model(images)
    with torch.no_grad():
        for layer in gpsa_layers(model).values():
            layer.gating_param.fill_(-200.0)
        torch.testing.assert_close(model(images), forced)


def test_position_embeddings_come_back_after_masking():
    model = randomised(micro()).eval()
    images = torch.randn(2, 3, 16, 16)
    table = model.pos_embed.detach().clone()
    with torch.no_grad():
        before = model(images)
        with without_positions(model):
            masked = model(images)
        torch.testing.assert_close(model(images), before, rtol=0, atol=0)
    assert (masked - before).abs().max() > 1e-4
    torch.testing.assert_close(model.pos_embed.detach(), table, rtol=0, atol=0)
    bare = micro(use_pos_embed=False).eval()
    bare.load_state_dict({k: v for k, v in model.state_dict().items() if k != "pos_embed"})
    with torch.no_grad():
        torch.testing.assert_close(bare(images), masked)


def test_the_ablations_of_table_3_freeze_what_they_name():
    gates = micro(gate_init=0.0, train_gates=False)
    frozen = {name for name, p in gates.named_parameters() if not p.requires_grad}
    assert frozen == {f"blocks.{i}.attn.gating_param" for i in range(2)}
    assert all((layer.gate == 0.5).all() for layer in gpsa_layers(gates).values())
    whole = micro(train_gpsa=False)
    frozen = {name for name, p in whole.named_parameters() if not p.requires_grad}
    attention = {
        n for n, _ in whole.named_parameters() if n.startswith(("blocks.0.attn", "blocks.1.attn"))
    }
    assert frozen == attention
    random = micro(conv_init=False)
    assert (random.blocks[0].attn.v.weight - torch.eye(36)).abs().max() > 0.5
    psa = micro(attention="psa")
    assert not any(name.endswith("gating_param") for name, _ in psa.named_parameters())


@pytest.fixture
def saturated():
    """Gates at 0, at 1 and between, in every layer but one, which has them all at 1."""
    model = randomised(micro(num_heads=4, num_gpsa_blocks=3)).eval()
    with torch.no_grad():
        for block in model.blocks[:2]:
            block.attn.gating_param.copy_(torch.tensor([0.3, 9.0, -9.0, 10.0]))
        model.blocks[2].attn.gating_param.fill_(9.0)
    return model


def test_pruning_shut_gates_changes_the_logits_as_little_as_forcing_them(saturated):
    images = torch.randn(2, 3, 16, 16)
    pruned = saturated.prune_gates(1e-3)
    assert pruned.pruning.num_heads == 12
    assert pruned.pruning.num_without_content == 2 * 2 + 4
    assert pruned.pruning.num_without_position == 2
    with torch.no_grad():
        difference = (pruned(images) - saturated(images)).abs().max()
        assert 0 < difference < 20 * pruned.pruning.bound
        for layer in gpsa_layers(saturated).values():  # exactly: the same heads, wholly shut
            layer.gating_param[layer.gating_param > 8] = 100.0
            layer.gating_param[layer.gating_param < -8] = -200.0
        torch.testing.assert_close(pruned(images), saturated(images))


def test_the_bound_on_attention_rows_holds(saturated):
    layer = saturated.blocks[0].attn
    maps = layer.attention(torch.randn(2, 16, 36))
    rounded = torch.where(layer.gate > 0.5, 1.0, 0.0)[:, None, None]
    replaced = torch.lerp(maps.content, maps.position, rounded)
    change = (replaced - maps.mixed).abs().sum(-1)[:, 1:].max()  # heads 1-3 are shut
    bound = saturated.prune_gates(1e-3).pruning.bound
    assert 0 < change <= bound
    assert bound == pytest.approx(2 * torch.sigmoid(torch.tensor(-9.0)).item())


def test_pruning_at_tolerance_zero_changes_nothing(saturated):
    images = torch.randn(2, 3, 16, 16)
    pruned = saturated.prune_gates(0.0)
    with torch.no_grad():
        torch.testing.assert_close(pruned(images), saturated(images), rtol=0, atol=0)
    assert pruned.pruning.bound == 0
    assert not [m for m in saturated.modules() if type(m).__name__ == "PrunedGPSA"]


def test_a_distilled_model_gives_a_pair_in_training_and_their_mean_otherwise():
    model = create_model("convit_micro_distilled", **MICRO, num_gpsa_blocks=2)
    images = torch.randn(2, 3, 16, 16)
    model.set_distilled_training(True)
    first, second = model(images)
    assert (first - second).abs().max() > 0
    model.eval()
    torch.testing.assert_close(model(images), (first + second) / 2)
    model.reset_classifier(7)
    assert model(images).shape == (2, 7)
    assert model.forward_features(images).shape == (2, 18, 36)


def test_new_heads_of_a_distilled_model_are_drawn_apart():
    model = create_model("convit_micro_distilled", **MICRO, num_gpsa_blocks=2)
    for num_classes in (model.num_classes, 7):
        model.reset_classifier(num_classes)
        head, distilled = model.get_classifier()
        assert head.weight.shape == distilled.weight.shape
        assert (head.weight != distilled.weight).any(1).all()
        spread = head.weight.std().item()
        assert distilled.weight.std().item() == pytest.approx(spread, rel=0.3)
    model.reset_classifier(0)
    assert [type(part).__name__ for part in model.get_classifier()] == ["Identity"] * 2


def test_intermediates_are_what_the_blocks_give():
    model = randomised(micro(img_size=(16, 24))).eval()
    seen = []
    for block in model.blocks:
        block.register_forward_hook(lambda _m, _i, out: seen.append(out))
    with torch.no_grad():
        final, found = model.forward_intermediates(
            torch.randn(2, 3, 16, 24), return_prefix_tokens=True
        )
    assert [prefix.shape[1] for _, prefix in found] == [0, 0, 1, 1]
    for out, (patches, prefix) in zip(seen, found, strict=True):
        assert patches.shape == (2, 36, 4, 6)
        tokens = torch.cat([prefix, patches.flatten(2).mT], dim=1)
        torch.testing.assert_close(tokens, out, rtol=0, atol=0)
    torch.testing.assert_close(final, model.norm(seen[-1]))


def test_gradient_checkpointing_gives_the_same_gradients():
    model = randomised(micro()).train()
    images = torch.randn(2, 3, 16, 16)
    check_gradient_checkpointing(model, images)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: micro(img_size=18), "18 x 18 cannot be cut into patches of 4 x 4"),
        (lambda: micro()(torch.zeros(1, 1, 16, 16)), "3 channels"),
        (lambda: micro()(torch.zeros(1, 3, 20, 20)), "16 x 16 and got 20 x 20"),
        (lambda: micro(dynamic_img_size=True)(torch.zeros(1, 3, 18, 16)), "cannot be cut"),
        (lambda: micro(num_heads=5), "36 cannot be split over 5 heads"),
        (lambda: micro(num_gpsa_blocks=5), "num_gpsa_blocks=5, but the model has 4"),
        (lambda: micro(num_gpsa_blocks=4, global_pool="token"), "without a class token"),
        (lambda: micro(global_pool="max"), "global_pool='max'; possible here"),
        (lambda: micro(attention="local"), "there are: gpsa, psa"),
        (lambda: micro(hedas=4), "takes no such argument.*hedas"),
        (lambda: create_model("convit_tyni"), "did you mean 'convit_tiny'"),
        (lambda: create_model("timm:convit_x"), "unknown model"),
        (lambda: micro().prune_gates(0.7), r"must lie in \[0, 0.5\)"),
        (lambda: micro(num_gpsa_blocks=0).prune_gates(), "no GPSA layer"),
        (lambda: without_positions(nn.Linear(1, 1)).__enter__(), "no absolute position embed"),
    ],
)
def test_what_cannot_work_is_one_clear_error(make, says):
    with pytest.raises(UserError, match=says):
        make()


def test_a_class_token_may_be_an_extra_patch():
    model = micro(token_first=True).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    layer, x = model.blocks[0].attn.double(), torch.randn(2, 17, 36, dtype=torch.float64)
    maps = layer.attention(x, (4, 4))
    torch.testing.assert_close(maps.mixed.sum(-1), torch.ones_like(maps.mixed[..., 0]))
    share = layer.token_logit.sigmoid()
    torch.testing.assert_close(maps.position[0, :, 1:, 0], share[:, None].expand(-1, 16))
    out = (maps.mixed @ layer.values(x)).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer(x, (4, 4)), layer.proj(out))


def test_an_extra_patch_is_seen_from_the_first_block_on():
    model = micro(token_first=True).eval()
    images = torch.randn(2, 3, 16, 16)
    with capture.attention(model) as maps:
        assert model(images).shape == (2, 5)
    assert {each.shape[-1] for each in maps.values()} == {17}
    torch.testing.assert_close(model.blocks[0].attn.token_logit.sigmoid(), torch.full((9,), 0.5))
    _, blocks = model.forward_intermediates(images)
    assert [block.shape for block in blocks] == [(2, 36, 4, 4)] * 4
    assert vitascope.measure.nonlocality(model, images).layers == tuple(maps)
    model.train()(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in model.parameters())
    for wrong in ({"attention": "psa"}, {"class_token": False}):
        with pytest.raises(UserError, match="token_first"):
            micro(token_first=True, **wrong)
    with pytest.raises(UserError, match="pruned"):
        model.prune_gates()
