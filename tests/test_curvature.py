"""Curvature of a run through `vitascope inspect`, as a user asks for it."""

import json

import numpy as np
import pytest
import torch

from vitascope.commands import main
from vitascope.figure import Style, Surface
from vitascope.inspection.curvature import augmented_batches, recipe_of
from vitascope.loading.session import open_session
from vitascope.measure.curvature.figures import FAR, heights, hessian, landscape, trajectory
from vitascope.measure.instrument import ModelRecord
from vitascope.record import Record, load
from vitascope.training import recipe

SMALL = ["embed_dim=12", "depth=1", "num_heads=3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "a"
    words = [
        "train",
        "--model",
        "vit_micro",
        "--data",
        "digits",
        "--epochs",
        "2",
        "--fraction",
        "0.2",
    ]
    words += [
        "--model-args",
        *SMALL,
        "--set",
        "scale_epochs=false",
        "keep_epochs=[0,1]",
        "weight_decay=0.02",
    ]
    assert main([*words, "--no-tracking", "--quiet", "--out", str(out)]) == 0
    return out


def inspect(run, out, *words):
    code = main(["inspect", str(run), "--batches", "3", "--quiet", "--out", str(out), *words])
    assert code == 0
    return out


def test_batches_are_those_training_would_see_and_a_seed_brings_them_back(run):
    session = open_session(str(run))
    plan = recipe("deit", batch_size=16).override(**{"augmentation.rand_augment": None})
    how = {"num_batches": 20, "batch_size": 16}
    first, again, other = (augmented_batches(session, plan, seed=s, **how) for s in (0, 0, 1))
    assert len(first) == 20
    assert first[0][1].shape == (16, 10)  # mixed targets are probabilities
    torch.testing.assert_close(first[0][1].sum(1), torch.ones(16))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])
    few = recipe_of(str(run))
    assert few.subset.fraction == 0.2
    assert few.weight_decay == 0.02
    assert recipe_of("vit_micro").name == "laptop"


@pytest.mark.slow
def test_processes_share_the_batches_of_a_spectrum_and_agree_with_one(run, tmp_path):
    words = ["--measures", "hessian", "--double", "--tolerance", "1e-6"]
    words += ["--eigenvalues", "2"]
    alone = load(inspect(run, tmp_path / "a", *words) / "hessian")
    shared = load(inspect(run, tmp_path / "b", *words, "--processes", "2") / "hessian")
    assert alone.arrays["eigenvalues"].shape == (3, 2)
    np.testing.assert_allclose(shared.arrays["eigenvalues"], alone.arrays["eigenvalues"], rtol=1e-5)
    assert shared.arrays["batches"].tolist() == [0, 1, 2]
    assert shared.config["weight_decay"] == 0.02
    assert shared.config["augmented_by"] == "laptop"
    assert shared.config["batch_size"] == alone.config["batch_size"] == 16  # not the look's 64
    assert (tmp_path / "a/figures/hessian.png").stat().st_size > 1000
    assert list((tmp_path / "b/parts").glob("hessian-*.npz"))


def test_weight_decay_shifts_the_whole_spectrum(run, tmp_path):
    words = ["--measures", "hessian", "--double", "--tolerance", "1e-8", "--eigenvalues", "1"]
    low, high = (
        load(inspect(run, tmp_path / wd, *words, "--weight-decay", wd) / "hessian")
        for wd in ("0", "0.5")
    )
    np.testing.assert_allclose(
        high.arrays["eigenvalues"] - low.arrays["eigenvalues"], 0.5, atol=1e-6
    )


def test_along_its_top_eigenvector_the_loss_curves_as_the_eigenvalue_says(run, tmp_path):
    words = ["--along", "eigenvectors", "--directions", "1", "--points", "3", "--double"]
    out = inspect(run, tmp_path / "a", "--measures", "landscape", *words)
    found = load(out / "landscape")
    assert found.values["along"].startswith("top eigenvectors")
    loss = heights(found)[0]
    assert loss[0] + loss[2] > 2 * loss[1]  # the largest curvature of a trained net is upward


