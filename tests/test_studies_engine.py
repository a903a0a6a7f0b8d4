"""Runs of a grid: who goes first, what is done once, and how a cluster is told."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from vitascope import record
from vitascope.commands.parsing import parse
from vitascope.commands.study import papers_studies, scale_of
from vitascope.commands.train import Train
from vitascope.data import load
from vitascope.errors import UserError
from vitascope.loading.model_sizes import count
from vitascope.models import create_model
from vitascope.papers import answer as answering
from vitascope.papers.catalog import catalog
from vitascope.papers.cost import budget, gigabytes, hours, size_of
from vitascope.papers.plan import CellSpec, Claim, Plan, Reading, Study, TableSpec, Training
from vitascope.papers.scale import LAPTOP, PAPER, SMOKE
from vitascope.runs.cache import command, folder_of, recipe_of, run_of
from vitascope.runs.executor import Engine, run_all, waves
from vitascope.runs.readings import read
from vitascope.runs.slurm import meeting_point, run_job
from vitascope.runs.train_model import recipe_from
from vitascope.settings import pairs
from vitascope.training import load_run, recipe

FINAL, CURVES = Reading(), Reading(name="curves")
TINY = {"embed_dim": 12, "num_heads": 2, "depth": 1}
STUDENT = SMOKE.training((("", {}), ("vit_micro_distilled", TINY)), fraction=0.5)
TEACHER = SMOKE.training((("", {}), ("vit_micro", TINY)), fraction=0.5)
TAUGHT = STUDENT.but(teacher=TEACHER)
LOCAL = Engine(quiet=True)
DEBUG = Engine(engine="slurm", cluster="debug", gpus=1, quiet=True)


def finished(folder: Path) -> dict[Path, int]:
    """When every file of the runs was written last."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_teachers_go_first_and_one_that_nobody_asked_for_is_added():
    wanted = [(TAUGHT, [FINAL], seed) for seed in (0, 1)] + [(STUDENT, [FINAL], 0)]
    first, second = waves(wanted)
    assert {(t.key, seed) for t, _, seed in first} == {
        (TEACHER.key, 0),
        (TEACHER.key, 1),
        (STUDENT.key, 0),
    }
    assert [(t.key, seed) for t, _, seed in second] == [(TAUGHT.key, 0), (TAUGHT.key, 1)]
    asked = waves([(TAUGHT, [FINAL], 0), (TEACHER, [CURVES], 0)])
    assert [(t.key, list(r)) for t, r, _ in asked[0]] == [(TEACHER.key, [CURVES])]


def test_timms_teachers_are_nobodys_run():
    assert [len(wave) for wave in waves([(STUDENT.but(teacher="regnety_160"), [FINAL], 0)])] == [1]


def test_a_run_is_trained_and_read_once(tmp_path):
    wanted = [(TAUGHT, [FINAL], 0)]
    run_all(wanted, tmp_path, LOCAL)
    before = finished(tmp_path)
    run = load_run(folder_of(TAUGHT, 0, tmp_path))
    assert run.recipe.distillation == "hard"
    assert folder_of(TEACHER, 0, tmp_path) / "record.json" in before
    run_all(wanted, tmp_path, LOCAL)
    assert finished(tmp_path) == before
    run_all([(TAUGHT, [FINAL, CURVES], 0)], tmp_path, LOCAL)  # read again, not trained again
    after = finished(tmp_path)
    new = set(after) - set(before)
    assert [path.name for path in new] == ["curves.json"]
    assert {path for path in before if path.suffix in (".safetensors", ".jsonl")} <= {
        path for path in before if after[path] == before[path]
    }


def test_a_run_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="unknown reading 'entropie'; did you mean 'entropy'"):
        run_all([(TEACHER, [Reading(name="entropie")], 0)], tmp_path, LOCAL)


def test_submitit_makes_runs_and_leaves_finished_ones_alone(tmp_path):
    wanted = [(TAUGHT, [FINAL], 0)]
    run_all(wanted, tmp_path, DEBUG)
    found = record.load(folder_of(TAUGHT, 0, tmp_path) / "readings" / "final")
    assert found.values["num_test"] == 359
    before = finished(tmp_path)
    run_all(wanted, tmp_path, DEBUG)
    assert finished(tmp_path) == before


@pytest.mark.slow
def test_a_job_that_fails_is_named_with_its_logs(tmp_path):
    broken = TEACHER.but(model="vit_mikro")
    engine = replace(DEBUG, cluster="local", gpus=0, hours=0.1)  # in a process of its own
    with pytest.raises(UserError) as error:
        run_all([(broken, [FINAL], 0)], tmp_path, engine)
    said = str(error.value)
    assert said.startswith(f"1 of 1 runs failed, first {folder_of(broken, 0, tmp_path)}: ")
    assert "vit_mikro" in said.partition("failed")[2]
    assert "\n" not in said
    assert list((tmp_path / "slurm").glob("*_log.err"))


def test_without_slurm_the_engine_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="no SLURM here: .*; use --engine local"):
        run_all([(TEACHER, [FINAL], 0)], tmp_path, Engine(engine="slurm", gpus=1))


