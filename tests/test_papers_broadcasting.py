"""The studies of context broadcasting: what is compared with what, and the paper's numbers."""

from dataclasses import replace

import pytest
import torch

from vitascope.layers import ContextBroadcast
from vitascope.models import create_model
from vitascope.models.suffix import read_name
from vitascope.papers.broadcasting import accuracy_at
from vitascope.papers.catalog import catalog
from vitascope.papers.plan import CellSpec, Reading, Training
from vitascope.papers.scale import LAPTOP, PAPER, SCALES
from vitascope.record import Record

NAMES = [name for name in catalog() if name.startswith("broadcasting")]
GIVEN = replace(PAPER, data="imagenet:/data/imagenet")


def plan(name, scale=PAPER):
    return catalog()[name].plan(scale)


def trainings(scale) -> dict[str, Training]:
    return {k: t for name in NAMES for k, (t, _) in plan(name, scale).wanted().items()}


def numbers(table) -> dict[tuple[str, str], float | None]:
    return {position: cell.paper for position, cell in table.filled.items()}


def cells(name, table, scale=PAPER) -> dict[str, CellSpec]:
    """The first cell of each row."""
    (found,) = [t for t in plan(name, scale).tables if t.name == table]
    return {label: next(c for c in found.row(label) if c is not None) for label in found.rows}


MODELS = {(t.model, *t.model_args.items()): t for t in trainings(PAPER).values()}


@pytest.mark.slow
@pytest.mark.parametrize("training", MODELS.values(), ids=lambda t: t.model)
def test_every_network_of_the_papers_scale_can_be_built(training):
    with torch.device("meta"):
        model = create_model(training.model, **training.model_args)
    suffix = read_name(training.model).broadcast
    layers = [m for m in model.modules() if isinstance(m, ContextBroadcast)]
    assert bool(layers) == (suffix is not None)
    if suffix is not None:
        assert {layer.kind for layer in layers} == {suffix["kind"]}


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_with_and_without_differ_in_the_module_alone(scale):
    for name in NAMES:
        for table in plan(name, scale).tables:
            families: dict[str, list[Training]] = {}
            for cell in table.filled.values():
                base = read_name(cell.training.model).base
                families.setdefault(base, []).append(cell.training)
            for base, members in families.items():
                assert len({t.model for t in members}) > 1, (name, table.name)
                assert len({replace(t, model=base).key for t in members}) == 1, (name, table.name)


def test_the_distilled_networks_learn_from_the_papers_teacher():
    found = cells("broadcasting", "top1")
    assert {cell.training.teacher for cell in found.values()} == {"regnety_160"}
    small = cells("broadcasting", "top1", LAPTOP)
    teacher = LAPTOP.training("CNN teacher", fraction=LAPTOP.small)
    assert all(cell.training.teacher == teacher for cell in small.values())
    assert small["without"].training in [
        t for t, _ in catalog()["distillation"].plan(LAPTOP).wanted().values()
    ]


def test_the_base_network_has_its_own_recipe():
    recipes = {t.model: t.recipe for t in trainings(PAPER).values()}
    assert recipes.pop("deit_base_distilled") == recipes.pop("deit_base_distilled+cb")
    assert recipes.pop("deit_base_distilled+cb_s") == "broadcast_base"
    assert set(recipes.values()) == {"broadcast"}


def test_a_laptop_has_few_trainings_and_shares_the_plain_ones():
    ours = set(trainings(LAPTOP))
    others = {key for name in catalog() if name not in NAMES for key in plan(name, LAPTOP).wanted()}
    assert len(ours) <= 26
    assert len(ours & others) >= 3


def test_other_test_sets_lie_beside_imagenet():
    found = {
        name: cells("broadcasting", name, GIVEN)["CB"].measurement.reading.options["data"]
        for name in ("v2", "real")
    }
    assert found == {
        "v2": "imagenet-v2:/data/imagenet-v2",
        "real": "imagenet-real:/data/imagenet/val",
    }
    far = cells("broadcasting-robustness", "imagenet-a", GIVEN)["CB"].measurement.reading
    assert far.options == {"data": "imagenet-a:/data/imagenet-a"}


def test_small_images_are_cifars_unless_others_are_given():
    where = {t.data for t, _ in plan("broadcasting-small-images").wanted().values()}
    assert where == {"cifar100"}
    given = plan("broadcasting-small-images", replace(PAPER, data="cifar100:/c")).wanted().values()
    assert {(t.data, t.image_size) for t, _ in given} == {("cifar100:/c", 224)}


def test_hierarchical_networks_train_as_long_as_the_paper_says():
    found = {t.model: t.epochs for t, _ in plan("broadcasting-hierarchical").wanted().values()}
    assert found["pvt_small+cb"] == 120
    assert found["localvit_tiny"] == 150
    short = plan("broadcasting-hierarchical", replace(PAPER, epochs=2)).wanted().values()
    assert {t.epochs for t, _ in short} == {2}


def test_the_defaults_are_not_spelt_so_that_both_tables_share_their_runs():
    blocks, _, positions, _ = plan("broadcasting-places").tables
    shared = {label: blocks.cells[label, "mlp"].training for label in blocks.rows[1:]}
    assert shared == {label: positions.cells[label, "end"].training for label in positions.rows[1:]}
    assert shared["CB_gate"].model == "deit_small+cb_gate"
    models = [blocks.cells[label, "msa"].training.model for label in blocks.rows[1:]]
    models += [positions.cells[label, "mid"].training.model for label in positions.rows[1:]]
    assert models == [
        f"deit_small+{kind}:{place}"
        for place in ("msa", "mid")
        for kind in ("cb", "cb_gate", "cb_hybrid")
    ]


def test_the_numbers_beside_ours_are_the_supplements():
    blocks, blocks5, positions, positions5 = map(numbers, plan("broadcasting-places").tables)
    assert (blocks["without", "none"], blocks5["without", "none"]) == (79.9, 95.0)
    assert (blocks["CB", "mlp"], blocks.get(("CB_hybrid", "both"))) == (80.5, None)
    assert (positions["CB", "front"], positions["CB_hybrid", "mid"]) == (79.9, 80.1)
    assert positions5["CB_gate", "front"] == 94.9
    for kind in ("CB", "CB_gate"):  # the same runs in both tables
        assert blocks[kind, "mlp"] == positions[kind, "end"]
    distilled = numbers(plan("broadcasting").tables[0])
    assert distilled["CB_S", "deit_base_distilled"] == 83.6
    robust = {t.name: numbers(t) for t in plan("broadcasting-robustness").tables}
    assert [robust["fgsm"][kind, "8/255"] for kind in ("without", "CB", "CB_S")] == [
        11.8,
        15.5,
        13.0,
    ]


def test_an_accuracy_is_read_at_its_own_epsilon():
    found = Record(kind="fgsm", values={"epsilons": [1 / 255, 8 / 255], "accuracy": [0.6, 0.2]})
    assert accuracy_at(Reading(name="fgsm"), "epsilons", 8 / 255).key(found) == 0.2
    assert accuracy_at(Reading(name="fgsm"), "epsilons", 2 / 255).key(found) is None


def test_entropy_is_the_mean_of_the_layers():
    entropy = next(iter(cells("broadcasting", "entropy").values())).measurement
    assert entropy.key(Record(kind="entropy", values={"nats": [1.0, 3.0]})) == 2.0
