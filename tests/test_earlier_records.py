"""Seeds are added to a study whose runs are gone: earlier records tell enough about them."""

from dataclasses import replace

import numpy as np
import pytest

from vitascope import record
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.figure import Figure, Series
from vitascope.papers import earlier
from vitascope.papers.answer import answer
from vitascope.papers.cost import core_hours
from vitascope.papers.earlier import earlier_runs, of_accuracy_alone
from vitascope.papers.figures import lines
from vitascope.papers.plan import (
    TOP1,
    CellSpec,
    Measurement,
    Plan,
    Reading,
    Study,
    TableSpec,
    drawing,
    read_claims,
)
from vitascope.papers.scale import SMOKE
from vitascope.record import Record
from vitascope.report.sections.study import study_text
from vitascope.runs.executor import Engine

ENGINE = Engine(quiet=True, processes=1)
TINY = {"embed_dim": 12, "num_heads": 2, "depth": 1}
ONE = SMOKE.training((("", {}), ("vit_micro", TINY)), fraction=0.5)
TWO = ONE.but(model_args={"depth": 2})


CLAIM = """
    [us]
    two blocks are better
        top1: two > one
    """
MORE = """
    [us]
    a
        nll: one > two
    b
        dense: one > two at entropy
    """


def depth(scale):
    runs = {"one": ONE, "two": TWO}
    table = TableSpec.of_runs("top1", "Depth", runs, {"top-1": TOP1}, corner="blocks")
    return Plan(tables=[table], claims=read_claims(CLAIM))


STUDY = Study(name="depth", title="Deeper?", claim="yes", covers=("us",), plan=depth, data={})


READ = Reading(name="entropy", options={"num_images": 8})


def by_layer(found):
    """A figure of what is read off the runs: as many lines as there are seeds."""
    nats = [r.values["nats"] for r in found.of(ONE, READ)]
    series = [Series(label=str(i), x=[1.0], y=list(each)) for i, each in enumerate(nats)]
    panel = lines("Entropy", series, x="layer", y="entropy, nats")
    return Figure(name="entropy", title="Entropy", reading="By layer.", panels=(panel,))


def inside(scale):
    """As `depth`, and more than accuracies is asked: the loss, an instrument, a figure."""
    plan, runs = depth(scale), {"one": ONE, "two": TWO}
    nll = Measurement("train_nll", "nats", digits=3)
    entropy = Measurement(lambda r: float(np.mean(r.values["nats"])), "nats", READ, digits=3)
    none = Measurement("nothing", "nats", READ)
    loss = TableSpec.of_runs("nll", "Loss", runs, {"NLL": nll})
    dense = TableSpec.of_runs("dense", "Entropy", runs, {"entropy": entropy, "none": none})
    return Plan(
        tables=[*plan.tables, loss, dense],
        claims=[*plan.claims, *read_claims(MORE)],
        figures=[drawing(by_layer)],
    )


INSIDE = replace(STUDY, name="inside", plan=inside)


