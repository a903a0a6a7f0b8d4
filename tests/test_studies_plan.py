"""What the studies ask for: shared trainings, whole tables, claims about cells that exist."""

from dataclasses import replace

import numpy as np
import pytest

from vitascope.errors import UserError
from vitascope.papers.answer import filled
from vitascope.papers.budget import laptop_minutes
from vitascope.papers.catalog import catalog, covered, find
from vitascope.papers.plan import (
    Ask,
    Findings,
    Plan,
    Reading,
    Row,
    Sheet,
    Training,
    claimed,
)
from vitascope.papers.scale import LAPTOP, PAPER, ROLES, SCALES, SMOKE
from vitascope.record import Record

STUDIES = catalog()
EVERYWHERE = [(name, scale) for name in STUDIES for scale in SCALES]

# Every table and figure of the three papers that shows results.
CONVIT = [f"ConViT Table {i}" for i in range(1, 7)]
CONVIT += [f"ConViT Fig. {i}" for i in (2, 3, *range(5, 18))]
VIT = [f"ViT Fig. {i}" for i in (1, 2, *range(4, 11), 12)]
VIT += [f"ViT Fig. C.{i}" for i in range(1, 8)] + [f"ViT Fig. D.{i}" for i in range(1, 5)]
VIT += ["ViT Fig. E.1", "ViT Fig. F.1"]
BROADCASTING = [f"CB Table S{i}" for i in range(1, 7)] + ["CB Fig. S1"]

PLAIN = Training(model="vit_micro", data="digits", recipe="laptop")


@pytest.mark.parametrize("what", [*CONVIT, *VIT, *BROADCASTING])
def test_every_table_and_figure_has_a_study(what):
    study = find(what)
    assert any(cover == what or cover.startswith(f"{what} ") for cover in study.covers)


@pytest.mark.parametrize(
    "text", ["convit-table-2", "ConViT Table 2", "CONVIT TABLE 2", "sample-efficiency"]
)
def test_a_study_is_found_however_it_is_typed(text):
    assert find(text).name == "sample-efficiency"


def test_a_figure_is_not_taken_for_one_that_begins_alike():
    assert "ConViT Fig. 1" not in dict(covered())
    with pytest.raises(UserError, match="no study 'ConViT Fig. 1'; there are: "):
        find("ConViT Fig. 1")  # 10 to 17 exist
    with pytest.raises(UserError, match="no study ''"):
        find("")


