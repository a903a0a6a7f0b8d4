"""The studies of "How do vision transformers work?": their plans, and the numbers they make."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from vitascope.errors import UserError
from vitascope.models import create_model
from vitascope.papers.catalog import catalog, covered, find
from vitascope.papers.plan import CellSpec, Reading, Results
from vitascope.papers.scale import LAPTOP, PAPER, SCALES
from vitascope.papers.vit.alternet import built_up
from vitascope.papers.vit.features import changes, in_every_seed, of_kind, signed
from vitascope.papers.vit.landscape import centre, drawn_length, endless, rise, rise_of_nll
from vitascope.papers.vit.networks import NETWORKS, augmented
from vitascope.papers.vit.overfitting import RANK, gap
from vitascope.papers.vit.stages import block_structure, lost_at
from vitascope.papers.vit.tables import beyond, exponent, lost_to_noise
from vitascope.record import Record
from vitascope.training import recipe

FIGURES = [
    *(1, 2, 4, 5, 6, 7, 8, 9, 10, 12),
    *(f"C.{i}" for i in range(1, 8)),
    *(f"D.{i}" for i in range(1, 5)),
    "E.1",
    "F.1",
]
STUDIES = [
    s for s in catalog().values() if any(what.startswith("Park & Kim ") for what in s.covers)
]


def plans(scale):
    return [study.plan(SCALES[scale]) for study in STUDIES]


def wanted(scale):
    return {k: t for plan in plans(scale) for k, (t, _) in plan.wanted().items()}


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_of_the_paper_has_a_study(figure):
    assert f"Park & Kim Fig. {figure}" in {what for what, _ in covered()}
    assert find(f"Park & Kim Fig. {figure}") in STUDIES


@pytest.mark.slow
def test_every_network_of_the_papers_scale_can_be_built():
    made = {(t.model, repr(t.model_args)): t for t in wanted("paper").values()}
    for training in made.values():
        with torch.device("meta"):
            model = create_model(training.model, num_classes=100, **training.model_args)
        assert sum(p.numel() for p in model.parameters()) > 1e5  # even with one head
        recipe(training.recipe, **training.changes)


def test_a_laptop_shares_the_plain_vit_with_the_convit_studies_and_trains_few_more():
    convit = find("ConViT Table 2").plan(LAPTOP).wanted()
    ours = wanted("laptop")
    assert NETWORKS["ViT-Ti"].training(LAPTOP).key in convit
    assert NETWORKS["ViT-Ti"].training(LAPTOP, fraction=LAPTOP.small).key in convit
    assert len(set(ours) - set(convit)) <= 34


def test_augmentation_is_strong_in_the_paper_and_weak_on_a_laptop_unless_asked():
    def plan(scale, **how):
        return NETWORKS["ViT-Ti"].training(scale, **how).full_recipe

    assert plan(PAPER) == plan(PAPER, **augmented(PAPER, True)) == recipe("cifar")
    assert plan(LAPTOP) == plan(LAPTOP, **augmented(LAPTOP, False))
    strong = plan(LAPTOP, **augmented(LAPTOP, True)).augmentation
    weak = plan(PAPER, **augmented(PAPER, False)).augmentation
    assert strong.mixes
    assert strong.rand_augment
    assert strong.label_smoothing == 0.1
    assert not weak.soft
    assert weak.rand_augment is None
    assert weak.random_erasing == 0


def test_networks_on_imagenet_take_its_recipe_in_the_paper_alone():
    vit = NETWORKS["ViT-Ti"]
    assert vit.training(PAPER, imagenet=True).full_recipe == recipe("imagenet_park")
    assert vit.training(LAPTOP, imagenet=True) == vit.training(LAPTOP)


def test_queries_keys_and_values_have_no_bias_on_cifar_as_released():
    for name in ("ViT-Ti", "ViT-S", "ViT-Ti GAP", "Swin-Ti"):
        assert not NETWORKS[name].training(PAPER).model_args["qkv_bias"]
    small = create_model("vit_tiny_cifar", depth=1, qkv_bias=False, num_classes=10)
    assert small.blocks[0].attn.qkv.bias is None


def test_pit_has_patches_at_every_pixel_on_cifar_as_released():
    training = NETWORKS["PiT-Ti"].training(PAPER)
    model = create_model(training.model, **training.model_args, num_classes=10, depth=(1, 1, 1))
    assert model.pos_embed.shape[-2:] == (31, 31)


def test_heads_and_their_channels_are_varied_at_one_width_and_together_with_it():
    for scale in (PAPER, LAPTOP):
        sizes = {}
        for name in ("heads", "width"):
            models = {}
            for training, _ in catalog()[name].plan(scale).wanted().values():
                with torch.device("meta"):
                    model = create_model(training.model, **training.model_args)
                attn = model.blocks[0].attn
                models[attn.num_heads, attn.head_dim] = model.embed_dim
            sizes[name] = models
        assert sizes["heads"].keys() == sizes["width"].keys()
        assert len({*sizes["heads"].values()}) == 1
        assert all(heads * each == dim for (heads, each), dim in sizes["width"].items())


def test_a_vit_with_channels_of_its_own_per_head_is_softmax_over_them_by_hand():
    model = create_model("vit_micro", depth=1, num_heads=5, head_dim=6, num_classes=2).eval()
    attn, x = model.blocks[0].attn, torch.randn(2, 7, 72)
    q, k, v = attn.qkv(x).chunk(3, dim=-1)
    parts = [part.unflatten(-1, (5, 6)).transpose(1, 2) for part in (q, k, v)]
    rows = (parts[0] @ parts[1].mT / 6**0.5).softmax(-1) @ parts[2]
    expected = attn.proj(rows.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attn(x), expected)
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 2)
    plain = create_model("vit_micro", num_heads=9, head_dim=8).state_dict()
    shapes = {name: value.shape for name, value in create_model("vit_micro").state_dict().items()}
    assert {name: value.shape for name, value in plain.items()} == shapes
    with pytest.raises(UserError, match="1 or more"):
        create_model("vit_micro", head_dim=0)


def test_the_build_up_adds_attention_until_it_is_the_alternet():
    runs = built_up(PAPER)
    number = [str(dict(t.model_args).get("kinds", "")).count("a") for t in runs.values()]
    assert number[:-1] == [0, 1, 2, 3, 4, 5]
    assert number[-1] == 4
    assert runs["c2"].key == NETWORKS["AlterNet-50"].training(PAPER).key


def test_the_exponent_of_a_power_law_is_found_and_a_missing_ape_gives_none():
    steps = [3.0, 6.0, 24.0]
    records = [Record(kind="hessian", values={"ape": 7 * x**-0.562}) for x in steps]
    assert exponent(steps)(*records) == pytest.approx(-0.562, abs=1e-12)
    records[1] = Record(kind="hessian", values={"ape": None})
    assert exponent(steps)(*records) is None


def test_a_number_of_several_runs_takes_the_records_of_one_seed_together():
    runs = [NETWORKS[name].training(LAPTOP) for name in ("ViT-Ti", "ResNet-50", "Swin-Ti")]
    loss = ((0.3, 0.2, 0.1), (0.1, 0.2, 0.3))  # by seed; the error is always the same
    records = {
        (t.key, "final"): [
            Record(kind="final", values={"train_nll": seed[i], "top1": (0.7, 0.8, 0.9)[i]})
            for seed in loss
        ]
        for i, t in enumerate(runs)
    }
    cell = CellSpec(runs[0], RANK, others=runs[1:])
    assert Results(records).values(cell) == pytest.approx([1.0, -1.0])


def test_lines_of_spectra_start_at_the_share_of_their_side():
    values = np.concatenate([-np.arange(1.0, 26.0), np.arange(1.0, 76.0)])
    assert beyond(-values)[1][0] == 25
    assert beyond(values)[1][0] == 75
    assert beyond(values)[0][-1] == 75
    assert beyond(-np.ones(3)) == ([], [])


def test_a_bowl_rises_to_its_border_and_a_straight_path_is_one_long():
    x = np.linspace(-1, 1, 5)
    bowl = {"nll": np.maximum(abs(x)[:, None], abs(x)[None, :]), "l2": np.full((5, 5), 9.0)}
    assert rise(Record(kind="landscape", arrays=bowl)) == pytest.approx(1)
    record = Record(kind="landscape", arrays={**bowl, "l2": 3 * bowl["nll"]})
    assert rise(record) == pytest.approx(4)
    assert rise_of_nll(record) == pytest.approx(1)
    assert (centre(record), endless(record)) == (0, 0)
    bowl["nll"] = np.where(bowl["nll"] == 1, np.inf, 0)
    assert rise(Record(kind="landscape", arrays=bowl)) is None
    bowl["nll"][0, 0] = 2.0
    assert endless(Record(kind="landscape", arrays=bowl)) == pytest.approx(15 / 16)
    straight = Record(kind="trajectory", values={"radius": [1, 0.4, 0], "angle": [0, 0, 0]})
    bent = Record(kind="trajectory", values={"radius": [1, 1, 0], "angle": [0, np.pi / 2, 0]})
    assert drawn_length(straight) == pytest.approx(1)
    assert drawn_length(bent) == pytest.approx(1 + 2**0.5)


def test_the_rise_with_batch_statistics_is_another_reading_where_there_is_batchnorm():
    table = next(t for t in find("Park & Kim Fig. 1").plan(LAPTOP).tables if t.name == "rise")
    assert table.columns == ["NLL + l2", "NLL", "NLL with batch statistics"]
    for label in table.rows:
        readings = [cell.measurement.reading for cell in table.row(label)]
        statistics = [reading.options.get("batch_norm") for reading in readings]
        assert statistics == [None, None, "batch" if "resnet" in label else None]
    assert "on 64 augmented" in table.title
    assert [table.row(label)[1].paper for label in table.rows][:2] == [2.67, None]


def test_changes_stay_within_a_stage_and_are_taken_by_kind():
    kinds = ["stem", "attention", "mlp", "subsampling", "attention", "mlp", "head"]
    values = {"kind": kinds, "stage": [0, 0, 0, 1, 1, 1, 1], "high": [0, -1, 1, 9, 6, 7, 99]}
    found = Record(kind="fourier", values=values)
    assert changes(found) == [("attention", -1), ("mlp", 2), ("attention", -3), ("mlp", 1)]
    assert of_kind("attention")(found) == -2
    assert of_kind("attention", half="early")(found) == -1
    assert of_kind("attention", half="late")(found) == -3
    assert of_kind("mlp")(found) == 1.5
    assert (signed("attention")(found), signed("MLP")(found)) == (1, 1)
    other = replace(found, values={**found.values, "high": [-h for h in found.values["high"]]})
    assert (signed("attention")(other), signed("convolution")(other)) == (0, None)
    assert in_every_seed("x", [found, found]) == "x 2 of 2 attention, 2 of 2 MLP"
    assert in_every_seed("x", [found, other]) == "x 0 of 2 attention, 0 of 2 MLP"
    assert of_kind("convolution")(found) is None
    unmarked = Record(kind="fourier", values={"kind": ["mlp"] * 2, "stage": [0, 1], "high": [0, 9]})
    assert changes(unmarked) == []  # the grid changed inside the second
    variance = Record(
        kind="variance", values={"kind": kinds[:2], "stage": [0, 0], "variance": [1.0, np.e]}
    )
    assert changes(variance) == [("attention", pytest.approx(1))]


def test_noise_is_averaged_over_its_band_and_confidence_over_all_images():
    curve = {"frequencies": [0.0, 0.5, 0.8, 1.0], "accuracy": [0.8, 0.0, 0.5, 0.7]}
    noisy = Record(kind="frequency", values={"clean": 0.9, **curve})
    reading = Reading(name="frequency")
    assert lost_to_noise(reading, 0.6, 1.0).key(noisy) == pytest.approx(0.3)
    assert lost_to_noise(reading, 0.1, 0.2).key(noisy) is None
    sure = {"bin_count": [0, 1, 3], "bin_confidence": [0, 0.5, 0.9], "bin_accuracy": [0, 0.9, 0.7]}
    assert gap(Record(kind="calibration", values=sure)) == pytest.approx((-0.4 + 0.6) / 4)


def test_blocks_are_seen_by_stage_and_a_single_stage_is_cut_in_three():
    def network(stages):
        stage = np.repeat(np.arange(3), 2)
        alike = np.where(stage[:, None] == stage[None, :], 1.0, 0.25)
        alike = np.pad(alike, (0, 1), constant_values=-5.0)  # the head
        kinds = ["mlp"] * 6 + ["head"]
        return Record(
            kind="cka",
            values={"row_kinds": kinds, "row_stages": stages, "similarity": alike.tolist()},
        )

    assert block_structure(network([0, 0, 1, 1, 2, 2, 2])) == pytest.approx(0.75)
    assert block_structure(network([0] * 7)) == pytest.approx(0.75)
    assert block_structure(network([0, 0, 0, 0, 0, 1, 1])) < 0.5


def test_lesions_are_read_at_the_ends_of_stages():
    reading = Reading(name="lesion")
    found = Record(
        kind="lesion",
        values={
            "units": list("abcdef"),
            "kind": ["attention", "mlp"] * 3,
            "stage": [0, 0, 0, 0, 1, 1],
            "lost": [0.1, 0.5, 0.3, 0.2, 0.7, 0.0],
        },
    )
    assert lost_at(reading, "start", "attention").key(found) == 0.1
    assert lost_at(reading, "end", "attention").key(found) == 0.3
    assert lost_at(reading, "last stage", "attention").key(found) == 0.7
    assert lost_at(reading, "first stage", "mlp").key(found) == pytest.approx(0.35)
    assert lost_at(reading, "start", "convolution").key(found) is None