def test_several_gpus_are_a_torchrun():
    assert Engine(gpus=1).launcher() == ""
    assert Engine(gpus=8).launcher() == "torchrun --nproc-per-node=8 -m"
    many = Engine(gpus=8, nodes=2).launcher("python -m torch.distributed.run")
    assert many.startswith("python -m torch.distributed.run --nnodes=2 ")
    assert "--rdzv-id=$ID" in many
    assert "--rdzv-endpoint=$HEAD:$PORT" in many


def test_jobs_on_one_node_do_not_meet_each_other():
    node = {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"}
    jobs = [meeting_point({**node, "SLURM_JOB_ID": str(job)}) for job in range(90_000, 90_050)]
    assert {each["$HEAD"] for each in jobs} == {"10.0.0.7"}
    assert len({each["$PORT"] for each in jobs}) == len({each["$ID"] for each in jobs}) == 50
    assert all(1024 < int(each["$PORT"]) < 32_768 for each in jobs)


@pytest.mark.slow
def test_a_launched_run_is_trained_by_the_command_and_then_read(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # the environment is not activated
    training = TEACHER.but(validation=0.2)
    folder = folder_of(training, 0, tmp_path)
    job = {"training": training, "readings": (FINAL,), "seed": 0, "grid": tmp_path, "out": folder}
    run_job(job, Engine(gpus=2).launcher(f"{sys.executable} -m torch.distributed.run"))
    by_command = record.load(folder / "readings" / "final").values
    assert by_command["num_test"] == 287  # validation images
    here = run_of(training, 0, tmp_path / "here")
    for name in ("top1", "test_nll", "train_loss", "step"):
        assert by_command[name] == pytest.approx(here.final[name], rel=1e-6), name


def test_of_several_nodes_the_first_reads(tmp_path, monkeypatch):
    folder = folder_of(TEACHER, 0, tmp_path)
    job = {"training": TEACHER, "readings": (FINAL,), "seed": 0, "grid": tmp_path, "out": folder}
    monkeypatch.setenv("SLURM_PROCID", "1")
    run_job(job, "")
    assert not folder.exists()
    monkeypatch.setenv("SLURM_PROCID", "0")
    run_job(job, "")
    assert (folder / "readings" / "final.json").exists()


def words_of(training: Training, dataset=None) -> Train:
    program, name, *words = shlex.split(command(training, 3, Path("a b"), dataset))
    assert (program, name) == ("vitascope", "train")
    return parse(Train, "vitascope train", words)


@pytest.mark.parametrize("name", catalog())
def test_the_command_of_a_run_is_understood_and_has_its_recipe(name):
    trainings = [training for training, _ in catalog()[name].plan(PAPER).wanted().values()]
    by_kind = {(t.recipe, *t.changes, t.epochs, bool(t.teacher)): t for t in trainings}
    for training in by_kind.values():
        args = words_of(training)
        fields = {} if args.distillation == "none" else {"distillation": args.distillation}
        assert recipe_from(args.recipe, args.epochs, args.set, **fields) == recipe_of(
            training, 3, None
        )
        assert (args.model, args.data, args.seed) == (training.model, training.data, 3)
        assert args.image_size == training.image_size
        assert args.resume


def test_a_command_has_the_models_arguments_and_a_folder_with_a_space():
    args = {"embed_dim": 36, "depths": (2, 2), "conv_init": False, "stem": "cifar"}
    training = TAUGHT.but(model_args=args)
    found = words_of(training, load("digits"))
    assert pairs(found.model_args, "--model-args") == {**TINY, **args, "depths": [2, 2]}
    assert found.out == folder_of(training, 3, Path("a b"))
    assert (found.teacher, found.distillation) == (str(folder_of(TEACHER, 3, Path("a b"))), "hard")


def test_few_images_make_small_batches_and_rare_measurements():
    digits = load("digits")
    made = Training(model="vit_micro", data="digits", recipe="laptop", epochs=20)
    whole = recipe_of(made, 0, digits)
    assert whole.batch_size == recipe("laptop").batch_size
    few = recipe_of(made.but(changes={"subset.fraction": 0.05}), 0, digits)
    assert few.batch_size <= 0.05 * 1438 / 4
    assert few.total_epochs == 400
    assert few.eval_every == 20 * whole.eval_every
    assert whole.warmup_epochs == pytest.approx(20 / 30 * recipe("laptop").warmup_epochs)
    assert whole.keep_epochs[-1] == 20
    assert recipe_of(made.but(changes={"warmup_epochs": 7}), 0, digits).warmup_epochs == 7


def test_the_accuracy_elsewhere_is_that_of_the_run_on_its_own_images(tmp_path):
    run = run_of(TEACHER, 0, tmp_path)
    found = read(run, Reading(name="elsewhere", options={"data": "digits"}), TEACHER)
    assert found.values["top1"] == pytest.approx(run.final["top1"])


def test_hours_follow_from_operations_images_and_epochs():
    made = Training(model="deit_tiny", data="imagenet:/x", recipe="deit")
    each = 6 / (312e12 * 0.35) / 3600
    expected = each * size_of(made)[1] * 1_281_167 * 300
    assert hours(made) == pytest.approx(expected)
    assert hours(replace(made, model="deit_tiny+cb:msa")) == pytest.approx(expected)
    assert hours(replace(made, epochs=30)) == pytest.approx(expected / 10)
    assert hours(made.but(changes={"subset.first_classes": 100})) == pytest.approx(expected / 10)
    few = {"subset.fraction": 0.1}  # the epochs grow as the images shrink, except in cifar's
    assert hours(made.but(changes=few)) == pytest.approx(expected)
    small = Training(model="vit_tiny_cifar", data="cifar100:/x", recipe="cifar")
    assert hours(small) == pytest.approx(each * size_of(small)[1] * 50_000 * 300)
    assert hours(small.but(changes=few)) == pytest.approx(hours(small) / 10)
    unsaid = replace(small, data="imagenet")  # no path yet
    assert hours(unsaid) == pytest.approx(hours(small))


def test_memory_is_weights_and_activations():
    made = Training(model="deit_tiny", data="imagenet:/x", recipe="deit")
    parameters, multiply_adds = size_of(made)
    width = (parameters / 144) ** 0.5  # twelve blocks
    expected = 16 * parameters + 34 * width * (multiply_adds / (12 * width**2)) * 128
    assert gigabytes(made) == pytest.approx(expected / 1e9)


def planned(*trainings: Training) -> Plan:
    cells = {(str(i), "x"): CellSpec(training) for i, training in enumerate(trainings)}
    return Plan(tables=[TableSpec("t", "", cells)])


def test_shared_trainings_are_counted_once():
    made = Training(model="deit_tiny", data="imagenet:/x", recipe="deit")
    other = replace(made, epochs=30)
    cost = budget([planned(made, other), planned(made)], num_seeds=3)
    assert cost.gpu_hours == pytest.approx(3 * 1.1 * hours(made))
    assert cost.largest_gb == pytest.approx(gigabytes(made))


@pytest.mark.slow
def test_every_model_of_the_papers_can_be_counted():
    plans = [study.plan(PAPER) for study in catalog().values()]
    assert 1e3 < budget(plans, 1).gpu_hours < 1e6


@pytest.mark.parametrize(
    ("name", "args", "side"),
    [
        ("deit_tiny", {}, 224),
        ("pit_tiny_cifar", {}, 32),
        ("vit_tiny_cifar", {"depth": 6, "embed_dim": 48, "num_heads": 3}, 32),
    ],
)
def test_the_counts_are_those_of_the_models(name, args, side):
    with torch.device("meta"):
        model = create_model(name, **args)
    parameters, operations = count(model, (3, side, side))
    made = Training(model=f"{name}+cb", model_args=args, data="", image_size=side, recipe="deit")
    assert size_of(made) == (parameters, operations)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_an_answer_is_written_whole_and_costs_nothing_the_second_time(tmp_path):
    other = TEACHER.but(model_args={"depth": 2})
    cells = {("one", "top-1"): CellSpec(TEACHER, paper=70.0), ("two", "top-1"): CellSpec(other)}
    table = TableSpec("top1", "Depth", cells, corner="blocks")
    claim = Claim(source="us", text="two blocks are better", statement="top1: two > one")
    study = Study(
        name="depth",
        title="Deeper?",
        claim="deeper is better",
        covers=("us",),
        plan=lambda scale: Plan(tables=[table], claims=[claim]),
        data={},
    )
    scale = replace(SMOKE, seeds=(0, 1))
    answering.answer(study, scale, tmp_path, LOCAL)
    runs = finished(tmp_path / "runs")
    found = answering.answer(study, scale, tmp_path, LOCAL).values
    assert finished(tmp_path / "runs") == runs
    assert record.load(tmp_path / "depth").values == found
    assert (found["num_runs"], found["num_test"], found["seeds"]) == (4, 359, [0, 1])
    cells = [row["cells"][0] for row in found["tables"][0]["rows"]]
    assert [len(cell["ours"]) for cell in cells] == [2, 2]
    assert found["claims"][0]["contrast"] == pytest.approx(cells[1]["mean"] - cells[0]["mean"])
    assert found["training_seconds"] > 0
    arrays = record.load(tmp_path / "depth").arrays
    for cell in cells:
        right = arrays[cell["correct"]]
        assert right.shape == (2, 359)
        assert 100 * right.mean(axis=1) == pytest.approx(cell["ours"])


@pytest.mark.parametrize(
    "scale",
    [
        SMOKE,
        replace(PAPER, data="imagenet:/a b", epochs=3, seeds=(1, 2)),
        replace(LAPTOP, data="photos", image_size=32, recipe="cifar"),
    ],
)
def test_the_command_of_a_study_gives_its_scale_again(scale):
    _, _, name, *words = shlex.split(answering.command("sizes", scale))
    (study,), args = papers_studies(name, words)
    assert study.name == "sizes"
    assert scale_of(study, args) == scale


def test_a_missing_reading_is_named(tmp_path):
    with pytest.raises(UserError, match=f"{TEACHER.key} has no final yet"):
        answering.gathered(planned(TEACHER), SMOKE, tmp_path)