def seeds(*which):
    return replace(SMOKE, seeds=which)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two seeds in one folder, the third in another, all three in a last one."""
    made = tmp_path_factory.mktemp("records")
    answer(STUDY, seeds(0, 1), made / "first", ENGINE)
    answer(STUDY, seeds(0, 1, 2), made / "second", ENGINE, [made / "first" / "depth.json"])
    answer(STUDY, seeds(0, 1, 2), made / "whole", ENGINE)
    return made


def test_an_added_seed_gives_what_all_seeds_together_give(folders):
    joined, whole = (record.load(folders / name / "depth") for name in ("second", "whole"))
    assert joined.values["tables"] == whole.values["tables"]
    assert joined.values["claims"] == whole.values["claims"]
    for name, right in whole.arrays.items():
        np.testing.assert_array_equal(joined.arrays[name], right)
    assert "earlier" not in whole.values


def test_what_a_record_tells_is_not_trained_again_and_is_said(folders):
    trained = [path.name for path in folders.glob("second/runs/*/seed-*")]
    assert trained == ["seed-2", "seed-2"]
    joined, first = (record.load(folders / name / "depth") for name in ("second", "first"))
    told = {"record": "depth.json", "num_runs": 4}
    made = {name: first.made[name] for name in ("time", "commit")}
    assert joined.values["earlier"] == [{**told, **made}]
    said = "6 runs, 4 of them from the record depth.json"
    assert said in study_text(joined)
    page = folders / "second" / "report.html"
    assert main(["report", str(folders / "second"), "--quiet"]) == 0
    assert said in page.read_text()
    spent = joined.values["training_seconds"]
    assert spent > first.values["training_seconds"]  # theirs, and the third seed's


def test_a_plan_does_not_count_runs_that_a_record_tells(folders, tmp_path):
    plan = depth(SMOKE)
    known = earlier_runs([folders / "first"], "depth", SMOKE, plan).runs
    assert set(known) == {(t.key, seed) for t in (ONE, TWO) for seed in (0, 1)}
    left = core_hours(plan, (0, 1, 2), tmp_path, known=known)
    assert left.num_runs == 2


def test_a_run_that_is_there_is_preferred_to_its_record(folders, tmp_path):
    wrong = record.load(folders / "first" / "depth")
    wrong = replace(wrong, arrays={name: 0 * rows for name, rows in wrong.arrays.items()})
    wrong.save(tmp_path / "depth")
    found = answer(STUDY, seeds(0, 1), folders / "first", ENGINE, [tmp_path])
    assert found.values["tables"][0]["rows"][0]["cells"][0]["mean"] > 0
    assert "earlier" not in found.values


@pytest.fixture(scope="module")
def insides(tmp_path_factory):
    """Two seeds in one folder, the third in another, all three in a last one."""
    made = tmp_path_factory.mktemp("insides")
    answer(INSIDE, seeds(0, 2), made / "first", ENGINE)
    answer(INSIDE, seeds(0, 1, 2), made / "second", ENGINE, [made / "first" / "inside.json"])
    answer(INSIDE, seeds(0, 1, 2), made / "whole", ENGINE)
    return made


def test_a_seed_is_added_to_a_study_that_reads_more_than_accuracies(insides):
    joined, whole = (record.load(insides / name / "inside") for name in ("second", "whole"))
    assert joined.values["tables"] == whole.values["tables"]
    assert joined.values["claims"] == whole.values["claims"]
    assert joined.values["num_test"] == whole.values["num_test"]
    assert [path.name for path in insides.glob("second/runs/*/seed-*")] == ["seed-1", "seed-1"]
    first = record.load(insides / "first" / "inside")
    assert [told["num_runs"] for told in joined.values["earlier"]] == [4]
    assert joined.values["reading_seconds"] > first.values["reading_seconds"]


def test_a_figure_is_drawn_of_the_most_seeds_that_were_read(insides, tmp_path):
    joined, whole = (record.load(insides / name / "inside") for name in ("second", "whole"))
    (few,), (all_seeds,) = joined.values["figures"], whole.values["figures"]
    first = record.load(insides / "first" / "inside")
    assert few["panels"] == first.values["figures"][0]["panels"]
    assert few["reading"] == "By layer. Drawn of the seeds 0, 2."
    assert all_seeds["reading"] == "By layer."
    assert len(all_seeds["panels"][0]["series"]) == 3
    one = replace(first, values={**first.values, "seeds": [2]})  # of seed 2 alone
    one.values["tables"] = [_last_seed(table) for table in first.values["tables"]]
    replace(one, arrays={n: rows[1:] for n, rows in first.arrays.items()}).save(tmp_path / "one")
    found = answer(INSIDE, seeds(0, 1, 2), insides / "whole", ENGINE, [tmp_path / "one.json"])
    assert "earlier" not in found.values  # all are there
    found = answer(INSIDE, seeds(1, 2), insides / "second", ENGINE, [tmp_path / "one.json"])
    (drawn,) = found.values["figures"]
    assert drawn["reading"] == "By layer. Drawn of seed 1."
    assert len(drawn["panels"][0]["series"]) == 1
    joined.save(tmp_path / "joined")  # of three seeds, the figure of two
    more = answer(INSIDE, seeds(0, 1, 2, 3), tmp_path / "more", ENGINE, [tmp_path / "joined.json"])
    assert more.values["figures"][0]["reading"] == "By layer. Drawn of the seeds 0, 2."
    assert more.values["figure_seeds"] == [0, 2]


def _last_seed(table):
    rows = [
        {**row, "cells": [{**cell, "ours": cell["ours"][-1:]} for cell in row["cells"]]}
        for row in table["rows"]
    ]
    return {**table, "rows": rows}


def test_numbers_of_another_scale_or_other_tables_are_not_taken(insides, tmp_path):
    known, plan = record.load(insides / "first" / "inside"), inside(SMOKE)
    assert earlier_runs([insides / "first"], "inside", SMOKE, plan).studies.keys() == {0, 2}
    few_tables = {**known.values, "tables": known.values["tables"][:1]}
    renamed = [{**table, "columns": ["other"]} for table in known.values["tables"]]
    some_seeds = [_last_seed(table) for table in known.values["tables"]]
    for changes in (
        {"config": {**known.config, "images": 7}},
        {"values": {**known.values, "study": "other"}},
        {"values": few_tables},
        {"values": {**known.values, "tables": renamed}},
        {"values": {**known.values, "tables": some_seeds}},
        {"arrays": dict(list(known.arrays.items())[:1])},
    ):
        replace(known, **changes).save(tmp_path / "inside")
        with pytest.raises(UserError, match="none is of this study at this scale"):
            earlier_runs([tmp_path], "inside", SMOKE, plan)


def test_trainings_that_more_is_read_off_are_left_out():
    table = depth(SMOKE).tables[0]
    curves = Plan(tables=[table], for_figures=[(ONE, Reading(name="curves"))])
    assert of_accuracy_alone(depth(SMOKE)) == {ONE.key, TWO.key}
    assert of_accuracy_alone(curves) == {TWO.key}
    loss = TableSpec.of_runs("nll", "Loss", {"two": TWO}, {"NLL": Measurement("train_nll", "nats")})
    assert of_accuracy_alone(Plan(tables=[table, loss])) == {ONE.key}
    both = CellSpec(ONE, Measurement(max, "nats"), others=[TWO])
    pair = TableSpec("both", "Both", {("one", "both"): both})
    assert of_accuracy_alone(Plan(tables=[table, pair])) == set()


def test_records_of_something_else_are_refused_in_words(folders, tmp_path, monkeypatch):
    Record(kind="gates", values={}).save(tmp_path / "gates")
    plan = depth(SMOKE)
    with pytest.raises(UserError, match="record of a 'gates', not of a study"):
        earlier_runs([tmp_path / "gates.json"], "depth", SMOKE, plan)
    with pytest.raises(UserError, match="has no record of a study"):
        earlier_runs([tmp_path], "depth", SMOKE, plan)
    with pytest.raises(UserError, match=r"nowhere"):
        earlier_runs([tmp_path / "nowhere.json"], "depth", SMOKE, plan)
    table = TableSpec("top1", "Width", {("wide", "top-1"): CellSpec(ONE.but(epochs=7))})
    with pytest.raises(UserError, match="none kept the answers of its runs"):
        earlier_runs([folders / "first"], "depth", SMOKE, Plan(tables=[table]))
    nothing = Plan(tables=[], for_figures=[(ONE, Reading(name="curves"))])
    with pytest.raises(UserError, match="more than accuracies is read"):
        earlier_runs([folders / "first"], "other", SMOKE, nothing)
    few = earlier.images_of(ONE)
    few = replace(few, test=few.test.take(np.arange(5)))
    monkeypatch.setattr(earlier, "images_of", lambda training: few)
    with pytest.raises(UserError, match="has 2 x 359 answers of 2 seeds and digits 5 test images"):
        earlier_runs([folders / "first"], "depth", SMOKE, plan)


def test_records_with_less_in_them_are_used_or_refused(folders, tmp_path):
    known, plan = record.load(folders / "first" / "depth"), depth(SMOKE)
    (tmp_path / "config.json").write_text("{}")  # is passed over in a folder
    bare = {name: known.values[name] for name in ("study", "seeds")}
    replace(known, values=bare).save(tmp_path / "depth")
    assert len(earlier_runs([tmp_path], "depth", SMOKE, plan).runs) == 4
    replace(known, values={"study": "depth"}).save(tmp_path / "depth")
    with pytest.raises(UserError, match="answers of 0 seeds"):
        earlier_runs([tmp_path], "depth", SMOKE, plan)


def test_records_are_those_of_one_study(folders, capsys):
    words = ["study", "--all", "--scale", "smoke", "--records", str(folders / "first")]
    assert main(words) == 2
    assert "--records are those of one study" in capsys.readouterr().err