def test_density_and_trajectory_are_measured_and_told(run, tmp_path, capsys):
    out = inspect(run, tmp_path / "a", "--measures", "density", "trajectory", "--batches", "1")
    density, path = load(out / "density"), load(out / "trajectory")
    np.testing.assert_allclose(density.arrays["weights"].sum(1), 1, rtol=1e-4)
    assert path.values["epochs"] == [0, 1, 2]
    assert path.values["radius"][0] == 1
    assert path.values["radius"][-1] == 0
    told = capsys.readouterr().out
    assert "trace of the Hessian" in told
    assert "angle to the straight line" in told


def test_a_run_that_kept_no_weights_says_how_to_keep_them(tmp_path, capsys):
    words = ["inspect", "vit_micro", "--data", "digits", "--image-size", "8"]
    assert main([*words, "--measures", "trajectory"]) == 2
    assert "keep_epochs='[0,1,2,4,8]'" in capsys.readouterr().err


def test_curvature_is_only_measured_when_it_is_named(run, capsys):
    assert main(["inspect", str(run), "--images", "8", "--json"]) == 0
    assert not {"hessian", "landscape"} & set(json.loads(capsys.readouterr().out)["measures"])


def test_a_surface_is_cut_where_it_leaves_the_valley():
    axis = np.linspace(-1, 1, 5)
    nll = np.add.outer(50 * axis**2, axis**2)
    nll[0, 0] = np.inf
    arrays = {"axis_0": axis, "axis_1": axis, "nll": nll, "l2": np.zeros((5, 5))}
    values = {"along": "random directions"}
    record = Record(kind="landscape", values=values, arrays=arrays)
    assert heights(record)[1].max() == FAR
    panel, *parts = landscape([seen("a", record)]).panels
    assert isinstance(panel, Surface)
    assert [part.values[2, 2] for part in parts] == [0] * len(parts)  # NLL and l2 apart
    assert panel.x == axis.tolist()
    assert panel.values[2, 2] == 0
    assert panel.values[0, 0] == FAR


def seen(label, record):
    return ModelRecord(label=label, style=Style(), record=record)


def spectrum(*eigenvalues):
    values = {"nep": 0.0, "ape": 1.0, "num_batches": 1, "note": ""}
    return Record(kind="hessian", values=values, arrays={"eigenvalues": np.array([eigenvalues])})


def test_spectra_of_several_models_share_a_panel():
    figure = hessian([seen("a", spectrum(3.0, 2.0)), seen("b", spectrum(-1.0, 4.0))])
    first, second = figure.panels[0].series
    assert (first.x, first.y) == ([2.0, 3.0], [50.0, 100.0])
    assert (second.x, second.y) == ([-1.0, 4.0], [50.0, 100.0])


def test_a_histogram_of_eigenvalues_counts_each_sign_apart_and_adds_up():
    values = np.random.default_rng(0).lognormal(size=80) * np.repeat([-1, 1], [20, 60])
    figure = hessian([seen("a", spectrum(*values))])
    negative, positive = figure.panels[1:]
    assert (negative.title, positive.title) == ("negative", "positive")
    for panel, percent in ((negative, 25.0), (positive, 75.0)):
        (line,) = panel.series
        assert sum(line.y[::2]) == pytest.approx(percent)
        assert line.y[::2] == line.y[1::2]


def test_paths_of_several_models_share_a_panel():
    values = {"angle": [0.0, np.pi / 6, 0.0], "radius": [1.0, 0.5, 0.0]}
    record = Record(kind="trajectory", values=values)
    figure = trajectory([seen("a", record), seen("b", record)])
    polar, straight = figure.panels
    assert polar.series[0].x == pytest.approx([1.0, 0.5 * np.cos(np.pi / 6), 0.0])
    assert polar.series[0].y == pytest.approx([0.0, 0.25, 0.0])
    lines = straight.series
    assert [line.label for line in lines] == ["a", "b"]
    assert lines[0].x == [0.0, 0.5]  # the end has no angle
    assert lines[0].y == pytest.approx([0.0, 30.0], rel=1e-5)
