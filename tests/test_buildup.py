"""The build-up rule: which blocks become attention, in which order, by which numbers."""

import json
import os
import signal

import numpy as np
import pytest
import yaml

from commands import started
from report_making import write_record_figures
from vitascope import data
from vitascope.commands import main
from vitascope.comparison.buildup import candidates, improves
from vitascope.data.held_out import held_out
from vitascope.errors import UserError
from vitascope.loading.opening import open_run
from vitascope.record import Record, load
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.buildup import buildup_table, buildup_text, section
from vitascope.table import as_text

RESNET_50 = ("ccc", "cccc", "cccccc", "cccc")  # with the block that AlterNet adds
WORDS = ["study", "buildup", "--base", "resnet", "--data", "digits", "--epochs", "1"]
WORDS += ["--seeds", "0", "--set", "subset.fraction=0.15", "batch_size=16", "scale_epochs=false"]
WORDS += ["--model-args", "widths=[4,8,8]", "head_dim=4"]


def search(base, helps):
    """The kinds tried in order, and those kept at the end, when ``helps(kinds)`` answers."""
    rule, tried = candidates(base), []
    try:
        trial = next(rule)
        while True:
            tried.append(trial)
            trial = rule.send(helps(trial.kinds))
    except StopIteration as end:
        return tried, end.value


def test_when_all_help_conv_and_attention_alternate_from_the_end_to_the_start():
    tried, kept = search(RESNET_50, lambda kinds: True)
    places = [(trial.stage, trial.block) for trial in tried]
    assert places == [(3, 3), (3, 1), (2, 5), (2, 3), (2, 1), (1, 3), (1, 1), (0, 2)]
    assert kept == ("cca", "caca", "cacaca", "caca")
    assert [sum(word.count("a") for word in t.kinds) for t in tried] == list(range(1, 9))


def test_when_none_helps_each_stage_is_tried_once_at_its_end():
    tried, kept = search(RESNET_50, lambda kinds: False)
    assert [trial.kinds for trial in tried] == [
        ("ccc", "cccc", "cccccc", "ccca"),
        ("ccc", "cccc", "ccccca", "cccc"),
        ("ccc", "ccca", "cccccc", "cccc"),
        ("cca", "cccc", "cccccc", "cccc"),
    ]
    assert kept == RESNET_50


def test_alternet_50_is_an_outcome_of_the_rule():
    wanted = ("ccc", "ccca", "cacaca", "caca")

    def is_part(kinds):
        pairs = zip("".join(kinds), "".join(wanted), strict=True)
        return all(have != "a" or want == "a" for have, want in pairs)

    tried, kept = search(RESNET_50, is_part)
    assert kept == wanted
    assert [t.kinds for t in tried if not is_part(t.kinds)] == [
        ("ccc", "caca", "cacaca", "caca"),
        ("cca", "ccca", "cacaca", "caca"),
    ]


def test_a_block_that_does_not_help_is_taken_back_and_an_earlier_stage_goes_on():
    score = {"cc cc ca": 91.0, "cc ca ca": 90.0, "ca cc ca": 92.0}
    best = [90.5]

    def helps(kinds):
        better = improves([score[" ".join(kinds)]], best)
        best[0] = score[" ".join(kinds)] if better else best[0]
        return better

    tried, kept = search(("cc", "cc", "cc"), helps)
    assert [" ".join(trial.kinds) for trial in tried] == list(score)
    assert kept == ("ca", "cc", "ca")


def test_attention_that_is_there_stays_and_gets_no_neighbour():
    tried, _ = search(("cc", "ccca", "cac", "c"), lambda kinds: True)
    assert [trial.kinds[:2] for trial in tried] == [("cc", "caca"), ("ca", "caca")]


