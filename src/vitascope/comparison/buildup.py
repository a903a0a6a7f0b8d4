"""Which convolutions should become attention? The build-up rule, as a search on one's own images.

Park and Kim 2022 (https://arxiv.org/abs/2202.06709), section 4.1 and Fig. 12a:

1. replace conv blocks by MSA blocks alternately, from the end of the network;
2. if the last one does not help, take it back and go on at the end of an earlier stage;
3. more heads in late stages: the models' own business, recorded here.

"Alternately" leaves a conv before every MSA, so from the end of a stage every second block is
tried, and never a stage's first, which changes the shape: stages are [conv] x (n - 2m) +
[conv, MSA] x m. A candidate *helps* if its mean top-1 over the seeds, on images held out of the
training set, is above that of the network kept so far by more than ``margin`` points; a tie does
not help. The paper does not say on which images it decided; here the test set decides nothing and
is measured as well. Every candidate is trained from scratch.

The rule must go one way or the other. Whether a change would be seen again is judged separately,
paired over the validation images and crossed with the seeds (`vitascope.stats`): *helps* or *hurts*
when its 95 % interval lies on one side of the margin, otherwise *undecided*.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Annotated, Any

from torch import nn

from vitascope.data import Dataset, subset
from vitascope.errors import UserError
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import build
from vitascope.models.registry import OURS
from vitascope.record import Record, plain
from vitascope.runs.cache import (
    correct_arrays,
    folder_of,
    reading_of,
    recipe_of,
    refuse_other,
)
from vitascope.runs.executor import Engine, run_all
from vitascope.runs.spec import Reading, Training
from vitascope.runs.train_model import load_images
from vitascope.settings import Count, Seed, Side, Within, check
from vitascope.stats import difference, judge
from vitascope.training import Recipe, check_trainable, load_run, lock_folder

Kinds = tuple[str, ...]  # a word per stage, a letter per block: "c" conv, "a" MSA
SIZED = {"resnet": ("resnet_micro", "resnet_preact_50")}  # for small and for large images
SMALL = 64  # pixels a side
TEST = Reading(name="test")

# What must not change in a folder; more seeds or candidates or another margin use the same runs.
_SAME = ("base", "model_args", "data", "image_size", "validation", "recipe")
_ROUNDING = 1e-9  # points; one image is worth far more


@dataclass(frozen=True, kw_only=True)
class BuildUp:
    """A search by the build-up rule: base network, images, recipe and margin."""

    data: str
    recipe: Recipe
    base: str = "resnet"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[Seed, ...] = (0, 1)
    # points of top-1 that a block must bring
    margin: Annotated[float, Within(0, 100, open_high=True)] = 0.0
    # share of each class's training images that decides
    validation: Annotated[float, Within(0, 1, open_low=True, open_high=True)] = 0.2
    max_candidates: Count | None = None
    image_size: Side | None = None

    def __post_init__(self) -> None:
        check(self)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UserError(f"seeds must be one or more different ones, not {list(self.seeds)}")

    @property
    def config(self) -> dict[str, Any]:
        """The fields as plain types, for a record."""
        return dict(plain({**asdict(self), "recipe": self.recipe.to_dict()}))

    @property
    def whole(self) -> Dataset:
        """All images."""
        return load_images(self.data, self.image_size)

    @property
    def chooser(self) -> Dataset:
        """The images to choose by: a part of the training images is their test set."""
        return load_images(self.data, self.image_size, self.validation)

    def training(self, kinds: Kinds) -> Training:
        """Return how the network of these kinds is trained."""
        return Training(
            model=self.base,
            model_args={**self.model_args, "kinds": kinds},
            data=self.data,
            image_size=self.image_size,
            validation=self.validation,
            recipe=self.recipe,
        )


@dataclass(frozen=True)
class Candidate:
    """A network to try, and the block that is new in it; none in the base."""

    kinds: Kinds
    stage: int | None = None  # from 0
    block: int | None = None


def candidates(base: Kinds) -> Generator[Candidate, bool, Kinds]:
    """The networks to try; send whether each one helped. Returns the kinds that are kept.

    >>> rule = candidates(("cc", "cccc"))
    >>> next(rule).kinds, rule.send(True).kinds, rule.send(False).kinds
    (('cc', 'ccca'), ('cc', 'caca'), ('ca', 'ccca'))
    """
    kinds = base
    for stage in reversed(range(len(base))):
        for block in range(len(base[stage]) - 1, 0, -2):
            word = kinds[stage]
            if "a" in word[block - 1 : block + 2]:  # attention is there already, or next to it
                continue
            word = word[:block] + "a" + word[block + 1 :]
            trial = Candidate((*kinds[:stage], word, *kinds[stage + 1 :]), stage, block)
            if not (yield trial):
                break
            kinds = trial.kinds
    return kinds


def improves(trial: Sequence[float], before: Sequence[float], margin: float = 0.0) -> bool:
    """Return whether the mean over seeds is higher by more than the margin; a tie is not.

    >>> improves([90.0, 92.0], [91.0, 91.0]), improves([92.0], [91.0]), improves([92.0], [91.0], 1)
    (False, True, False)
    """
    return fmean(trial) - fmean(before) > margin + _ROUNDING


def build_up(
    question: BuildUp,
    out: str | Path,
    engine: Engine | None = None,
    *,
    progress: Callable[[str], object] = lambda line: None,
) -> Record:
    """Train what is not trained yet, keep or go back, until the rule has no block left.

    The record is ``out/buildup.json``, written anew after every candidate.

    Args:
        question: What to ask; more seeds or candidates, or another margin, may be asked of the
            same folder later.
        out: Folder for runs and record.
        engine: Where the runs are made; one after the other in this process when left out.
        progress: Called with a line about every candidate.

    Raises:
        UserError: If the base has no kinds, or the folder holds another question.
    """
    out, started, engine = Path(out), perf_counter(), engine or Engine()
    load_images.cache_clear()  # they may have changed since
    question = _with_base(question)
    start = Candidate(_first_kinds(question))
    rule = candidates(start.kinds)
    trial = next(rule, None)
    if trial is None:
        raise UserError(f"{question.base} has no block to replace in {' '.join(start.kinds)}")
    with lock_folder(out):
        refuse_other(out / "buildup", question.config, _SAME, "build-up")
        if not (out / "buildup.json").exists():
            Record(kind="buildup", config=question.config, seed=question.seeds[0]).save(
                out / "buildup"
            )
        _run(question, [start.kinds, trial.kinds], out, engine)  # neither waits for an answer
        best = {**asdict(start), **_scored(question, start.kinds, out)}
        best |= {"change": None, "kept": True}
        rows, answer = [best], None
        most = question.max_candidates
        while trial is not None and (most is None or len(rows) <= most):
            _run(question, [trial.kinds], out, engine)
            row = {**asdict(trial), **_scored(question, trial.kinds, out)}
            row["change"] = row["top1"] - best["top1"]
            row |= _change(question, trial.kinds, best["kinds"], out)
            row["kept"] = improves(row["top1_seeds"], best["top1_seeds"], question.margin)
            best = row if row["kept"] else best
            rows.append(row)
            progress(_line(row))
            trial = _next(rule, row["kept"])
            answer = _record(question, rows, trial is None, perf_counter() - started)
            trainings = {"-".join(row["kinds"]): question.training(row["kinds"]) for row in rows}
            answer = replace(answer, arrays=correct_arrays(trainings, question.seeds, out))
            answer.save(out / "buildup")
    assert answer is not None  # there is a first candidate
    return answer


def _with_base(question: BuildUp) -> BuildUp:
    """The question about a model: ``resnet`` alone means one of the images' size."""
    if question.base not in SIZED:
        return question
    small, large = SIZED[question.base]
    fitting = small if max(question.whole.train.size[1:]) <= SMALL else large
    return replace(question, base=fitting)


