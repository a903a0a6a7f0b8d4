"""The desk scale: mini models, core-hours before anything is started, and what is kept."""

from dataclasses import replace

import pytest

from vitascope import create_model
from vitascope.commands.study import StudyOptions, scale_of
from vitascope.errors import UserError
from vitascope.papers.answer import answer
from vitascope.papers.catalog import catalog
from vitascope.papers.cost import core_hours
from vitascope.papers.plan import CellSpec, Grid, Plan, Reading, Study, TableSpec
from vitascope.papers.scale import DESK, LAPTOP, PAPER, SMOKE
from vitascope.record import Record
from vitascope.runs import executor
from vitascope.runs.cache import folder_of, images_of, keep, kept_epochs, recipe_of
from vitascope.runs.executor import Engine
from vitascope.training.trainer.loop import data_config

SMALL = (  # micro networks: many runs, or an 8 x 8 grid
    "fine-grid",
    "fine-grid-images",
    "fine-grid-augmentation",
    "fine-grid-longer",
    "locality-dial",
    "broadcasting-hierarchical",
    "broadcasting",
    "frequencies",
    "frequencies-longer",
    "ensembling",
    "stages",
    "alternet",
    "pooling",
    "convexity",
    "landscape",
    "locality-in-training",
    "ablation",
    "gating",
    "sample-efficiency",
    "heads",
    "width",
    "masking",
    "sam",
    "blur",
)
RAW = {"paper": "", "desk": "", "laptop": ""}


def one_run(scale):
    cells = {("vit", "top-1"): CellSpec(scale.training("DeiT-Ti"))}
    return Plan(tables=[TableSpec("top1", "", cells)])


STUDY = Study(name="one", title="One?", claim="one", covers=("us",), plan=one_run, data=RAW)


@pytest.mark.parametrize("name", catalog())
def test_every_study_has_its_plan_at_a_desk(name):
    study = catalog()[name]
    trainings = [training for training, _ in study.plan(DESK).wanted().values()]
    assert study.data["desk"]
    assert {training.full_recipe.lr for training in trainings} == {1e-3}
    assert any("_mini" in training.model for training in trainings) or name in SMALL


KINDS = ("vit", "convit")
ROWS = {  # study: (model, depth where it is not the model's own)
    "frequencies": {
        ("vit_micro", 8),
        ("resnet_postact_micro", None),
        ("resnet_micro", None),
        ("alternet_micro", None),
    },
    "frequencies-longer": {("vit_micro", 8), ("resnet_postact_micro", None)},
    "alternet": {("vit_micro", 8), ("resnet_micro", None), ("alternet_micro", None)},
    "pooling": {
        ("vit_micro", None),
        ("vit_micro_gap", None),
        ("convit_micro", None),
        ("resnet_micro", None),
    },
    "broadcasting": {("vit_micro", None), ("vit_micro+cb", None)},
    "locality-in-training": {("vit_micro", 8), ("convit_micro", 8)},
    "fine-grid-images": {("vit_micro", None), ("convit_micro", None)},
    "fine-grid-augmentation": {("vit_micro", None), ("convit_micro", None)},
    "fine-grid-larger": {(f"{kind}_{size}", None) for kind in KINDS for size in ("micro", "mini")},
    "fine-grid-longer": {("vit_micro", None), ("convit_micro", None)},
    "locality-dial": {
        *(
            (f"vit_micro{way}", None)
            for way in ("", "+mimetic", "+sincos", "+impulse", "+lsa", "+spt")
        ),
        *((f"vit_micro{way}", None) for way in ("+stem", "+rope")),
        *((name, None) for name in ("convit_micro", "convolutional_vit_micro", "resnet_micro")),
    },
}
SEEDS = {
    "frequencies": 5,
    "frequencies-longer": 3,
    "alternet": 5,
    "pooling": 5,
    "broadcasting": 20,
    "locality-in-training": 3,
    "fine-grid-images": 5,
    "fine-grid-augmentation": 5,
    "fine-grid-larger": 5,
    "fine-grid-longer": 5,
    "locality-dial": 3,
}
IMAGES = {  # of CIFAR-10: how many, and how often each is seen
    "frequencies": {(50_000, 1)},
    "frequencies-longer": {(50_000, 3)},
    "alternet": {(50_000, 1)},
    "pooling": {(5_000, 10)},
    "broadcasting": {(5_000, 10)},
    "locality-in-training": {(20_000, 5)},
    "fine-grid-images": {(1_000, 50), (5_000, 10)},
    "fine-grid-augmentation": {(1_000, 50)},
    "fine-grid-larger": {(1_000, 50)},
    "fine-grid-longer": {(1_000, 50), (1_000, 150)},
    "locality-dial": {(1_000, 50)},
}


