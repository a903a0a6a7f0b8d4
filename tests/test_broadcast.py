"""Context broadcasting: its equations, its places in a model, and what must not change."""

import copy
import pickle

import numpy as np
import pytest
import timm
import torch
from timm.models.mlp_mixer import MlpMixer
from torch import nn

import vitascope
from model_making import randomised
from vitascope import capture
from vitascope.errors import UserError
from vitascope.layers import ContextBroadcast, broadcast_cost
from vitascope.layers.context_broadcasting.broadcast import context_broadcast, mean_token
from vitascope.layers.context_broadcasting.sublayers import attentions, mlps
from vitascope.layers.context_broadcasting.whole_image import visible
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import open_model, open_run
from vitascope.models.suffix import read_name
from vitascope.models.weights import load_weights
from vitascope.runs.train_model import train_once
from vitascope.training import recipe
from vitascope.training.run_folder.lock import save_tensors
from vitascope.training.trainer.optimizer import parameter_groups

KINDS = ("cb", "cb_s", "cb_gate", "cb_hybrid")
POSITIONS = ("front", "mid", "end")
WHERES = ("mlp", "msa", "both")


def tokens(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def small(name="vit_micro", **kwargs):
    """A model whose every part matters, in float64."""
    sizes = {"img_size": 16, "embed_dim": 36, "depth": 2, "num_classes": 5}
    return randomised(vitascope.create_model(name, **{**sizes, **kwargs}).double().eval())


@pytest.fixture
def images():
    return tokens(2, 3, 16, 16)


# the equations


def test_equal_tokens_stay_as_they_are():
    x = tokens(2, 1, 5).expand(2, 7, 5)
    torch.testing.assert_close(context_broadcast(x), x)


def test_the_mean_token_is_kept():
    x = tokens(2, 7, 5)
    torch.testing.assert_close(mean_token(context_broadcast(x)), mean_token(x))


@pytest.mark.parametrize("times", [1, 3, 10])
def test_every_time_halves_the_distance_to_the_mean(times):
    x = y = tokens(2, 7, 5)
    for _ in range(times):
        y = context_broadcast(y)
    mean = x.mean(1, keepdim=True)
    torch.testing.assert_close(y - mean, (x - mean) / 2**times)


def test_it_is_attention_with_half_the_weight_on_itself_and_half_on_all():
    x = tokens(2, 7, 5)
    attention = (torch.eye(7).double() + torch.full((7, 7), 1 / 7).double()) / 2
    torch.testing.assert_close(context_broadcast(x), attention @ x)


def test_the_scale_weighs_the_mean_of_each_channel():
    x, scale = tokens(2, 7, 5), tokens(5)
    mean = x.mean(1, keepdim=True)
    halved = context_broadcast(x, "cb_s", scale=scale)
    torch.testing.assert_close(halved, (x + scale * mean) / 2)
    added = context_broadcast(x, "cb_s", scale=scale, scale_form="added")
    torch.testing.assert_close(added, x + scale * mean)


def test_the_class_token_gates_every_token():
    x = tokens(2, 7, 5)
    gate = context_broadcast(x, "cb_gate")
    torch.testing.assert_close(gate, x * (x[:, :1] + 1))
    hybrid = context_broadcast(x, "cb_hybrid")
    torch.testing.assert_close(hybrid, x * x[:, :1] + (x + x.mean(1, keepdim=True)) / 2)


@pytest.mark.parametrize("kind", ["cb", "cb_hybrid"])
def test_padding_is_neither_in_the_mean_nor_changed(kind):
    x = tokens(2, 7, 5)
    keep = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
    found = context_broadcast(x, kind, keep=keep)
    torch.testing.assert_close(found[0], context_broadcast(x[:1], kind)[0])
    torch.testing.assert_close(found[1, :4], context_broadcast(x[1:, :4], kind)[0])
    assert torch.equal(found[1, 4:], x[1, 4:])


def test_a_scale_at_its_default_starts_as_cb_and_an_added_one_at_zero_as_nothing():
    x = tokens(2, 7, 5)
    halved = ContextBroadcast(5, "cb_s", dtype=torch.float64)
    torch.testing.assert_close(halved(x), context_broadcast(x))
    added = ContextBroadcast(5, "cb_s", scale_form="added", scale_init=0.0, dtype=torch.float64)
    assert torch.equal(added(x), x)


def test_maps_and_windows_are_broadcast_over_the_whole_image():
    x = tokens(2, 4, 6, 5)  # (B, h, w, D)
    expected = (x + x.mean((1, 2), keepdim=True)) / 2
    layer = ContextBroadcast(5)
    torch.testing.assert_close(layer(x), expected)
    maps = ContextBroadcast(5, spatial=True)(x.permute(0, 3, 1, 2))
    torch.testing.assert_close(maps, expected.permute(0, 3, 1, 2))
    windows = x.reshape(2 * 4, 6, 5)
    torch.testing.assert_close(layer(windows, images=2), expected.reshape(2 * 4, 6, 5))


def test_tensors_of_another_width_and_maps_without_a_class_token_are_refused():
    with pytest.raises(UserError, match="tokens of width 5, got"):
        ContextBroadcast(5)(torch.zeros(1, 5, 4))
    with pytest.raises(UserError, match="needs a class token"):
        ContextBroadcast(5, "cb_gate")(torch.zeros(1, 2, 2, 5))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_stays_half(kind, dtype):
    x = torch.randn(2, 7, 5)
    found = ContextBroadcast(5, kind)(x.to(dtype))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float(), ContextBroadcast(5, kind)(x), rtol=0.05, atol=0.05)