def _first_kinds(question: BuildUp) -> Kinds:
    """The kinds of the base's blocks; also the first test of whether it can be trained."""
    chooser, drop_path = question.chooser, question.recipe.drop_path
    model = build(question.base, chooser, drop_path=drop_path, **question.model_args).model
    kinds: Any = getattr(model, "kinds", None)
    plan = recipe_of(question.training(kinds or ()), question.seeds[0], chooser)
    check_trainable(model, chooser, plan)
    if not kinds:
        able = [name for name, (made, _) in OURS.items() if "kinds" in signature(made).parameters]
        raise UserError(
            f"{question.base} does not declare the blocks of its stages (kinds); these do: "
            f"{', '.join(sorted(able))}"
        )
    return tuple(kinds)


def _run(question: BuildUp, networks: Sequence[Kinds], out: Path, engine: Engine) -> None:
    """Every network with every seed, trained and measured on the test images."""
    trainings = [question.training(kinds) for kinds in networks]
    run_all([(t, (TEST,), seed) for t in trainings for seed in question.seeds], out, engine)


def _scored(question: BuildUp, kinds: Kinds, out: Path) -> dict[str, Any]:
    """Return the cost and the accuracies of a trained network."""
    training = question.training(kinds)
    model = build(question.base, question.chooser, **training.model_args).model
    parameters, multiply_adds = count(model, question.whole.train.size)
    runs = [load_run(folder_of(training, seed, out)) for seed in question.seeds]
    read = [reading_of(training, TEST, seed, out) for seed in question.seeds]
    return {
        "num_msa": "".join(kinds).count("a"),
        "heads": [_heads(stage) for stage in model.stages],
        "parameters": parameters,
        "multiply_adds": multiply_adds,
        **_over_seeds("top1", [100 * run.final["top1"] for run in runs]),
        **_over_seeds("test_top1", [100 * test.values["top1"] for test in read if test]),
        "seconds": sum(run.seconds for run in runs),
        "folders": [str(run.folder.relative_to(out)) for run in runs],
    }


