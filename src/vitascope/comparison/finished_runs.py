"""The finished runs of a comparison, and their predictions on every image.

A run keeps its predictions on the images it was measured on in training (validation images, or its
fold) and, as the reading ``test``, those on test images that choose nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vitascope.comparison.evidence import Evidence, RunResult
from vitascope.comparison.question import TEST, Comparison
from vitascope.data import Dataset, Subset, subset
from vitascope.data.held_out import dealt_out
from vitascope.data.images import ImageSet
from vitascope.errors import UserError
from vitascope.inspection.evaluation import LISTS, mistakes
from vitascope.record import Record
from vitascope.runs.cache import folder_of, images_of, reading_of
from vitascope.training import Predictions, Run, load_run

Key = tuple[str, float, int, int]  # model, fraction, seed, fold


@dataclass(frozen=True, kw_only=True)
class FinishedRuns:
    """The finished runs of a comparison, and what they said about every image."""

    question: Comparison
    dataset: Dataset  # with the test images that choose nothing, if there are any
    out: Path

    @cached_property
    def by_key(self) -> dict[Key, Run]:
        """The runs by model, fraction, seed and fold."""
        question = self.question
        return {
            (model, fraction, seed, fold): load_run(folder_of(part, seed, self.out))
            for (model, fraction), training in question.trainings().items()
            for seed in question.seeds_of(model, fraction)
            for fold, part in enumerate(question.on_every_fold(training, seed))
        }

    @cached_property
    def held_out(self) -> dict[Key, Predictions]:
        """Predictions of each run on the images it was measured on in training."""
        return {key: _kept(run) for key, run in self.by_key.items()}

    @cached_property
    def tests(self) -> dict[Key, Record]:
        """Return each run's predictions on test images that were not used for selection, if any."""
        records = {}
        trainings = self.question.trainings()
        for key in self.by_key:
            model, fraction, seed, fold = key
            part = self.question.on_every_fold(trainings[model, fraction], seed)[fold]
            read = reading_of(part, TEST, seed, self.out)
            if read is not None:
                records[key] = read
        return records

    def _run(self, key: Key, correct: np.ndarray) -> RunResult:
        model, fraction, seed, _ = key
        return RunResult(
            model, fraction, seed, self.by_key[key].config["data"]["train_images"], correct
        )

    def _labels(self, labels: np.ndarray) -> np.ndarray | None:
        return labels if self.question.metric == "balanced" else None

    def _groups(self, *parts: ImageSet) -> np.ndarray | None:
        """A patient or video for each image of these parts."""
        classes = Subset(first_classes=self.question.recipe.subset.first_classes)
        groups_of_parts = [subset(part, classes).groups for part in parts]
        given = [groups for groups in groups_of_parts if groups is not None]
        return np.concatenate(given) if given else None

    @cached_property
    def chosen(self) -> Evidence:
        """Return results on the images that choose: validation, or every image out of its fold."""
        folds = range(self.question.folds or 1)
        if self.question.redraw:
            return self._out_of_drawn_folds()
        runs = tuple(
            self._run(key, np.concatenate([self.held_out[(*key[:3], f)].correct for f in folds]))
            for key in self.by_key
            if key[3] == 0
        )
        first = next(iter(self.by_key))
        parts = [self.held_out[(*first[:3], f)].label for f in folds]
        training = next(iter(self.question.trainings().values()))
        images = [images_of(part).test for part in self.question.on_every_fold(training)]
        name = "validation" if self.question.validation else "test"
        return Evidence(
            name="held-out" if self.question.folds else name,
            runs=runs,
            labels=self._labels(np.concatenate(parts)),
            folds=np.repeat(folds, [len(part) for part in parts]) if self.question.folds else None,
            groups=self._groups(*images),
        )

    def _out_of_drawn_folds(self) -> Evidence:
        """Results on every training image out of its fold, where each seed has folds of its own."""
        count, train = self.question.folds, self.dataset.train
        assert count is not None
        fraction = max(self.question.fractions)
        seeds = max((self.question.seeds_of(m, fraction) for m in self.question.models), key=len)
        dealt = dealt_out(self.dataset, count, seeds)
        runs = []
        for key in self.by_key:
            if key[3] == 0:
                correct = np.zeros(len(train), dtype=bool)
                for fold in range(count):
                    inside = dealt[seeds.index(key[2])] == fold
                    correct[inside] = self.held_out[(*key[:3], fold)].correct
                runs.append(self._run(key, correct))
        return Evidence(
            name="held-out",
            runs=tuple(runs),
            labels=self._labels(train.labels),
            folds=dealt,
            groups=self._groups(train),
        )

    @cached_property
    def reported(self) -> Evidence:
        """Return results on images not used for selection, or :attr:`chosen` without such."""
        if not self.tests:
            return self.chosen
        correct = {k: r.arrays["predicted"] == r.arrays["label"] for k, r in self.tests.items()}
        labels = next(iter(self.tests.values())).arrays["label"]
        return Evidence(
            name="test",
            runs=tuple(self._run(key, right) for key, right in correct.items()),
            labels=self._labels(labels),
            groups=self._groups(self.dataset.test),
        )

    def never(self) -> dict[str, list[str]]:
        """Return the classes that each model never predicts when trained on all images."""
        predicted: dict[str, set[int]] = {}
        for key, predictions in self.held_out.items():
            if key[1] == max(self.question.fractions):
                tested = self.tests[key].arrays["predicted"] if key in self.tests else ()
                both = {*np.unique(predictions.predicted).tolist(), *np.unique(tested).tolist()}
                predicted.setdefault(key[0], set()).update(both)
        labels = {
            int(x) for predictions in self.held_out.values() for x in np.unique(predictions.label)
        }
        names = self.dataset.classes
        return {
            model: [names[i] for i in sorted(labels - classes)]
            for model, classes in predicted.items()
        }

    def mistakes(self, model: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return a model's mistakes on the reported images, and which other models are right.

        Of its run on the most images with the first seed (and in the first fold). Values and
        arrays for a record.
        """
        question, most = self.question, max(self.question.fractions)
        keys = {name: (name, most, question.seeds[0], 0) for name in question.models}
        if self.tests:
            by_model = {n: Predictions(**_entries(self.tests[k].arrays)) for n, k in keys.items()}
            images = self.dataset.test
        else:
            by_model = {name: self.held_out[key] for name, key in keys.items()}
            training = question.trainings()[model, most]
            part = question.on_every_fold(training, question.seeds[0])[0]
            images = images_of(part).test
        predictions = by_model[model]
        whole = np.array_equal(images.labels, predictions.label)  # no file was left out
        values, arrays = mistakes(predictions, self.dataset.classes, images if whole else None)
        others = {name: each.correct for name, each in by_model.items() if name != model}
        for line in (line for name in LISTS for line in values.get(name, ())):
            line["right"] = [name for name, right in others.items() if right[line["index"]]]
        run = {"model": model, "seed": question.seeds[0], "images": self.reported.name}
        return {**run, **values}, {f"mistakes/{name}": each for name, each in arrays.items()}


def _entries(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The predictions among a reading's arrays."""
    names = [each.name for each in fields(Predictions)]
    return {name: arrays[name] for name in names if name in arrays}


def _kept(run: Run) -> Predictions:
    predictions = run.predictions
    if predictions is None:
        raise UserError(
            f"{run.folder} has no predictions.safetensors; give another "
            "--out, or delete it and it is trained again"
        )
    return predictions
