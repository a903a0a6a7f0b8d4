"""Usages of pretrained weights: a linear head on frozen features, or fine-tuned; and their results.

The results grow: first the probes, then the fine-tuned runs, then a seed at a time of the usages
that are still in question (``--until decided``). Every seed then has folds of its own, so that a
round is one more repetition of the cross-validation.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitascope.comparison.evidence import Evidence
from vitascope.comparison.finished_runs import FinishedRuns
from vitascope.comparison.pretrained.probing import (
    ProbedCandidate,
    evidence_of,
    with_another_seed,
)
from vitascope.comparison.pretrained.race import PretrainedQuestion
from vitascope.comparison.question import Comparison
from vitascope.data import Dataset
from vitascope.runs.executor import Engine, Wanted, run_all

LINEAR, TUNED = "linear head", "fine-tuned"


@dataclass(frozen=True)
class Usage:
    """A candidate and how its weights are used."""

    model: str
    how: str  # LINEAR or TUNED

    def __str__(self) -> str:
        """The name that the answer uses.

        >>> print(Usage("resnet18", LINEAR))
        resnet18 (linear head)
        """
        return f"{self.model} ({self.how})"


class UsageResults:
    """Measurements so far of every usage of every candidate.

    Args:
        question: What is asked.
        candidates: Those that were probed.
        images: The question's.
        out: Folder of features and runs.
        engine: Where runs are made.

    Attributes:
        raced: The comparison of the fine-tuned candidates; None before any.
    """

    def __init__(
        self,
        question: PretrainedQuestion,
        candidates: Mapping[str, ProbedCandidate],
        images: Dataset,
        out: Path,
        engine: Engine,
    ) -> None:
        self.question, self.images, self.out, self.engine = question, images, out, engine
        self.candidates = dict(candidates)
        self.raced: Comparison | None = None
        self.usages = {
            f"{usage}": usage
            for model in candidates
            for usage in (Usage(model, LINEAR), Usage(model, TUNED))
        }

    @property
    def costs(self) -> dict[str, float]:
        """Multiply-adds of every usage; fine-tuning costs more to make, and the same at work."""
        return {
            name: float(self.candidates[usage.model].cost.multiply_adds + (usage.how == TUNED))
            for name, usage in self.usages.items()
        }

    def fine_tune(self, models: tuple[str, ...], epochs: int) -> None:
        """Fine-tune these candidates with the question's seeds, unless they are finished."""
        self.raced = self.question.race(models, epochs, "pretrained")
        self.make(self.raced)

    def make(self, asked: Comparison) -> FinishedRuns:
        """The runs of a comparison of some candidates, made unless they are there."""
        self._run(asked.runs(has_test=len(self.images.test) > 0))
        return FinishedRuns(question=asked, dataset=self.images, out=self.out)

    def _run(self, wanted: Sequence[Wanted]) -> None:
        run_all(
            wanted,
            self.out,
            self.engine,
            cost=lambda training: float(self.candidates[training.model].cost.multiply_adds),
        )

    @property
    def fine_tuned(self) -> FinishedRuns | None:
        """The fine-tuned runs; None without any."""
        if self.raced is None:
            return None
        return FinishedRuns(question=self.raced, dataset=self.images, out=self.out)

    def evidence(self) -> list[Evidence]:
        """Results of all usages on the images that choose, and on those that report.

        They are the same object where the same images do both.
        """
        probed = _called(LINEAR, evidence_of(self.question, self.candidates, self.images))
        runs = self.fine_tuned
        if runs is None:
            return probed
        return _joined(probed, _called(TUNED, (runs.chosen, runs.reported)))

    def add_seed(
        self, names: Iterable[str], affordable: Callable[[Sequence[Wanted]], bool]
    ) -> bool:
        """Measure these usages with one more seed, if its runs are affordable."""
        usages = [self.usages[name] for name in names]
        tuned = [usage.model for usage in usages if usage.how == TUNED]
        if tuned:
            assert self.raced is not None
            longer = self.raced.with_another_seed(tuned)
            there = self.raced.runs(has_test=len(self.images.test) > 0)
            wanted = [
                run for run in longer.runs(has_test=len(self.images.test) > 0) if run not in there
            ]
            if not affordable(wanted):
                return False
            self._run(wanted)
            self.raced = longer
        for usage in usages:
            if usage.how == LINEAR:
                self.candidates[usage.model] = with_another_seed(
                    self.question,
                    self.candidates[usage.model],
                    self.images,
                    self.out / "features",
                )
        return True


def _called(how: str, evidence: Sequence[Evidence]) -> list[Evidence]:
    """Add the usage to every model's name; what was one object stays one."""
    renamed = {
        id(each): replace(
            each, runs=tuple(replace(run, model=f"{Usage(run.model, how)}") for run in each.runs)
        )
        for each in evidence
    }
    return [renamed[id(each)] for each in evidence]


def _joined(first: Sequence[Evidence], second: Sequence[Evidence]) -> list[Evidence]:
    """Evidence on the same images together; what was one object stays one."""
    joined = {}
    for one, other in zip(first, second, strict=True):
        longer = max(  # with a row of folds for each seed, where they are dealt anew
            (each.folds for each in (one, other) if each.folds is not None), key=len, default=None
        )
        joined[id(one)] = replace(one, runs=(*one.runs, *other.runs), folds=longer)
    return [joined[id(one)] for one in first]