@pytest.mark.parametrize("name", ROWS)
def test_studies_of_many_runs_are_small_at_a_desk(name):
    study = catalog()[name]
    scale = scale_of(study, StudyOptions(scale="desk"))
    wanted = [training for training, _ in study.plan(scale).wanted().values()]
    assert {(t.model, t.model_args.get("depth")) for t in wanted} == ROWS[name]
    recipes = [training.full_recipe for training in wanted]
    assert {(round(50_000 * r.subset.fraction), r.total_epochs) for r in recipes} == IMAGES[name]
    assert len(scale.seeds) == SEEDS[name]
    assert scale_of(study, StudyOptions(scale="desk", seeds=(7,))).seeds == (7,)


def test_patches_of_four_pixels_give_the_small_networks_an_8_x_8_grid():
    for name in ROWS:
        for training, _ in catalog()[name].plan(DESK).wanted().values():
            if "vit" in training.model:
                model = create_model(training.model, num_classes=10, **training.model_args)
                assert model.patch_embed.num_patches == 64


def test_what_is_looked_into_at_a_desk_is_trained_once():
    keys = [set(catalog()[n].plan(DESK).wanted()) for n in ("frequencies", "ensembling", "stages")]
    assert keys[0] == keys[1]
    (more,) = keys[0] - keys[2]
    assert more.startswith("resnet_postact_micro-")
    assert keys[2] < keys[0]
    tenth = set(catalog()["pooling"].plan(DESK).wanted())
    assert len(tenth & set(catalog()["landscape"].plan(DESK).wanted())) == 2  # ViT and ResNet


@pytest.mark.parametrize("scale", [DESK, LAPTOP, PAPER], ids=lambda scale: scale.name)
def test_a_change_is_one_field_of_the_training(scale):
    names = ("fine-grid-augmentation", "fine-grid-larger", "fine-grid-longer")
    found = {}
    for name in names:
        table = catalog()[name].plan(scale).tables[0]
        usual, changed = map(table.row, table.rows)
        for before, after in zip(usual, changed, strict=True):
            old, new = before.training, after.training
            was, now = old.full_recipe.to_dict(), new.full_recipe.to_dict()
            differ = {key for key in was if was[key] != now[key]}
            same_model = (old.model, old.model_args) == (new.model, new.model_args)
            found.setdefault(name, set()).add((same_model, *sorted(differ)))
    longer = ("epochs", "warmup_epochs")  # the same share of the training warms up
    assert found == dict(
        zip(names, [{(True, "augmentation")}, {(False,)}, {(True, *longer)}], strict=True)
    )
    if scale.name == "desk":  # usual runs are those of fine-grid-images and the dial
        shared = [set(catalog()[name].plan(scale).wanted()) for name in names]
        for other in ("fine-grid-images", "locality-dial"):
            assert {len(keys & set(catalog()[other].plan(scale).wanted())) for keys in shared} == {
                2
            }