def test_nothing_is_covered_twice():
    names = [what for what, _ in covered()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(("name", "scale"), EVERYWHERE)
def test_every_plan_is_whole(name, scale):
    plan = STUDIES[name].plan(SCALES[scale])
    assert plan.tables
    assert plan.claims
    assert len({table.name for table in plan.tables}) == len(plan.tables)
    for table in plan.tables:
        assert len(set(table.columns)) == len(table.columns), table.name
        labels = [row.label for row in table.rows]
        assert len(set(labels)) == len(labels), table.name
        assert all(len(row.cells) == len(table.columns) for row in table.rows), table.name


@pytest.mark.parametrize(("name", "scale"), EVERYWHERE)
def test_claims_compare_cells_that_are_asked_for(name, scale):
    plan = STUDIES[name].plan(SCALES[scale])
    cells = {
        (table.name, row.label, column): ask
        for table in plan.tables
        for row in table.rows
        for column, ask in zip(table.columns, row.cells, strict=True)
    }
    for claim in plan.claims:
        for row, column in claim.cells:
            assert cells[claim.table, row, column] is not None, (claim.text, row, column)
        if claim.margin == 0 and len(claim.cells) > 1:
            assert sum(claim.cells.values()) == pytest.approx(0), claim.text


@pytest.mark.parametrize(("name", "scale"), EVERYWHERE)
def test_a_table_does_not_count_the_same_number_twice(name, scale):
    for table in STUDIES[name].plan(SCALES[scale]).tables:  # or its spread would look certain
        found = [
            (ask.training.key, ask.reading.key, ask.key)
            for row in table.rows
            for ask in row.cells
            if ask is not None and isinstance(ask.key, str)
        ]
        assert len(set(found)) == len(found), table.name


@pytest.mark.parametrize("name", STUDIES)
def test_the_scales_fill_the_same_tables(name):
    layouts = [
        {table.name: (table.unit, table.corner) for table in STUDIES[name].plan(scale).tables}
        for scale in (SMOKE, LAPTOP, PAPER)
    ]
    assert layouts[0].items() <= layouts[2].items()
    assert layouts[1].items() <= layouts[2].items()


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_what_it_needs(name):
    study = STUDIES[name]
    assert {"paper", "laptop"} <= set(study.data)
    assert study.covers
    assert study.claim
    assert not study.claim.endswith(".")


def test_equal_trainings_share_a_key():
    same = Training(recipe="laptop", data="digits", model="vit_micro", model_args={}, changes={})
    assert same.key == PLAIN.key
    assert PLAIN.but(model_args={}).key == PLAIN.key
    one, other = {"a": 1, "b": [1, 2]}, {"b": (1, 2), "a": 1}
    assert PLAIN.but(model_args=one).key == PLAIN.but(model_args=other).key


DIFFERENT = {
    "model": "vit_micro+cb",
    "model_args": {"num_heads": 3},
    "data": "cifar10:/x",
    "image_size": 16,
    "recipe": "deit",
    "epochs": 3,
    "changes": {"lr": 0.1},
    "teacher": "regnety_160",
    "validation": 0.2,
    "fold": (0, 3),
    "subset_per_seed": False,
    "start": True,
}


def test_any_difference_gives_another_key():
    assert set(DIFFERENT) == set(Training.__dataclass_fields__)
    keys = {PLAIN.key, *(replace(PLAIN, **{k: v}).key for k, v in DIFFERENT.items())}
    assert len(keys) == 1 + len(DIFFERENT)
    taught = [replace(PLAIN, teacher=replace(PLAIN, epochs=n)).key for n in (1, 2)]
    assert len({PLAIN.key, *taught}) == 3


def test_a_change_adds_to_what_was_changed_before():
    made = PLAIN.but(changes={"lr": 0.1}).but(changes={"drop_path": 0.2}, epochs=3)
    assert (made.changes, made.epochs) == ({"lr": 0.1, "drop_path": 0.2}, 3)
    assert PLAIN.changes == {}


def test_readings_with_other_options_are_other_files():
    keys = {Reading(name="maps", options={"num_images": n}).key for n in (1, 8)}
    assert len({*keys, Reading(name="maps").key}) == 3
    assert Reading(name="maps").key == "maps"


def test_a_plan_wants_each_training_once_with_all_that_is_read_off_it():
    entropy = Reading(name="entropy")
    rows = [Row(label="a", cells=[Ask(training=PLAIN), Ask(training=PLAIN, reading=entropy), None])]
    table = Sheet(name="t", title="", corner="", columns=["x", "y", "z"], rows=rows)
    other = replace(PLAIN, epochs=1)
    wanted = Plan(tables=[table], also=[(other, entropy)]).wanted()
    assert set(wanted) == {PLAIN.key, other.key}
    assert [set(readings) for _, readings in wanted.values()] == [{"final", "entropy"}] * 2


def test_a_role_is_another_network_at_each_scale():
    assert PAPER.training("ConViT-S", recipe="deit_plus").recipe == "deit_plus"
    small = LAPTOP.training("ConViT-S", recipe="deit_plus", fraction=0.1)
    assert (small.model, small.recipe) == ("convit_micro", "laptop")
    assert small.changes == {"subset.fraction": 0.1}
    assert SMOKE.training("ConViT-S").changes["subset.fraction"] == 0.2
    assert "subset.fraction" not in LAPTOP.training("ConViT-S").changes
    with pytest.raises(UserError, match="unknown role .ConViT-XL."):
        LAPTOP.training("ConViT-XL")
    assert LAPTOP.training(ROLES["ConViT-S"]) == LAPTOP.training("ConViT-S")


@pytest.mark.parametrize("seeds", [(), (0, 0)])
def test_seeds_are_one_or_more_different_ones(seeds):
    with pytest.raises(UserError, match="seeds must be one or more different ones"):
        replace(LAPTOP, seeds=seeds)


def found(values, training=PLAIN, kind="final"):
    return {(training.key, kind): [Record(kind=kind, values=v) for v in values]}


def test_a_number_is_read_once_a_seed_and_a_missing_one_is_left_out():
    findings = Findings(found([{"top1": 0.5}, {"top1": None}, {}, {"top1": 0.7}]))
    assert findings.values(Ask(training=PLAIN)) == pytest.approx([50.0, 70.0])
    by_function = Ask(training=PLAIN, key=lambda r: r.values.get("top1"), factor=1.0)
    assert findings.values(by_function) == pytest.approx([0.5, 0.7])


def made_table(**how):
    other = replace(PLAIN, model="convit_micro")
    rows = [
        Row(label="vit", paper_label="DeiT-S", cells=[Ask(training=PLAIN, paper=79.8), None]),
        Row(label="convit", cells=[Ask(training=other), Ask(training=other, key="top5")]),
    ]
    table = Sheet(
        name="t", title="T", corner="network", columns=["top-1", "top-5"], rows=rows, **how
    )
    return table, other


def test_a_table_is_filled_with_seeds_means_spreads_and_the_papers_numbers():
    table, other = made_table()
    records = found([{"top1": 0.5}, {"top1": 0.7}])
    records |= found([{"top1": 0.9, "top5": 1.0}, {"top1": 0.9}], other)
    images = f"correct/{PLAIN.key}"
    rows = filled(table, Findings(records), {images})["rows"]
    deviation = pytest.approx(np.std([50, 70], ddof=1))
    first = {"ours": pytest.approx([50.0, 70.0]), "mean": pytest.approx(60.0), "std": deviation}
    assert rows[0]["cells"] == [
        {**first, "paper": 79.8, "correct": images},
        {"ours": [], "mean": None, "std": None, "paper": None, "correct": None},
    ]
    last = rows[1]["cells"][1]
    assert (last["ours"], last["mean"], last["std"], last["paper"]) == ([100.0], 100.0, None, None)
    assert last["correct"] is None  # top-5 is no mean of hits
    assert [row["paper_label"] for row in rows] == ["DeiT-S", None]


def test_laptop_minutes_add_up_trainings_and_readings_over_seeds_and_cores():
    vit = Training(model="vit_micro", data="digits", recipe="laptop")
    spectrum = Reading(name="hessian")
    plan = Plan(tables=(), also=[(vit, spectrum), (vit.but(model="convit_micro"), spectrum)])
    assert laptop_minutes(plan, 3) == pytest.approx(3 * 2 * (25 + 8) / 2 / 60)
    assert laptop_minutes(plan, 3, cores=1) == pytest.approx(2 * laptop_minutes(plan, 3))


def test_a_sheet_of_runs_asks_every_question_of_every_run():
    runs = {"a": Training(model="vit_micro", data="digits", recipe="laptop")}
    runs["b"] = runs["a"].but(epochs=2)
    asked = {"early": {"key": "first", "factor": 1.0}, "late": {}}
    sheet = Sheet.of_runs("numbers", "Numbers", runs, asked, digits=2)
    assert [row.label for row in sheet.rows] == ["a", "b"]
    cells = [[(ask.training, ask.key, ask.factor) for ask in row.cells] for row in sheet.rows]
    assert cells == [[(run, "first", 1.0), (run, "top1", 100.0)] for run in runs.values()]
    assert sheet.above("b", "a") == ("numbers", {("b", "early"): 1, ("a", "early"): -1})
    assert sheet.above("b", "b", "late", "early")[1] == {("b", "late"): 1, ("b", "early"): -1}
    assert sheet.sign("a", "late", -1)[1] == {("a", "late"): -1}


def test_of_four_cells_the_lead_of_the_first_pair_is_compared_with_that_of_the_second():
    sheet = Sheet(name="top1", title="", corner="", columns=["few", "all"], rows=[])
    contrast = sheet.further(("a", "few"), ("b", "few"), ("a", "all"), ("b", "all"))
    (claim,) = claimed("Table 1", {"the lead grows": contrast})
    numbers = {("a", "few"): 9.0, ("b", "few"): 4.0, ("a", "all"): 10.0, ("b", "all"): 8.0}
    assert sum(weight * numbers[cell] for cell, weight in claim.cells.items()) == (9 - 4) - (10 - 8)
    assert (claim.source, claim.text, claim.table) == ("Table 1", "the lead grows", "top1")
