"""What the studies ask for: shared trainings, whole tables, claims about cells that exist."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from vitascope.errors import UserError
from vitascope.papers.answer import filled
from vitascope.papers.catalog import catalog, covered, find, find_all
from vitascope.papers.plan import (
    TOP1,
    TOP5,
    CellSpec,
    Claim,
    Grid,
    Measurement,
    Plan,
    Reading,
    Results,
    TableSpec,
    Training,
    read_claims,
    study,
)
from vitascope.papers.scale import LAPTOP, PAPER, ROLES, SCALES, SMOKE, laptop_minutes
from vitascope.record import Record

STUDIES = catalog()
EVERYWHERE = [(name, scale) for name in STUDIES for scale in SCALES]

# Every table and figure of the three papers that shows results.
CONVIT = [f"ConViT Table {i}" for i in range(1, 7)]
CONVIT += [f"ConViT Fig. {i}" for i in (2, 3, *range(5, 18))]
VIT = [f"Park & Kim Fig. {i}" for i in (1, 2, *range(4, 11), 12)]
VIT += [f"Park & Kim Fig. C.{i}" for i in range(1, 8)] + [
    f"Park & Kim Fig. D.{i}" for i in range(1, 5)
]
VIT += ["Park & Kim Fig. E.1", "Park & Kim Fig. F.1"]
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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("park-kim-fig-6", ["pooling"]),
        ("Park and Kim, Figure 6", ["pooling"]),
        ("vit-fig-6", ["pooling"]),  # its first name
        ("park-kim-fig-2b", ["frequencies"]),  # a letter of a whole figure
        ("park-kim-fig-12a", ["build-up"]),  # a letter that has a study
        ("park-kim-fig-f-1a", ["augmentation"]),
        ("park-kim-fig-12", ["alternet", "build-up"]),
        ("convit-fig-11", ["sample-efficiency", "sizes", "long-training"]),
        ("convit-fig-12", ["ablation", "locality-strength"]),
        ("convit-fig-2-right", ["sizes"]),
    ],
)
def test_a_figure_names_every_study_of_its_parts(text, names):
    assert [study.name for study in find_all(text)] == names


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
        full = [[cell is not None for cell in table.row(label)] for label in table.rows]
        assert all(map(any, full)), f"{table.name} has an empty row"
        assert all(map(any, zip(*full, strict=True))), f"{table.name} has an empty column"
        units = {cell.measurement.unit for cell in table.filled.values()}
        assert len(units) == 1, table.name
        assert set(table.paper_rows) <= set(table.rows), table.name


@pytest.mark.parametrize(("name", "scale"), EVERYWHERE)
def test_claims_compare_cells_that_have_a_number(name, scale):
    plan = STUDIES[name].plan(SCALES[scale])
    for claim in plan.claims:
        contrast = plan.contrast(claim)
        assert set(contrast.cells) <= set(contrast.table.filled), claim.text
        if contrast.margin == 0 and len(contrast.cells) > 1:
            assert sum(contrast.cells.values()) == pytest.approx(0), claim.text
    assert len({(claim.source, claim.text) for claim in plan.claims}) == len(plan.claims)


@pytest.mark.parametrize(("name", "scale"), EVERYWHERE)
def test_a_table_does_not_count_the_same_number_twice(name, scale):
    for table in STUDIES[name].plan(SCALES[scale]).tables:  # or its spread would look certain
        found = [
            (cell.training.key, cell.measurement.reading.key, cell.measurement.key)
            for cell in table.filled.values()
            if isinstance(cell.measurement.key, str)
        ]
        assert len(set(found)) == len(found), table.name


@pytest.mark.parametrize("name", STUDIES)
def test_the_scales_fill_the_same_tables(name):
    layouts = [
        {
            table.name: (table.measurement.unit, table.corner)
            for table in STUDIES[name].plan(scale).tables
        }
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


def test_a_study_has_the_name_of_the_function_that_plans_it():
    @study("Deeper?", claim="deeper is better", covers=("us",), data={"laptop": "digits"})
    def two_words(scale):
        return Plan(tables=[Grid(["c"], {scale: [PLAIN]}).table("t", "")])

    assert (two_words.name, two_words.title, two_words.seeds) == ("two-words", "Deeper?", {})
    assert two_words.plan("a").tables[0].rows == ["a"]


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
    cells = {("a", "x"): CellSpec(PLAIN), ("a", "y"): CellSpec(PLAIN, Measurement(reading=entropy))}
    other = replace(PLAIN, epochs=1)
    plan = Plan(
        tables=[TableSpec("t", "", {**cells, ("a", "z"): None})], for_figures=[(other, entropy)]
    )
    wanted = plan.wanted()
    assert set(wanted) == {PLAIN.key, other.key}
    assert [set(readings) for _, readings in wanted.values()] == [{"final", "entropy"}] * 2


def test_a_number_of_several_runs_is_read_off_all_of_them():
    entropy = Reading(name="entropy")
    other = replace(PLAIN, epochs=1)
    cell = CellSpec(PLAIN, Measurement(max, "nats", entropy), others=[other])
    wanted = Plan(tables=[TableSpec("t", "", {("a", "x"): cell})]).wanted()
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
    results = Results(found([{"top1": 0.5}, {"top1": None}, {}, {"top1": 0.7}]))
    assert results.values(CellSpec(PLAIN)) == pytest.approx([50.0, 70.0])
    by_function = Measurement(lambda r: r.values.get("top1"), "share")
    assert results.values(CellSpec(PLAIN, by_function)) == pytest.approx([0.5, 0.7])
    assert results.values(None) == []


def test_a_table_is_filled_with_seeds_means_spreads_and_the_papers_numbers():
    other = replace(PLAIN, model="convit_micro")
    cells = {
        ("vit", "top-1"): CellSpec(PLAIN, paper=79.8),
        ("convit", "top-1"): CellSpec(other),
        ("convit", "top-5"): CellSpec(other, TOP5),
    }
    table = TableSpec("t", "T", cells, paper_rows={"vit": "DeiT-S"})
    records = found([{"top1": 0.5}, {"top1": 0.7}])
    records |= found([{"top1": 0.9, "top5": 1.0}, {"top1": 0.9}], other)
    images = f"correct/{PLAIN.key}"
    stored = filled(table, Results(records), {images, f"correct/{other.key}"})
    assert [row["label"] for row in stored["rows"]] == table.rows == ["vit", "convit"]
    assert stored["columns"] == ["top-1", "top-5"]
    deviation = pytest.approx(np.std([50, 70], ddof=1))
    first = {"ours": pytest.approx([50.0, 70.0]), "mean": pytest.approx(60.0), "std": deviation}
    assert stored["rows"][0]["cells"] == [
        {**first, "paper": 79.8, "correct": images},
        {"ours": [], "mean": None, "std": None, "paper": None, "correct": None},
    ]
    last = stored["rows"][1]["cells"][1]
    assert (last["ours"], last["mean"], last["std"], last["paper"]) == ([100.0], 100.0, None, None)
    assert last["correct"] is None  # top-5 is no mean of hits
    assert [row["paper_label"] for row in stored["rows"]] == ["DeiT-S", None]


def test_laptop_minutes_add_up_trainings_and_readings_over_seeds_and_cores():
    vit = Training(model="vit_micro", data="digits", recipe="laptop")
    spectrum = Reading(name="hessian")
    plan = Plan(tables=(), for_figures=[(vit, spectrum), (vit.but(model="convit_micro"), spectrum)])
    assert laptop_minutes(plan, 3) == pytest.approx(3 * 2 * (25 + 8) / 2 / 60)
    assert laptop_minutes(plan, 3, cores=1) == pytest.approx(2 * laptop_minutes(plan, 3))


def test_a_table_of_runs_has_every_measurement_of_every_run():
    runs = {"a": PLAIN, "b": PLAIN.but(epochs=2)}
    early = Measurement("first", "epochs")
    table = TableSpec.of_runs("numbers", "Numbers", runs, {"early": early, "late": TOP1})
    assert (table.rows, table.columns) == (["a", "b"], ["early", "late"])
    for label, run in runs.items():
        assert [cell.training for cell in table.row(label)] == [run, run]
        assert [cell.measurement for cell in table.row(label)] == [early, TOP1]
    assert table.measurement == early


def test_a_grid_is_a_table_for_every_measurement():
    other = PLAIN.but(epochs=2)
    grid = Grid(["few", "all"], {"a": [None, PLAIN], "b": [other, PLAIN]}, corner="images")
    table = grid.table("top5", "Top-5", TOP5, {"b": [1.0, None]}, num_test=7)
    assert [[cell and cell.training for cell in table.row(label)] for label in "ab"] == [
        [None, PLAIN],
        [other, PLAIN],
    ]
    assert [cell.paper for cell in table.filled.values()] == [None, 1.0, None]
    assert all(cell.measurement == TOP5 for cell in table.filled.values())
    assert (table.corner, table.num_test, table.columns) == ("images", 7, ["few", "all"])
    assert grid.runs == [PLAIN, other, PLAIN]
    with pytest.raises(ValueError):
        grid.table("top5", "Top-5", TOP5, {"b": [1.0]})


# claims as lines

FOUR = {
    (r, c): CellSpec(PLAIN.but(epochs=i + 1))
    for i, (r, c) in enumerate(product("ab", ("few", "all")))
}
TABLE = TableSpec("top1", "", FOUR)


def cells_of(statement, table=TABLE):
    """Weights of cells, and the margin."""
    claim = Claim(source="us", text="", statement=statement)
    contrast = Plan(tables=[table]).contrast(claim)
    assert contrast.table is table
    return contrast.cells, contrast.margin


@pytest.mark.parametrize(
    ("statement", "cells"),
    [
        ("top1: a > b at few", {("a", "few"): 1, ("b", "few"): -1}),
        ("top1: a < b at few", {("a", "few"): -1, ("b", "few"): 1}),
        ("top1: a at all > a at few", {("a", "all"): 1, ("a", "few"): -1}),
        ("top1: a at all < 0", {("a", "all"): -1}),
        (
            "top1: a - b at few > a - b at all",
            {("a", "few"): 1, ("b", "few"): -1, ("a", "all"): -1, ("b", "all"): 1},
        ),
        (
            "top1: * at all > * at few",
            {("a", "all"): 0.5, ("a", "few"): -0.5, ("b", "all"): 0.5, ("b", "few"): -0.5},
        ),
        (
            "top1: a at * > b at *",
            {("a", "few"): 0.5, ("b", "few"): -0.5, ("a", "all"): 0.5, ("b", "all"): -0.5},
        ),
    ],
)
def test_a_statement_is_a_weighted_sum_of_cells(statement, cells):
    assert cells_of(statement) == (cells, 0)


def test_a_number_on_the_right_is_a_margin_unless_it_is_a_row():
    assert cells_of("top1: a - b at few > -5") == ({("a", "few"): 1, ("b", "few"): -1}, -5)
    assert cells_of("top1: a at few < 3") == ({("a", "few"): -1}, -3)
    strengths = TableSpec("t", "", {(r, "c"): CellSpec(PLAIN) for r in ("1", "0.01")})
    assert cells_of("t: 1 > 0.01", strengths) == ({("1", "c"): 1, ("0.01", "c"): -1}, 0)


def test_labels_may_contain_the_words_of_a_statement():
    table = TableSpec(
        "t", "", {(r, c): CellSpec(PLAIN) for r in ("gates at 1/2", "x") for c in ("at 3", "b")}
    )
    assert cells_of("t: gates at 1/2 > x at at 3", table)[0] == {
        ("gates at 1/2", "at 3"): 1,
        ("x", "at 3"): -1,
    }
    assert cells_of("t: gates at 1/2 at b > x at b", table)[0] == {
        ("gates at 1/2", "b"): 1,
        ("x", "b"): -1,
    }


def test_empty_cells_are_left_out_of_a_mean_over_a_table():
    table = replace(TABLE, cells={**FOUR, ("a", "few"): None})
    assert cells_of("top1: a at * > b at *", table)[0] == {("a", "all"): 1, ("b", "all"): -1}
    assert cells_of("top1: * at all > * at few", table)[0] == {("b", "all"): 1, ("b", "few"): -1}


@pytest.mark.parametrize(
    ("statement", "names"),
    [
        ("a > b at few", "names no table"),
        ("top5: a > b at few", "no table 'top5'; there are .*top1"),
        ("top1: a, b at few", "compares nothing"),
        ("top1: a > c at few", "'c at few' is no cell; the rows are .*'a', 'b'"),
        ("top1: a > b at most", "'b at most' is no cell; .* the columns .*'few', 'all'"),
        ("top1: a > b", "in which column is 'b'.*'few', 'all'"),
        ("top1: a at few > b", "in which column is 'b'"),
        ("top1: a > b at none", "without a number.*'a', 'none'"),
    ],
)
def test_a_statement_that_cannot_be_read_says_why_before_anything_is_trained(statement, names):
    table = replace(TABLE, cells={**FOUR, ("a", "none"): None})
    claim = Claim(source="us", text="", statement=statement)
    with pytest.raises(ValueError, match=names):
        Plan(tables=[table], claims=[claim])


BLOCK = """
    [{paper} Table 1]
    at {share} of the images a is ahead
        top1: a > b at {share}
    its lead grows by {step[0]}
        top1: a - b at few > a - b at all (paper: 2.7)
    [Table 2]
    never
        top1: {missing} > b at few
    """


def test_claims_are_read_from_lines_with_one_for_each_item_of_a_list():
    names = {"paper": "ConViT", "share": ["few", "all"], "step": (3, 4), "missing": []}
    found = read_claims(BLOCK, **names)
    assert [(claim.source, claim.text) for claim in found] == [
        ("ConViT Table 1", "at few of the images a is ahead"),
        ("ConViT Table 1", "at all of the images a is ahead"),
        ("ConViT Table 1", "its lead grows by 3"),
    ]
    assert [claim.statement for claim in found[:2]] == ["top1: a > b at few", "top1: a > b at all"]
    assert [claim.paper for claim in found] == [None, None, 2.7]
    assert found[2].statement == "top1: a - b at few > a - b at all"


@pytest.mark.parametrize("block", ["a claim\n    t: a > b", "[x]\na\nb\n    t: a > b", "[x]\na"])
def test_a_claim_needs_a_source_and_a_statement(block):
    with pytest.raises(ValueError, match=r"needs a \[source\] above and a statement below"):
        read_claims(block)