def test_spectra_at_a_desk_are_read_after_1_3_and_10_epochs():
    plan = catalog()["pooling"].plan(DESK)
    training, readings = next(iter(plan.wanted().values()))
    kept = kept_epochs(training.full_recipe)
    spectra = [reading.options for reading in readings.values() if reading.name == "hessian"]
    read = [min(kept, key=lambda e: abs(e - 10 * options["at"])) for options in spectra]
    assert read == [1, 3, 10]
    assert {options["num_batches"] for options in spectra} == {8}
    texts = " ".join(claim.text for claim in plan.claims)
    for words in ("average pooling leaves fewer", "convit_micro has fewer", "resnet_micro has few"):
        assert texts.count(words) == 3  # after each of them


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


def test_a_spectrum_costs_time_that_a_finished_one_does_not(tmp_path):
    def spectrum(scale):
        reading = Reading(name="hessian", options={"num_batches": 2, "batch_size": 4})
        return replace(one_run(scale), for_figures=[(scale.training("DeiT-Ti"), reading)])

    cost = core_hours(spectrum(SMOKE), SMOKE.seeds, tmp_path)
    assert cost.readings > 0 == core_hours(one_run(SMOKE), SMOKE.seeds, tmp_path).readings
    assert cost.hours == cost.training + cost.readings
    for training, readings in spectrum(SMOKE).wanted().values():
        folder = folder_of(training, 0, tmp_path)
        for reading in readings.values():
            Record(kind="made up").save(folder / "readings" / reading.key)
        images = images_of(training)
        data = data_config(images, recipe_of(training, 0, images))
        Record(kind="made up", config={"data": data}).save(folder / "record")
    assert core_hours(spectrum(SMOKE), SMOKE.seeds, tmp_path).hours == 0


def test_the_runs_of_a_study_weigh_what_they_cost(tmp_path, monkeypatch):
    def two_shares(scale):
        rows = {"vit": [scale.training("DeiT-Ti", fraction=f) for f in (0.1, 1.0)]}
        return Plan(tables=[Grid(["few", "all"], rows).table("top1", "")])

    def watched(function, jobs, *, weights, epochs, **_):
        images = [job["training"].full_recipe.subset.fraction for job in jobs]
        seen.update(zip(images, zip(epochs, weights, strict=True), strict=True))
        raise UserError("seen")

    seen = {}
    monkeypatch.setattr(executor, "side_by_side", watched)
    study = replace(STUDY, plan=two_shares)
    with pytest.raises(UserError, match="seen"):
        answer(study, replace(LAPTOP, seeds=(0,)), tmp_path, Engine(quiet=True, processes=2))
    (few_epochs, few), (all_epochs, whole) = seen[0.1], seen[1.0]
    assert few_epochs == 10 * all_epochs  # all are seen as often
    assert whole > 4 * few  # ten times the images, and the same test images
    assert few > 0


def test_a_quiet_study_in_one_process_times_nothing(tmp_path, monkeypatch):
    def timed(*args, **options):
        raise UserError("timed")

    monkeypatch.setattr("vitascope.papers.cost.time_steps", timed)
    answer(STUDY, SMOKE, tmp_path / "a", Engine(quiet=True, processes=1))
    with pytest.raises(UserError, match="timed"):
        answer(STUDY, SMOKE, tmp_path / "b", Engine(quiet=False, processes=1))


@pytest.mark.parametrize(("name", "rows"), [("locality-dial", 11), ("fine-grid-longer", 2)])
def test_a_study_of_one_share_is_drawn_with_a_dot_per_seed(name, rows):
    class Two:
        def values(self, cell):
            return [40.0, 41.0]

    (draw,) = catalog()[name].plan(DESK).figures
    figure = draw(Two())
    (panel,) = figure.panels
    assert len(panel.groups) == rows
    assert all(list(values) == [40.0, 41.0] for line in panel.series for values in line.values)


def test_a_folder_is_not_kept_inside_itself(tmp_path):
    with pytest.raises(UserError, match="lie in each other"):
        keep(tmp_path, tmp_path / "kept")
