"""Seeds are added to a study whose runs are gone: earlier records tell enough about them."""

from dataclasses import replace

import numpy as np
import pytest

from vitascope import record
from vitascope.cli import main
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.tables.study import study_text
from vitascope.studies.grid.executor import Engine
from vitascope.studies.papers import earlier
from vitascope.studies.papers.answer import answer
from vitascope.studies.papers.core_hours import core_hours
from vitascope.studies.papers.earlier import earlier_runs, of_accuracy_alone
from vitascope.studies.papers.plan import Claim, Plan, Reading, Sheet, Study
from vitascope.studies.papers.scale import SMOKE

ENGINE = Engine(quiet=True, processes=1)
TINY = {"embed_dim": 12, "num_heads": 2, "depth": 1}
ONE = SMOKE.training((("", {}), ("vit_micro", TINY)), fraction=0.5)
TWO = ONE.but(model_args={"depth": 2})


def depth(scale):
    asked = {"top-1": {}}
    table = Sheet.of_runs("top1", "Depth", {"one": ONE, "two": TWO}, asked, corner="blocks")
    cells = {("two", "top-1"): 1, ("one", "top-1"): -1}
    claim = Claim(source="us", text="two blocks are better", table="top1", cells=cells)
    return Plan(tables=[table], claims=[claim])


STUDY = Study(name="depth", title="Deeper?", claim="yes", covers=("us",), plan=depth, data={})


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
    known = earlier_runs([folders / "first"], plan)
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


def test_trainings_that_more_is_read_off_are_left_out():
    table = depth(SMOKE).tables[0]
    curves = Plan(tables=[table], also=[(ONE, Reading(name="curves"))])
    assert of_accuracy_alone(depth(SMOKE)) == {ONE.key, TWO.key}
    assert of_accuracy_alone(curves) == {TWO.key}
    loss = Sheet.of_runs("nll", "Loss", {"two": TWO}, {"NLL": {"key": "train_nll"}})
    assert of_accuracy_alone(Plan(tables=[table, loss])) == {ONE.key}
    pair = Sheet.of_runs("both", "Both", {"one": ONE}, {"both": {"key": max, "others": [TWO]}})
    assert of_accuracy_alone(Plan(tables=[table, pair])) == set()


def test_records_of_something_else_are_refused_in_words(folders, tmp_path, monkeypatch):
    Record(kind="gates", values={}).save(tmp_path / "gates")
    plan = depth(SMOKE)
    with pytest.raises(UserError, match="record of a 'gates', not of a study"):
        earlier_runs([tmp_path / "gates.json"], plan)
    with pytest.raises(UserError, match="has no record of a study"):
        earlier_runs([tmp_path], plan)
    with pytest.raises(UserError, match=r"nowhere"):
        earlier_runs([tmp_path / "nowhere.json"], plan)
    table = Sheet.of_runs("top1", "Width", {"wide": ONE.but(epochs=7)}, {"top-1": {}})
    with pytest.raises(UserError, match="none kept the answers of its runs"):
        earlier_runs([folders / "first"], Plan(tables=[table]))
    nothing = Plan(tables=[], also=[(ONE, Reading(name="curves"))])
    with pytest.raises(UserError, match="more than accuracies is read"):
        earlier_runs([folders / "first"], nothing)
    few = earlier.images_of(ONE)
    few = replace(few, test=few.test.take(np.arange(5)))
    monkeypatch.setattr(earlier, "images_of", lambda training: few)
    with pytest.raises(UserError, match="has 2 x 359 answers of 2 seeds and digits 5 test images"):
        earlier_runs([folders / "first"], plan)


def test_records_with_less_in_them_are_used_or_refused(folders, tmp_path):
    known, plan = record.load(folders / "first" / "depth"), depth(SMOKE)
    (tmp_path / "config.json").write_text("{}")  # is passed over in a folder
    bare = {name: known.values[name] for name in ("study", "seeds")}
    replace(known, values=bare).save(tmp_path / "depth")
    assert len(earlier_runs([tmp_path], plan)) == 4
    replace(known, values={"study": "depth"}).save(tmp_path / "depth")
    with pytest.raises(UserError, match="answers of 0 seeds"):
        earlier_runs([tmp_path], plan)


def test_records_are_those_of_one_study(folders, capsys):
    words = ["study", "--all", "--scale", "smoke", "--records", str(folders / "first")]
    assert main(words) == 2
    assert "--records are those of one study" in capsys.readouterr().err
