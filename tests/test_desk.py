"""The desk scale: mini models, core-hours before anything is started, and what is kept."""

import pytest

from vitascope.errors import UserError
from vitascope.studies.grid.executor import Engine
from vitascope.studies.grid.keep import keep
from vitascope.studies.papers.answer import answer
from vitascope.studies.papers.catalog import catalog
from vitascope.studies.papers.core_hours import core_hours
from vitascope.studies.papers.plan import Ask, Plan, Row, Sheet, Study
from vitascope.studies.papers.scale import DESK, SMOKE

RAW = {"paper": "", "desk": "", "laptop": ""}


def one_run(scale):
    row = Row(label="vit", cells=[Ask(training=scale.training("DeiT-Ti"))])
    table = Sheet(name="top1", title="", corner="", columns=["top-1"], rows=[row])
    return Plan(tables=[table])


STUDY = Study(name="one", title="One?", claim="one", covers=("us",), plan=one_run, data=RAW)


@pytest.mark.parametrize("name", catalog())
def test_every_study_has_its_plan_at_a_desk(name):
    study = catalog()[name]
    trainings = [training for training, _ in study.plan(DESK).wanted().values()]
    assert study.data["desk"]
    assert {training.full_recipe.lr for training in trainings} == {1e-3}
    small = (
        "fine-grid",
        "fine-grid-images",
        "fine-grid-changes",
        "locality-dial",
        "broadcasting-hierarchical",
    )
    assert any("_mini" in training.model for training in trainings) or name in small


def test_few_images_are_seen_as_often_as_many_and_for_an_eighth_of_the_time():
    few, many = (DESK.few("DeiT-S", fraction=f).full_recipe for f in (0.02, 0.1))
    assert (few.total_epochs, many.total_epochs) == (50, 10)  # of 1,000 and 5,000 images
    assert DESK.training("DeiT-S", fraction=0.1).full_recipe.total_epochs == 80


def test_finished_runs_cost_nothing_and_are_kept_without_their_weights(tmp_path):
    out, kept = tmp_path / "out", tmp_path / "kept"
    before = core_hours(one_run(SMOKE), SMOKE.seeds, out)
    assert before.num_runs == 1
    assert 0 < before.hours < 1
    with pytest.raises(UserError, match="no finished run"):
        keep(out, kept)
    first = answer(STUDY, SMOKE, out, Engine(quiet=True, processes=1))
    after = core_hours(one_run(SMOKE), SMOKE.seeds, out)
    assert (after.num_runs, after.hours) == (0, 0)
    size = keep(out, kept)
    files = [path for path in kept.rglob("*") if path.is_file()]
    assert size == sum(path.stat().st_size for path in files)
    names = {path.name for path in files}
    assert {"config.yaml", "metrics.jsonl", "predictions.safetensors", "record.json"} <= names
    assert "model.safetensors" not in names
    again = answer(STUDY, SMOKE, kept, Engine(quiet=True, processes=1))
    assert again.values["tables"] == first.values["tables"]


def test_a_folder_is_not_kept_inside_itself(tmp_path):
    with pytest.raises(UserError, match="lie in each other"):
        keep(tmp_path, tmp_path / "kept")
