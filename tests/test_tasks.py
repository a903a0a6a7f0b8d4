"""Segmentation and questions: tiny made-up sets that a network really learns, by the commands."""

import json
import shlex
import signal

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from vitascope.commands import main
from vitascope.data.sources.vqa import VQAFolder
from vitascope.errors import Interrupted, UserError
from vitascope.measure.vqa_score import mean_score, plain_answer, soft_targets, vqa_score
from vitascope.models.vilt import vilt
from vitascope.papers.cost import TASKS
from vitascope.record import load
from vitascope.report.sections.task import METRICS
from vitascope.runs.tasks.segmentation import Segmentation, build_segmenter, class_names
from vitascope.runs.tasks.vqa import VQA, build_vilt, common_answers
from vitascope.training import recipe
from vitascope.training.run_folder.run import load_task_run
from vitascope.training.trainer.loop import train_task

COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


# Scenes: a square of one colour on a ground of another; a colour is a class


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    root = tmp_path_factory.mktemp("scenes")
    rng = np.random.default_rng(0)
    (root / "classes.txt").write_text("\n".join(COLOURS))
    for part, number in (("training", 12), ("validation", 4)):
        for folder in ("images", "annotations"):
            (root / folder / part).mkdir(parents=True)
        for index in range(number):
            ground, square = rng.permutation(3)[:2]
            mask = np.full((32, 32), 1 + ground, np.uint8)
            top, left = rng.integers(2, 14, 2)
            mask[top : top + 16, left : left + 16] = 1 + square
            pixels = np.array([(0, 0, 0), *COLOURS.values()])[mask]
            pixels = pixels + rng.integers(0, 25, (32, 32, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(root / f"images/{part}/{index}.png")
            Image.fromarray(mask).save(root / f"annotations/{part}/{index}.png")
    return root


SEGMENT = shlex.split(
    "--task segmentation --model resnet_micro --image-size 32 --model-args width=16 "
    "--set batch_size=4 lr=3e-3 warmup_epochs=0 eval_every=1 --threads 1 --quiet"
)


def segment(scenes, out, *more):
    return main(["train", *SEGMENT, "--data", f"ade20k:{scenes}", "--out", str(out), *more])


@pytest.fixture(scope="module")
def segmented(scenes, tmp_path_factory):
    out = tmp_path_factory.mktemp("segmented") / "run"
    assert segment(scenes, out, "--epochs", "10") == 0
    return out


def test_a_network_learns_to_segment_scenes_it_has_not_seen(segmented):
    done = load_task_run(segmented)
    assert (done.task, done.metric, done.epochs, done.steps) == ("segmentation", "miou", 10, 30)
    lines = [json.loads(line) for line in (segmented / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 11))
    assert lines[-1]["train_loss"] < 0.5 * lines[0]["train_loss"]
    assert done.final["miou"] > 0.6  # a guess of one colour everywhere: under 0.2
    assert done.best["miou"] >= done.final["miou"]


def test_a_segmentation_run_is_evaluated_and_has_a_page(scenes, segmented, tmp_path, capsys):
    assert main(["evaluate", str(segmented), "--out", str(tmp_path / "e"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["miou"] == pytest.approx(load_task_run(segmented).final["miou"], abs=1e-6)
    assert load(tmp_path / "e").arrays["per_class"].shape == (3,)
    assert found["classes"] == list(COLOURS)
    page = tmp_path / "page.html"
    assert main(["report", str(segmented), str(tmp_path / "e.json"), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "mean IoU (%)" in text
    assert f"% mean IoU on {scenes.name} after 10 epochs" in text  # not the way to them
    assert "Learning curves" in text
    assert "green" in text


@pytest.mark.parametrize("task", [Segmentation, VQA])
def test_terminal_and_page_call_a_metric_by_the_same_words(task):
    assert METRICS[task.metric] == task.label


def test_the_terminal_says_mean_iou(scenes, segmented, capsys):
    assert segment(scenes, segmented, "--epochs", "10", "--resume") == 0  # finished: prints alone
    assert ": mean IoU " in capsys.readouterr().out


def test_a_segmentation_run_resumes_to_the_same_weights(scenes, tmp_path, monkeypatch):
    assert segment(scenes, tmp_path / "whole", "--epochs", "2") == 0
    batches = Segmentation.batches

    def interrupted(self, epoch, start):
        for number, batch in enumerate(batches(self, epoch, start)):
            if epoch == 1 and number == 1:
                raise KeyboardInterrupt
            yield batch

    monkeypatch.setattr(Segmentation, "batches", interrupted)
    assert segment(scenes, tmp_path / "cut", "--epochs", "2") == 130
    monkeypatch.undo()
    assert segment(scenes, tmp_path / "cut", "--epochs", "2", "--resume") == 0
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert segment(scenes, tmp_path / "cut", "--epochs", "2", "--resume") == 0  # finished: at once


def test_a_stop_inside_an_epoch_saves_what_is_there(scenes, tmp_path):
    task = Segmentation(scenes, side=32, batch_size=4)
    plan = recipe("segmentation", epochs=1, batch_size=4, warmup_epochs=0.0)
    model = build_segmenter("resnet_micro", task, width=16)

    class Stopping(Segmentation):
        def loss(self, model, batch, device):
            signal.raise_signal(signal.SIGTERM)
            return super().loss(model, batch, device)

    stopping = Stopping(scenes, side=32, batch_size=4)
    with pytest.raises(Interrupted, match="at step 1"):
        train_task(model, stopping, plan, tmp_path / "a", quiet=True)
    assert (tmp_path / "a/checkpoint/step-000000001").is_dir()


def test_wrong_words_for_a_task_are_one_line_and_write_nothing(scenes, segmented, tmp_path, capsys):
    out, here = tmp_path / "x", f"ade20k:{scenes}"
    for words, reason in [
        (["--data", "digits"], "--task segmentation takes --data ade20k:PATH, not 'digits'"),
        (["--data", f"ade20k:{tmp_path}/no"], "no folder at"),
        (["--data", here, "--teacher", "resnet18"], "--teacher is for classification"),
        (["--data", here, "--set", "batch_size=99"], "batches of 99 from 12 images"),
        (["--data", here, "--set", "sam=0.1", "batch_size=4"], "recipe field sam"),
    ]:
        base = ["train", "--task", "segmentation", "--model", "resnet_micro", "--image-size", "32"]
        assert main([*base, "--out", str(out), "--quiet", *words]) == 2
        assert reason in capsys.readouterr().err
        assert not out.exists()
    assert main(["evaluate", str(segmented), "--on", "fgsm"]) == 2
    assert "--on does not apply" in capsys.readouterr().err
    assert main(["inspect", str(segmented)]) == 2
    assert "a record of 'task'" in capsys.readouterr().err


def test_classes_have_the_names_of_ade20k_where_its_table_lies(tmp_path):
    assert len(class_names(tmp_path)) == 150
    header = "Idx\tRatio\tTrain\tVal\tName"
    (tmp_path / "objectInfo150.txt").write_text(f"{header}\n1\t0.1\t2\t3\twall\n2\t.1\t2\t3\tsky\n")
    assert class_names(tmp_path) == ("wall", "sky")
    (tmp_path / "classes.txt").write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        class_names(tmp_path)


# The score


@pytest.mark.parametrize(
    ("matches", "score"), [(0, 0), (1, 0.3), (2, 0.6), (3, 0.9), (4, 1), (10, 1)]
)
def test_the_score_leaves_each_of_ten_people_out(matches, score):
    people = ["yes"] * matches + [f"other {i}" for i in range(10 - matches)]
    assert vqa_score("yes", people) == pytest.approx(score)
    by_hand = [min((people[:i] + people[i + 1 :]).count("yes") / 3, 1) for i in range(len(people))]
    assert vqa_score("yes", people) == pytest.approx(np.mean(by_hand))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Two", "2"),
        ("a dog", "dog"),
        ("the White House", "white house"),
        ("yes.", "yes"),
        ("don't", "dont"),
        ("1,000", "1000"),
        ("black/white", "black white"),
        ("2.5", "2.5"),
    ],
)
def test_answers_that_mean_the_same_are_written_alike(one, other):
    assert plain_answer(one) == plain_answer(other)


def test_a_point_inside_a_number_stays():
    assert plain_answer("2.5") != plain_answer("25")
    assert mean_score(["2.5", "no"], [["2.5"] * 10, ["yes"] * 9 + ["no"]]) == pytest.approx(0.65)


def test_soft_targets_are_the_scores_of_known_answers():
    given = ["cat"] * 2 + ["Dog"] * 7 + ["cow"]
    assert soft_targets(given, {"dog": 5, "cat": 1}) == {1: pytest.approx(0.6), 5: 1.0}


# Questions: what colour is it, and is it a colour?


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    root = tmp_path_factory.mktemp("vqa")
    rng = np.random.default_rng(0)
    for part, number in (("train", 54), ("val", 12)):
        folder = root / f"{part}2014"
        folder.mkdir()
        asked, said = [], []
        for index in range(number):
            colour = list(COLOURS)[index % 3]
            pixels = np.array(COLOURS[colour]) + rng.integers(0, 25, (32, 32, 3))
            name = f"COCO_{part}2014_{index + 1:012d}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
            text, answer = "What colour is it?", colour
            if index // 3 % 2:
                text, answer = "Is it red?", "yes" if colour == "red" else "no"
            asked.append({"image_id": index + 1, "question": text, "question_id": 10 * index})
            people = [answer] * 8 + ["do not know"] * 2
            answers = [{"answer": a, "answer_id": i + 1} for i, a in enumerate(people)]
            said.append({"question_id": 10 * index, "image_id": index + 1, "answers": answers})
        stem = f"v2_OpenEnded_mscoco_{part}2014_questions.json"
        (root / stem).write_text(json.dumps({"questions": asked}))
        stem = f"v2_mscoco_{part}2014_annotations.json"
        (root / stem).write_text(json.dumps({"annotations": said}))
    return root


def test_the_loader_joins_questions_answers_and_images(questions):
    folder = VQAFolder(questions, "val", side=16)
    assert len(folder) == 12
    first = folder.questions[0]
    assert (first.number, first.text) == (0, "What colour is it?")
    assert first.image.name == "COCO_val2014_000000000001.png"
    assert len(first.answers) == 10
    image = folder.image(first)
    assert image.shape == (3, 16, 16)
    assert image[0].mean() > 0.3 > image[1].mean()  # red


def test_answers_to_choose_from_are_the_commonest_of_enough_questions(questions):
    found = VQAFolder(questions, "train", side=16).questions
    assert list(common_answers(found)) == ["blue", "green", "no", "red", "yes"]
    assert list(common_answers(found, least=10)) == ["no"]


@pytest.mark.slow
def test_a_vilt_with_broadcasting_learns_to_answer(questions, tmp_path, capsys):
    words = shlex.split(
        "--task vqa --model vilt_micro+cb --image-size 16 --epochs 24 --threads 1 --quiet --json "
        "--set batch_size=9 lr=5e-3 warmup_epochs=1 eval_every=24"
    )
    run = ["--data", f"vqa:{questions}", "--out", str(tmp_path / "a")]
    assert main(["train", *words, *run]) == 0
    found = json.loads(capsys.readouterr().out)
    lines = [json.loads(line) for line in (tmp_path / "a/metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["train_loss"] < 0.5 * lines[0]["train_loss"]
    assert found["vqa_score"] > 0.75  # saying "no" always: a third
    assert main(["evaluate", str(tmp_path / "a"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["vqa_score"] == pytest.approx(found["vqa_score"])
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "a"), "--out", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "VQA score" in text
    assert text.count('class="panel"') == 1  # the loss; measured once, the score has no curve


def test_context_broadcasting_is_inside_every_mlp_of_vilt(questions):
    task = VQA(questions, side=16, batch_size=4)
    torch.manual_seed(0)
    plain = build_vilt("vilt_micro", task).eval()
    torch.manual_seed(0)
    mixed = build_vilt("vilt_micro+cb", task).eval()
    assert plain.state_dict().keys() == mixed.state_dict().keys()  # no parameters
    inside = [m for m in mixed.modules() if type(m).__name__ == "ContextBroadcast"]
    assert len(inside) == 2
    inputs, targets = next(task.batches(0, 0))
    assert targets.shape == (4, 5)
    with torch.no_grad():
        assert not torch.allclose(plain(**inputs).logits, mixed(**inputs).logits)


def test_what_is_wrong_with_questions_is_named(questions, tmp_path):
    with pytest.raises(UserError, match="no folder at"):
        VQAFolder(tmp_path / "no")
    with pytest.raises(UserError, match=r"needs one \*train\*questions.json; there is none"):
        VQAFolder(tmp_path)
    (tmp_path / "train_questions.json").write_text("{}")
    with pytest.raises(UserError, match="is not VQA's questions"):
        VQAFolder(tmp_path)
    items = [{"image_id": 7, "question": "?", "question_id": 1}]
    (tmp_path / "train_questions.json").write_text(json.dumps({"questions": items}))
    (tmp_path / "train_annotations.json").write_text(json.dumps({"annotations": []}))
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match="no images in a folder"):
        VQAFolder(tmp_path)
    Image.new("RGB", (4, 4)).save(tmp_path / "train" / "7.png")
    with pytest.raises(UserError, match="question 1 of train has no annotation"):
        VQAFolder(tmp_path)
    with pytest.raises(UserError, match="unknown vision-language model 'vilt_huge'"):
        vilt("vilt_huge", num_answers=2, num_words=4, longest=4, side=16)


def test_the_expected_hours_rest_on_the_multiply_adds_of_vilt():
    model = vilt("vilt_micro", num_answers=5, num_words=9, longest=8, side=16).eval()
    counter = FlopCounterMode(display=False)
    words = torch.ones(1, 8, dtype=torch.long)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        model(
            input_ids=words,
            attention_mask=words,
            token_type_ids=torch.zeros_like(words),
            pixel_values=torch.zeros(1, 3, 16, 16),
            pixel_mask=torch.ones(1, 16, 16, dtype=torch.long),
        )
    counted = counter.get_total_flops() / 2
    assert counted == pytest.approx(
        transformer_work(tokens=8 + 1 + 4, answers=5, **MICRO), rel=0.02
    )
    base = {"width": 768, "depth": 12, "hidden": 3072, "patch": 32, "patches": 144}
    work = transformer_work(tokens=40 + 1 + 144, answers=3129, **base)
    assert 1e9 * TASKS["vqa"][0] == pytest.approx(work, rel=0.02)


MICRO = {"width": 48, "depth": 2, "hidden": 96, "patch": 8, "patches": 4}


def transformer_work(*, tokens, answers, width, depth, hidden, patch, patches):
    """Multiply-adds: four projections and two products of attention, two layers of an MLP."""
    block = tokens * (4 * width**2 + 2 * width * hidden) + 2 * tokens**2 * width
    head = width**2 + 2 * width**2 + 2 * width * answers  # pooler, then a classifier of two layers
    return depth * block + patches * 3 * patch**2 * width + head