# the places


@pytest.mark.parametrize("where", WHERES)
def test_the_end_equals_the_middle(where, images):
    model = small()
    middle, end = (
        vitascope.broadcast(copy.deepcopy(model), "cb", position, where)
        for position in ("mid", "end")
    )
    torch.testing.assert_close(middle(images), end(images))
    front = vitascope.broadcast(copy.deepcopy(model), "cb", "front", where)
    assert (front(images) - end(images)).abs().max() > 1e-6


def test_each_place_is_where_the_tables_have_it():
    """Against the MLP written out: front, linear, activation, mid, linear, end."""
    x = tokens(2, 17, 36)
    mlp = small().blocks[0].mlp
    for position in POSITIONS:
        model = small()
        block = vitascope.broadcast(model, "cb_gate", position).blocks[0]
        block.mlp.load_state_dict(mlp.state_dict())
        front, mid, end = (
            (lambda t: t * (t[:, :1] + 1)) if position == p else (lambda t: t) for p in POSITIONS
        )
        expected = end(mlp.fc2(mid(mlp.act(mlp.fc1(front(x))))))
        torch.testing.assert_close(block.mlp(x), expected)


def test_it_comes_after_dropout_and_before_layer_scale():
    model = small(init_values=0.5, proj_drop_rate=0.5)
    block = vitascope.broadcast(model).blocks[0].train()
    seen = {}
    block.mlp.drop2.register_forward_hook(lambda m, a, out: seen.update(dropped=out))
    block.ls2.register_forward_pre_hook(lambda m, args: seen.update(scaled=args[0]))
    block(tokens(2, 17, 36))
    torch.testing.assert_close(seen["scaled"], context_broadcast(seen["dropped"]))


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_of_the_tables_changes_the_output_and_trains(kind, position, where, images):
    model = small()
    plain = model(images)
    assert vitascope.broadcast(model, kind, position, where) is model
    logits = model(images)
    assert (logits - plain).abs().max() > 1e-6
    assert logits.isfinite().all()
    logits.square().sum().backward()
    dead = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert not dead


def test_only_the_chosen_modules_get_it():
    model = vitascope.broadcast(
        small(depth=4), where="both", modules=["blocks.[01].mlp", "*3.attn"]
    )
    assert [name for name, m in model.named_modules() if isinstance(m, ContextBroadcast)] == [
        f"{name}.context_broadcast" for name in ("blocks.0.mlp", "blocks.1.mlp", "blocks.3.attn")
    ]
    with pytest.raises(UserError, match="no sublayer matches 'block.0'"):
        vitascope.broadcast(small(), modules="block.0")


# what it costs