def _change(question: BuildUp, trial: Kinds, before: Kinds, out: Path) -> dict[str, Any]:
    """Judge the difference to the best network so far."""
    pair = {"trial": question.training(trial), "kept": question.training(before)}
    right = correct_arrays(pair, question.seeds, out)
    if len(right) < len(pair):
        return {"verdict": "undecided"}
    estimate = difference(*right.values(), groups=question.chooser.test.groups)
    judged = judge(estimate, margin=question.margin)
    verdicts = {"agrees": "helps", "disagrees": "hurts"}
    return {
        "verdict": verdicts.get(judged.verdict, "undecided"),
        "low": estimate.low,
        "high": estimate.high,
        "detectable": judged.detectable,
        "p_value": judged.p_value,
    }


def _heads(stage: nn.Module) -> int | None:
    """Heads of a stage's attention; None where it has none."""
    counts: Any = (getattr(module, "num_heads", None) for module in stage.modules())
    return next((heads for heads in counts if heads is not None), None)


def _over_seeds(name: str, values: Sequence[float]) -> dict[str, Any]:
    std = stdev(values) if len(values) > 1 else None
    return {name: fmean(values), f"{name}_std": std, f"{name}_seeds": list(values)}


def _next(rule: Generator[Candidate, bool, Kinds], helped: bool) -> Candidate | None:
    try:
        return rule.send(helped)
    except StopIteration:
        return None


def _line(row: Mapping[str, Any]) -> str:
    done = "kept" if row["kept"] else "not kept"
    result = f"{row['top1']:.2f} % ({row['change']:+.2f}, {row['verdict']})"
    return f"{' '.join(row['kinds'])}  {result}: {done}"


def _record(
    question: BuildUp,
    rows: Sequence[dict[str, Any]],
    complete: bool,
    seconds: float,
) -> Record:
    """Return the record of the search so far."""
    values = {
        "question": "Which conv blocks should become MSA blocks?",
        "base": question.base,
        "data": question.whole.name,
        "images": {
            "train": len(subset(question.chooser.train, question.recipe.subset)),
            "validation": len(question.chooser.test),
            "test": len(question.whole.test),
        },
        "seeds": list(question.seeds),
        "margin": question.margin,
        "candidates": list(rows),
        "kinds": next(row["kinds"] for row in reversed(rows) if row["kept"]),
        "complete": complete,
        "training_seconds": sum(row["seconds"] for row in rows),
    }
    config, seed = question.config, question.seeds[0]
    return Record(kind="buildup", values=values, config=config, seed=seed, seconds=seconds)