def test_equal_means_are_a_tie_whatever_their_rounding():
    assert not improves([0.1, 0.2, 0.3], [0.3, 0.2, 0.1])
    assert not improves([100 * 7 / 9, 100 * 5 / 9], [100 * 6 / 9, 100 * 6 / 9])
    assert improves([90.0, 90.1], [90.0, 90.0])
    assert not improves([90.0, 90.4], [90.0, 90.0], margin=0.2)
    assert improves([90.0, 90.5], [90.0, 90.0], margin=0.2)


def test_images_to_choose_by_are_training_images_of_every_class():
    digits = data.load("digits")
    chooser = held_out(digits, 0.1)
    assert len(chooser.train) + len(chooser.test) == len(digits.train)
    shares = np.bincount(chooser.test.labels) / np.bincount(digits.train.labels)
    np.testing.assert_allclose(shares, 0.1, atol=0.005)
    pixels = [
        {part.pixels([i]).numpy().tobytes() for i in range(len(part))}
        for part in (chooser.train, chooser.test)
    ]
    assert not pixels[0] & pixels[1]
    with pytest.raises(UserError, match="share of 1.5 cannot be held out"):
        held_out(digits, 1.5)


def made_up(changes=((True, 2.0), (False, -1.0), (True, 0.1)), complete=True, old=False):
    """A record of the rule on three stages of two blocks, with given answers."""
    rows, top1 = [], 90.0
    rule = candidates(("cc", "cc", "cc"))
    trial, kinds = next(rule), ("cc", "cc", "cc")
    for number, (kept, change) in enumerate([(True, None), *changes]):
        value = top1 + (change or 0.0)
        row = {"kept": kept, "change": change, "top1": value, "top1_std": 0.3}
        if old:
            row["noise"] = 0.5
        elif change is not None:
            row |= {"low": change - 0.5, "high": change + 0.5, "detectable": 0.7}
            row["verdict"] = "helps" if change > 0.5 else "hurts" if change < -0.5 else "undecided"
        row |= {"top1_seeds": [value - 0.3, value + 0.3], "test_top1": value - 1}
        row |= {"test_top1_std": None, "parameters": 1000 + number, "seconds": 2.0}
        row |= {"kinds": kinds, "stage": None, "num_msa": "".join(kinds).count("a")}
        if number:
            row |= {"kinds": trial.kinds, "stage": trial.stage}
            row["num_msa"] = "".join(trial.kinds).count("a")
            top1 = value if kept else top1
            trial = rule.send(kept) if number < len(changes) else None
        rows.append(row)
    values = {"candidates": rows, "complete": complete, "base": "resnet_micro"}
    return Record(kind="buildup", values=values)


def test_the_table_has_a_line_a_network_and_the_sentence_weighs_them():
    lines = as_text(buildup_table(made_up())).splitlines()
    assert [line.split("  ")[0] for line in lines[:2]] == ["Blocks", "cc cc cc"]
    assert len(lines) == 5
    assert "cc cc ca" in lines[2]
    assert "+2.00 [+1.50, +2.50]  helps      kept" in lines[2]
    assert "cc ca ca" in lines[3]
    assert "−1.00 [−1.50, −0.50]  hurts      not kept" in lines[3]
    assert "+0.10 [−0.40, +0.60]  undecided  kept" in lines[4]
    text = buildup_text(made_up())
    assert "Kept ca cc ca: 92.10 % on the validation images against 90.00 % of cc cc cc" in text
    assert "91.10 % against 89.00 % on the test images" in text
    assert "2 of 3 changes are decided" in text
    assert "here 0.7 points or more would be found" in text
    nothing = buildup_text(made_up(changes=((False, -1.0),), complete=False))
    assert nothing.startswith("No MSA block helped: cc cc cc stays. 1 of 1 changes is decided")
    assert nothing.endswith("The rule has blocks left to try.")


def test_an_old_record_shows_its_change_with_half_of_an_interval():
    lines = as_text(buildup_table(made_up(old=True))).splitlines()
    assert "+2.00 ± 0.50  helps" in lines[2]
    assert "+0.10 ± 0.50  undecided" in lines[4]
    assert "2 of 3 changes are decided" in buildup_text(made_up(old=True))