def test_costs_are_those_of_tables_s5_and_s6():
    """ViT-S: millions of multiply-adds in the tables, and one scale a channel and layer."""
    image = torch.zeros(1, 3, 224, 224, device="meta")
    table = {
        ("cb", "end", "mlp"): 0.9,
        ("cb", "end", "msa"): 0.9,
        ("cb", "end", "both"): 1.8,
        ("cb_gate", "end", "mlp"): 0.9,
        ("cb_gate", "end", "both"): 1.8,
        ("cb_hybrid", "end", "mlp"): 1.8,
        ("cb_hybrid", "end", "msa"): 1.8,
        ("cb_hybrid", "end", "both"): 3.6,
        ("cb", "front", "mlp"): 0.9,
        ("cb", "mid", "mlp"): 3.6,
        ("cb_gate", "mid", "mlp"): 3.6,
        ("cb_hybrid", "mid", "mlp"): 7.3,
    }
    with torch.device("meta"):
        vit = vitascope.create_model("deit_small")
        for cell, millions in table.items():
            model = vitascope.broadcast(copy.deepcopy(vit), *cell)
            cost = broadcast_cost(model, image)
            assert cost.multiply_adds is not None
            assert round(cost.multiply_adds / 1e6, 1) == millions
            assert cost.parameters == 0
            assert len(cost.layers) == (24 if cell[2] == "both" else 12)
        for position, per_layer in (("front", 384), ("mid", 1536), ("end", 384)):
            cost = broadcast_cost(vitascope.broadcast(copy.deepcopy(vit), "cb_s", position))
            assert cost.parameters == 12 * per_layer
            assert cost.multiply_adds is None


def test_the_table_of_sizes_counts_it():
    shape = (3, 32, 32)
    plain = count(vitascope.create_model("vit_micro"), shape)
    scaled = count(vitascope.create_model("vit_micro+cb_s"), shape)
    layers = 4 * 72  # 65 tokens and one scale for each
    assert np.subtract(scaled, plain).tolist() == [layers, layers * 66]


def test_its_scales_do_not_decay():
    model = vitascope.create_model("vit_micro+cb_s")
    groups = parameter_groups(model, recipe("broadcast"))
    spared = {id(p) for group in groups if not group["weight_decay"] for p in group["params"]}
    scales = [p for name, p in model.named_parameters() if name.endswith("broadcast.scale")]
    assert len(scales) == 4
    assert all(id(scale) in spared for scale in scales)


# what must not change


@pytest.mark.parametrize("kind", ["cb", "cb_gate", "cb_hybrid"])
def test_without_parameters_state_dicts_stay_as_they_are(kind, images):
    model = small()
    state = model.state_dict()
    other = vitascope.broadcast(small(), kind, where="both")
    assert list(other.state_dict()) == list(state)
    other.load_state_dict(state)
    torch.testing.assert_close(
        other(images), vitascope.broadcast(model, kind, where="both")(images)
    )


def test_scales_have_names_that_last(tmp_path, images):
    model = vitascope.broadcast(small(), "cb_s")
    added = [name for name in model.state_dict() if "context_broadcast" in name]
    assert added == [f"blocks.{i}.mlp.context_broadcast.scale" for i in range(2)]
    with torch.no_grad():
        model.blocks[1].mlp.context_broadcast.scale.fill_(3.0)
    save_tensors(tmp_path / "model.safetensors", model.state_dict())
    again = load_weights(vitascope.broadcast(small(), "cb_s"), tmp_path / "model.safetensors")
    torch.testing.assert_close(again(images), model(images))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_lives_on_its_own(duplicate, images):
    model = vitascope.broadcast(small(), "cb_s", where="both")
    before = model(images)
    other = duplicate(model)
    torch.testing.assert_close(other(images), before)
    with torch.no_grad():
        other.blocks[0].mlp.context_broadcast.scale.add_(1)
    assert (other(images) - before).abs().max() > 1e-6
    torch.testing.assert_close(model(images), before)


def test_timms_surface_works(images):
    model = vitascope.broadcast(small(depth=3))
    expected = model(images)
    features = model.forward_features(images)
    torch.testing.assert_close(model.forward_head(features), expected)
    final, found = model.forward_intermediates(images, indices=2)
    torch.testing.assert_close(final, features)
    assert len(found) == 2
    model.train().set_grad_checkpointing()
    model.zero_grad()
    model(images).square().sum().backward()
    checkpointed = [p.grad.clone() for p in model.parameters()]
    model.set_grad_checkpointing(False)
    model.zero_grad()
    model(images).square().sum().backward()
    for one, other in zip(checkpointed, model.parameters(), strict=True):
        torch.testing.assert_close(one, other.grad)
    model.eval().reset_classifier(3)
    assert model(images).shape == (2, 3)
    getter = vitascope.create_model("vit_micro+cb", features_only=True, img_size=16)
    plain = vitascope.create_model("vit_micro", features_only=True, img_size=16)
    plain.load_state_dict(getter.state_dict())
    one, other = getter(images.float())[-1], plain(images.float())[-1]
    assert (one - other).abs().max() > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("position", ["front", "end"])
