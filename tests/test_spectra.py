"""Hessian spectra of several runs, side by side."""

import json

import numpy as np
import pytest
from make_results import section

from report_making import write_record_figures
from vitascope.commands import main
from vitascope.inspection.spectra import compared, numbers
from vitascope.record import Record, load
from vitascope.report.sections.spectra import spectra_table


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    words = ["train", "--data", "digits", "--epochs", "1", "--fraction", "0.1", "--no-tracking"]
    words += ["--set", "scale_epochs=false", "keep_epochs=[0,1]", "--quiet", "--model-args"]
    small = ["embed_dim=12", "depth=1", "num_heads=3"]
    assert main([*words, *small, "--model", "vit_micro", "--out", str(folder / "vit")]) == 0
    few = ["depths=[1]", "widths=[8]"]
    assert main([*words, *few, "--model", "resnet_micro", "--out", str(folder / "resnet")]) == 0
    return folder


def test_numbers_are_means_over_batches_with_their_errors():
    found = numbers(np.array([[4.0, -1.0], [2.0, -3.0], [6.0, 2.0]]))
    assert found["nep"] == pytest.approx((1 / 3, np.std([0.5, 0.5, 0], ddof=1) / 3**0.5))
    assert found["ape"] == pytest.approx((14 / 4, np.std([4, 2, 4], ddof=1) / 3**0.5))
    assert numbers(np.array([[-1.0]])) == {"nep": (1.0, None), "ape": (None, None)}


def test_a_difference_counts_when_other_mini_batches_would_give_it_again():
    rng = np.random.default_rng(0)
    flat, bent = rng.normal(3.0, 1.0, (16, 5)), rng.normal(0.0, 1.0, (16, 5))
    found = compared(bent, flat, "nep")
    assert (found["verdict"], compared(flat, bent, "nep")["verdict"]) == ("more", "less")
    assert found["low"] < found["change"] < found["high"]
    assert found["change"] == pytest.approx(np.mean(bent < 0) - np.mean(flat < 0))
    assert compared(flat, bent, "ape")["verdict"] == "more"
    again = rng.normal(0.0, 1.0, (16, 5))
    assert compared(bent, again, "nep")["verdict"] == "undecided"
    assert compared(bent[:1], again[:1], "nep") == {"verdict": "unknown"}  # one mini-batch
    assert compared(-np.abs(bent), flat, "ape") == {"verdict": "unknown"}  # no positive one


def test_runs_are_measured_at_every_epoch_and_compared_with_the_first(runs, tmp_path, capsys):
    words = ["study", "spectra", str(runs / "vit"), str(runs / "resnet"), "--epochs", "0", "1"]
    words += ["--batches", "3", "--eigenvalues", "2", "--out", str(tmp_path), "--quiet"]
    assert main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["run"], row["epoch"]) for row in told["rows"]] == [
        ("vit", 0),
        ("resnet", 0),
        ("vit", 1),
        ("resnet", 1),
    ]
    assert told["rows"][0]["nep_verdict"] == ""
    assert told["rows"][3]["nep_verdict"] in ("more", "less", "undecided", "unknown")
    record = load(tmp_path / "spectra")
    alone = load(tmp_path / "resnet-epoch-1" / "hessian")
    np.testing.assert_array_equal(record.arrays["resnet-epoch-1"], alone.arrays["eigenvalues"])
    assert record.config["augmented_by"] == "laptop"
    assert (tmp_path / "figures/spectra.pdf").exists()
    assert main(words) == 0  # again: from what is finished
    assert "APE, mean above 0" in capsys.readouterr().out
    again = load(tmp_path / "spectra")
    np.testing.assert_array_equal(record.arrays["vit-epoch-0"], again.arrays["vit-epoch-0"])


def made_up():
    row = {
        "run": "a|b",
        "epoch": None,
        "name": "a|b",
        "nep": [0.25, 0.05],
        "ape": [12.0, 1.0],
        "loss": [1.5, 0.1],
        "nep_verdict": "",
        "ape_verdict": "",
        "unconverged": 0,
    }
    values = {"rows": [row], "reference": "a|b"}
    return Record(kind="spectra", values=values, arrays={"a|b": np.array([[3.0, -1.0]])})


def test_the_table_and_the_page_show_the_numbers(tmp_path):
    _, rows = spectra_table(made_up()).inline()
    assert rows == [["a|b", "last", "25 ± 5", "", "12 ± 1", "", "1.5 ± 0.1"]]
    assert "| a\\|b | last | 25 ± 5 |" in section(made_up())
    (drawn,) = write_record_figures(tmp_path, {"spectra": made_up()}, ("png",))
    assert drawn.name == "spectra.png"


def test_the_page_shows_accuracy_against_the_frequency_of_noise():
    values = {
        "frequencies": [0.0, 0.2, 0.8],
        "accuracy": [0.5, 0.25, 0.7],
        "clean": 0.75,
        "num_images": 1000,
        "rms": 0.1,
    }
    text = section(Record(kind="frequency", values=values, config={"subject": "runs/a"}))
    assert "75.0 % without noise" in text
    assert "| 0.2 π | 25.0 |" in text
    assert "cost 37.5 points, high ones (from 0.7 π) 5.0" in text


@pytest.mark.parametrize("folders", [[], ["a/x", "b/x"]])
def test_runs_must_be_told_apart(folders, capsys):
    assert main(["study", "spectra", *folders]) == 2
    assert "runs with different folder names" in capsys.readouterr().err


def test_what_is_no_run_is_refused_in_a_line(tmp_path, capsys):
    assert main(["study", "spectra", str(tmp_path / "nowhere")]) == 2
    assert "nowhere holds no run; resume it, or train one there" in capsys.readouterr().err


def test_no_processes_cannot_measure(runs, capsys):
    assert main(["study", "spectra", str(runs / "vit"), "--processes", "0"]) == 2
    assert "--processes must be from 1 to 1024, not 0" in capsys.readouterr().err