def test_the_figure_marks_what_was_kept_and_names_the_blocks(tmp_path):
    source = Source(path=tmp_path / "buildup.json", record=made_up())
    (figure,) = section(source, Styles()).figures
    (panel,) = figure.panels
    assert panel.groups == ("✓ cc cc cc", "✓ cc cc ca", "✗ cc ca ca", "✓ ca cc ca")
    validation, test = panel.series
    assert np.mean(validation.values, 1).tolist() == pytest.approx([90.0, 92.0, 91.0, 92.1])
    assert [value for (value,) in test.values] == pytest.approx([89.0, 91.0, 90.0, 91.1])
    drawn = [
        write_record_figures(tmp_path / name, {"buildup": made_up()}, ("png", "svg", "pdf"))
        for name in "ab"
    ]
    assert [path.name for path in drawn[0]] == ["buildup.png", "buildup.svg", "buildup.pdf"]
    assert [p.read_bytes() for p in drawn[0]] == [p.read_bytes() for p in drawn[1]]


def test_no_table_is_made_of_nothing():
    with pytest.raises(UserError, match="tried nothing yet"):
        buildup_table(Record(kind="buildup"))
    with pytest.raises(UserError, match="record of 'gates'"):
        buildup_table(Record(kind="gates"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("buildup") / "b"
    words = [*WORDS, "--max-candidates", "1", "--out", str(out), "--processes", "1", "--quiet"]
    assert main(words) == 0
    return out


def runs(folder):
    return {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/model.safetensors")}


def test_every_network_tried_is_in_the_record_with_what_it_costs(folder):
    record = load(folder / "buildup")
    base, first = record.values["candidates"]
    assert (base["kinds"], base["kept"], base["num_msa"]) == (["cc", "cc", "cc"], True, 0)
    assert (first["kinds"], first["stage"], first["block"]) == (["cc", "cc", "ca"], 2, 1)
    assert first["heads"] == [None, None, 12]
    assert first["kept"] == (first["top1"] > base["top1"])
    assert record.values["kinds"] == (first if first["kept"] else base)["kinds"]
    assert not record.values["complete"]
    assert record.values["images"] == {"train": 173, "validation": 287, "test": 359}
    assert record.config["recipe"]["epochs"] == 1
    assert record.config["base"] == "resnet_micro"
    assert first["seconds"] > 0
    assert first["parameters"] != base["parameters"]
    assert (folder / "figures/buildup.png").exists()


def test_a_run_says_its_kinds_and_is_built_again_from_them(folder):
    row = load(folder / "buildup").values["candidates"][1]
    (run,) = (folder / name for name in row["folders"])
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["kinds"] == ["cc", "cc", "ca"]
    assert config["data"]["test_images"] == 287
    assert any("held 20 %" in note for note in config["data"]["notes"])
    assert open_run(run).model.kinds == ("cc", "cc", "ca")
    test = load(run / "readings/test")
    assert row["test_top1"] == pytest.approx(100 * test.values["top1"])
    assert test.values["num_images"] == len(test.arrays["predicted"]) == 359
    correct = load(folder / "buildup").arrays["correct/cc-cc-ca"]
    assert correct.shape == (1, 287)
    assert row["top1"] == pytest.approx(100 * correct.mean())


def test_asked_again_nothing_is_trained_and_asked_for_more_only_the_rest_is(folder, capsys):
    before = runs(folder)
    assert len(before) == 2
    first = load(folder / "buildup").values["candidates"]
    words = [*WORDS, "--out", str(folder), "--processes", "1"]
    assert main([*words, "--max-candidates", "1", "--quiet"]) == 0
    assert runs(folder) == before
    assert load(folder / "buildup").values["candidates"] == first
    (folder / "buildup.json").unlink()
    capsys.readouterr()
    assert main([*words, "--max-candidates", "2", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["candidates"][:2] == first
    assert len(answer["candidates"]) == 3
    assert before.items() < runs(folder).items()
    assert len(runs(folder)) == 3


@pytest.mark.slow
def test_killed_it_goes_on_where_it_was(tmp_path):
    words = [*WORDS, "--epochs", "6", "--max-candidates", "1", "--out", str(tmp_path / "b")]
    words += ["--processes", "1", "--quiet"]

    def some_epochs():
        return any(path.read_text().count("\n") > 1 for path in begun_runs())

    def begun_runs():
        return [*tmp_path.glob("b/runs/*/seed-0/metrics.jsonl")]

    with started(words, some_epochs) as process:
        os.killpg(process.pid, signal.SIGKILL)
    (begun,) = begun_runs()
    first, *rest = begun.read_text().splitlines()
    assert len(rest) < 5
    assert load(tmp_path / "b/buildup").values == {}
    assert main(words) == 0
    lines = begun.read_text().splitlines()
    assert lines[0] == first  # with its seconds: it was not trained again
    assert len(lines) == 6
    assert len(load(tmp_path / "b/buildup").values["candidates"]) == 2


@pytest.mark.slow
def test_interrupted_it_begins_nothing_more(tmp_path):
    """Four runs for two processes: those that wait must not start when the others stop."""
    words = [*WORDS, "--epochs", "200", "--seeds", "0", "1", "--out", str(tmp_path / "b")]
    words += ["--processes", "2"]
    with started(words, lambda: len([*tmp_path.glob("b/runs/*/*/checkpoint")]) > 1) as process:
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in said
    assert "run the same command to continue" in said
    assert len([*tmp_path.glob("b/runs/*/*/config.yaml")]) == 2


def test_another_question_in_the_same_folder_is_refused(folder, capsys):
    before = (folder / "buildup.json").read_bytes()
    other = [*WORDS, "--out", str(folder), "--processes", "1", "--quiet"]
    assert main([*other, "--epochs", "2"]) == 2
    said = capsys.readouterr().err
    assert "holds another build-up: recipe.epochs was 1, now 2" in said
    assert main([*other, "--base", "alternet_micro"]) == 2
    assert "base was 'resnet_micro', now 'alternet_micro'" in capsys.readouterr().err
    assert (folder / "buildup.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--base", "vit_micro"], "vit_micro does not declare the blocks of its stages"),
        (["--base", "resnet18"], "resnet_micro"),
        (["--base", "resnet_mirco"], "did you mean 'resnet_micro'"),
        (["--base", "resnet", "--model-args", "depths=[1,1,1]"], "no block to replace in c c c"),
        (["--base", "resnet", "--model-args", "kinds=[cc,xx,cc]"], "xx"),
        (["--seeds", "1", "1"], "seeds must be one or more different ones"),
        (["--validation", "1"], "validation must be in (0, 1), not 1.0"),
        (["--margin", "-1"], "margin must be in [0, 100), not -1.0"),
        (["--max-candidates", "0"], "--max-candidates must be from 1"),
        (["--recipe", "labtop"], "did you mean 'laptop'"),
        (["--set", "optimizer=adamv"], "unknown optimizer 'adamv'"),
        (["--processes", "0"], "--processes must be from 1 to 1024, not 0"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_trained(words, says, tmp_path, capsys):
    assert main(["study", "buildup", "--data", "digits", *words, "--out", str(tmp_path / "b")]) == 2
    err = capsys.readouterr().err.strip()
    assert says in err
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_studies_are_listed(capsys):
    assert main(["study", "--list"]) == 0
    assert "buildup" in capsys.readouterr().out
    assert main(["study", "bildup"]) == 2
    assert "unknown study 'bildup'; did you mean 'buildup'" in capsys.readouterr().err