def test_compiled_without_a_graph_break_it_gives_the_same(position, images):
    model = vitascope.broadcast(small(), "cb_s", position, "both")
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), model(images))
    compiled(images).sum().backward()
    scales = [p.grad for name, p in model.named_parameters() if name.endswith("broadcast.scale")]
    assert all(grad.abs().max() > 0 for grad in scales)


@pytest.mark.parametrize("kind", ["cb_s", "cb_hybrid"])
def test_exported_with_a_free_batch_size_it_gives_the_same(kind, images):
    model = vitascope.broadcast(small(), kind, where="both")
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model, (images,), dynamic_shapes={"x": {0: batch}})
    others = tokens(5, 3, 16, 16)
    torch.testing.assert_close(program.module()(others), model(others))


@pytest.mark.slow
def test_onnx_gives_the_same(images, tmp_path):
    import onnxruntime  # writes files of its own when imported: only here

    model, images = vitascope.broadcast(small().float(), "cb_s"), images.float()
    program = torch.onnx.export(model, (images,), dynamo=True, verbose=False)
    program.save(tmp_path / "cb.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "cb.onnx")
    (found,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    np.testing.assert_allclose(found, model(images).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["vit_micro+cb", "vit_micro+cb_s:mid", "convit_micro+cb:both"])
def test_capture_still_knows_where_every_patch_lies(name):
    image = torch.randn(1, 3, 32, 32)
    with_it, without = (
        [
            (unit.name, unit.kind, unit.grid, unit.num_prefix_tokens)
            for unit in capture.units(vitascope.create_model(n), image)
        ]
        for n in (name, name.split("+")[0])
    )
    assert with_it == without
    assert all(grid == (8, 8) for _, kind, grid, _ in with_it if kind != "head")


# names


def test_names_with_a_suffix_build_the_model_and_put_it_in():
    model = vitascope.create_model("vit_micro+cb_s:mid:both", num_classes=3, scale_init=0.5)
    cost = broadcast_cost(model)
    assert cost.kind == "cb_s"
    assert cost.parameters == 4 * (72 + 288)
    assert cost.layers[:2] == tuple(
        f"blocks.0.{n}.context_broadcast" for n in ("attn.proj", "mlp.fc2")
    )
    assert model.blocks[0].mlp.fc2.context_broadcast.scale.unique().tolist() == [0.5]
    theirs = vitascope.create_model("timm:vit_tiny_patch16_224+cb", img_size=32, depth=1)
    assert len(broadcast_cost(theirs).layers) == 1
    assert vitascope.list_models("vit_micr?+cb:msa") == ["vit_micro+cb:msa"]


def test_an_opened_model_may_have_a_suffix_and_places():
    session = open_model("vit_micro+cb:front:msa")
    assert session.name == "vit_micro+cb:front:msa"
    assert broadcast_cost(session.model).layers[0] == "blocks.0.attn.context_broadcast"
    made = open_model(f"{__name__}:small+cb")
    assert len(broadcast_cost(made.model).layers) == 2


def test_a_run_of_such_a_name_opens_again(tmp_path):
    name, out = "vit_micro+cb_s:mid", tmp_path / "run"
    how = {"data": "digits", "recipe": "laptop", "epochs": 1, "fraction": 0.05, "quiet": True}
    how |= {"model_args": ["scale_init=0.5"], "changes": ["scale_epochs=false"], "trackers": ()}
    train_once(model=name, out=out, **how)
    session = open_run(out)
    assert session.name == name
    scales = [p for n, p in session.model.named_parameters() if n.endswith("broadcast.scale")]
    assert [len(scale) for scale in scales] == [288] * 4
    assert all(0 < (scale - 0.5).abs().max() < 0.1 for scale in scales)  # learned, from there


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("vit_micro+bc", "unknown suffix 'bc'"),
        ("vit_micro+cb:centre", "unknown place of context broadcasting 'centre'"),
        ("vit_micro+cb:mid:end", "two of front, mid, end"),
        ("vit_mico+cb", "unknown model 'vit_mico'"),
        ("resnet_micro+cb", "has no MLP"),
    ],
)
def test_names_that_cannot_be_are_refused(name, said):
    with pytest.raises(UserError, match=said):
        vitascope.create_model(name)


def test_a_plus_in_a_path_is_not_a_suffix():
    assert read_name("local-dir:a+b") == ("local-dir:a+b", (), None, None)
    assert read_name("local-dir:a+b+cb") == ("local-dir:a+b", (), {"kind": "cb"}, None)


# refusals


def test_words_nobody_knows_are_refused():
    for wrong, said in (
        ({"kind": "cbs"}, "kind 'cbs'"),
        ({"position": "middle"}, "position 'middle'"),
        ({"where": "attention"}, "where 'attention'"),
        ({"kind": "cb_s", "scale_form": "half"}, "scale_form 'half'"),
    ):
        with pytest.raises(UserError, match=f"unknown {said}"):
            vitascope.broadcast(small(), **wrong)


def test_a_second_time_is_refused():
    model = vitascope.broadcast(small())
    with pytest.raises(UserError, match="has context broadcasting already"):
        vitascope.broadcast(model, where="msa")


def test_a_model_without_what_is_sought_is_told_what_was_sought():
    with pytest.raises(UserError, match="ResNet has no MLP, that is two dense layers that widen"):
        vitascope.broadcast(timm.create_model("resnet10t"))
    mixer = MlpMixer(5, 64, num_blocks=1, patch_size=16, embed_dim=32)
    with pytest.raises(UserError, match="MlpMixer has no attention, that is a module with"):
        vitascope.broadcast(mixer, where="both")
    with pytest.raises(UserError, match="has no context broadcasting"):
        broadcast_cost(mixer)


def test_inverted_bottlenecks_with_a_shortcut_inside_are_no_mlps():
    with torch.device("meta"):
        model = timm.create_model("mobilenetv4_hybrid_medium")
    assert mlps(model) == []
    assert len(attentions(model)) == 8


def test_of_two_mlps_of_one_width_the_user_says_which_is_over_channels():
    def mixer():
        return MlpMixer(5, 64, num_blocks=1, patch_size=16, embed_dim=16, mlp_ratio=(2, 4))

    with pytest.raises(UserError, match=r"one of the 2 MLPs in blocks.0 may mix tokens"):
        vitascope.broadcast(mixer())
    model = vitascope.broadcast(mixer(), modules="*.mlp_channels")
    assert broadcast_cost(model).layers == ("blocks.0.mlp_channels.context_broadcast",)


@pytest.mark.parametrize("kind", ["cb_gate", "cb_hybrid"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: small(class_token=False, global_pool="avg"), "and VisionTransformer has none"),
        (lambda: vitascope.create_model("convit_micro"), "none in blocks.0.mlp, blocks.1.mlp"),
    ],
)
def test_kinds_of_the_class_token_refuse_layers_without_one(kind, model, said):
    with pytest.raises(UserError, match=f"{kind} needs a class token.*{said}"):
        vitascope.broadcast(model(), kind)


def test_gates_under_broadcasting_are_not_pruned_away():
    model = vitascope.create_model("convit_micro+cb:msa")
    with pytest.raises(UserError, match="cannot be pruned"):
        model.prune_gates()
    vitascope.create_model("convit_micro+cb").prune_gates()


def test_a_layer_that_is_never_called_is_an_error_and_not_left_out():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return nn.functional.linear(self.fc1(x).relu(), self.fc2.weight, self.fc2.bias)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mlp = Functional()

        def forward(self, x):
            return x + self.mlp(x)

    x = torch.randn(1, 3, 4)
    vitascope.broadcast(Block())(x)
    with pytest.raises(UserError, match="mlp.fc2 was passed by"):
        vitascope.broadcast(Block(), position="mid")(x)


def test_tokens_before_images_are_refused():
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    with pytest.raises(UserError, match="batch_first"):
        vitascope.broadcast(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False))


def test_masks_of_every_kind_say_what_is_padding():
    keep = torch.tensor([[1, 1, 0]])
    far = torch.where(keep.bool(), 0.0, torch.finfo(torch.float32).min)
    for name, mask in (
        ("attention_mask", keep),
        ("attention_mask", keep.float()),
        ("attn_mask", keep.bool()[:, None, None].expand(1, 1, 3, 3)),
        ("attention_mask", far[:, None, None]),
        ("src_key_padding_mask", ~keep.bool()),
        ("src_key_padding_mask", far.masked_fill(keep == 0, -torch.inf)),
    ):
        assert visible(name, mask, 1).tolist() == [[True, True, False]]
    assert visible("attn_mask", torch.zeros(3, 3), 1) is None
    assert visible("attn_mask", None, 1) is None
