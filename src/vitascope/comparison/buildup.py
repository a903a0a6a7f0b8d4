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
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

from torch import nn

from vitascope.comparison.options import BuildupOptions
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
from vitascope.runs.train_model import load_images, recipe_from
from vitascope.settings import check, pairs
from vitascope.stats import difference, judge
from vitascope.training import Recipe, check_trainable, load_run, lock_folder

Kinds = tuple[str, ...]  # a word per stage, a letter per block: "c" conv, "a" MSA
SIZED = {"resnet": ("resnet_micro", "resnet_preact_50")}  # for small and for large images
SMALL = 64  # pixels a side
TEST = Reading(name="test")

# What must not change in a folder; more seeds or candidates or another margin use the same runs.
_SAME = ("base", "model_args", "data", "image_size", "validation", "recipe")
_ROUNDING = 1e-9  # points; one image is worth far more


def _refuse_mistakes(options: BuildupOptions) -> None:
    """Refuse what cannot be asked, before images are loaded."""
    seeds = options.seeds
    check(options)
    _training(options, ())
    if not seeds or len(set(seeds)) != len(seeds):
        raise UserError(f"seeds must be one or more different ones, not {list(seeds)}")


def _recipe(options: BuildupOptions) -> Recipe:
    return recipe_from(options.recipe, options.epochs, options.set)


def _model_args(options: BuildupOptions) -> dict[str, Any]:
    return pairs(options.model_args, "--model-args")


def _config(options: BuildupOptions) -> dict[str, Any]:
    """Return the options as records keep them."""
    return {
        "data": options.data,
        "recipe": plain(_recipe(options).to_dict()),
        "base": options.base,
        "model_args": plain(_model_args(options)),
        "seeds": list(options.seeds),
        "margin": options.margin,
        "validation": options.validation,
        "max_candidates": options.max_candidates,
        "image_size": options.image_size,
    }


def _whole(options: BuildupOptions) -> Dataset:
    """Return all images."""
    return load_images(options.data, options.image_size)


def _chooser(options: BuildupOptions) -> Dataset:
    """The images to choose by: a part of the training images is their test set."""
    return load_images(options.data, options.image_size, options.validation)


def _training(options: BuildupOptions, kinds: Kinds) -> Training:
    """Return how the network of these kinds is trained."""
    return Training(
        model=options.base,
        model_args={**_model_args(options), "kinds": kinds},
        data=options.data,
        image_size=options.image_size,
        validation=options.validation,
        recipe=_recipe(options),
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
    options: BuildupOptions,
    out: str | Path,
    engine: Engine | None = None,
    *,
    progress: Callable[[str], object] = lambda line: None,
) -> Record:
    """Train what is not trained yet, keep or go back, until the rule has no block left.

    The record is ``out/buildup.json``, written anew after every candidate.

    Args:
        options: What to ask; more seeds or candidates, or another margin, may be asked of the
            same folder later.
        out: Folder for runs and record.
        engine: Where the runs are made; one after the other in this process when left out.
        progress: Called with a line about every candidate.

    Raises:
        UserError: If the base has no kinds, or the folder holds another question.
    """
    out, started, engine = Path(out), perf_counter(), engine or Engine()
    load_images.cache_clear()  # they may have changed since
    _refuse_mistakes(options)
    options = _with_base(options)
    start = Candidate(_first_kinds(options))
    rule = candidates(start.kinds)
    trial = next(rule, None)
    if trial is None:
        raise UserError(f"{options.base} has no block to replace in {' '.join(start.kinds)}")
    with lock_folder(out):
        refuse_other(out / "buildup", _config(options), _SAME, "build-up")
        if not (out / "buildup.json").exists():
            Record(kind="buildup", config=_config(options), seed=options.seeds[0]).save(
                out / "buildup"
            )
        _run(options, [start.kinds, trial.kinds], out, engine)  # neither waits for an answer
        best = {**asdict(start), **_scored(options, start.kinds, out)}
        best |= {"change": None, "kept": True}
        rows, answer = [best], None
        most = options.max_candidates
        while trial is not None and (most is None or len(rows) <= most):
            _run(options, [trial.kinds], out, engine)
            row = {**asdict(trial), **_scored(options, trial.kinds, out)}
            row["change"] = row["top1"] - best["top1"]
            row |= _change(options, trial.kinds, best["kinds"], out)
            row["kept"] = improves(row["top1_seeds"], best["top1_seeds"], options.margin)
            best = row if row["kept"] else best
            rows.append(row)
            progress(_line(row))
            trial = _next(rule, row["kept"])
            answer = _record(options, rows, trial is None, perf_counter() - started)
            trainings = {"-".join(row["kinds"]): _training(options, row["kinds"]) for row in rows}
            answer = replace(answer, arrays=correct_arrays(trainings, options.seeds, out))
            answer.save(out / "buildup")
    assert answer is not None  # there is a first candidate
    return answer


def _with_base(options: BuildupOptions) -> BuildupOptions:
    """The question about a model: ``resnet`` alone means one of the images' size."""
    if options.base not in SIZED:
        return options
    small, large = SIZED[options.base]
    fitting = small if max(_whole(options).train.size[1:]) <= SMALL else large
    return replace(options, base=fitting)


def _first_kinds(options: BuildupOptions) -> Kinds:
    """The kinds of the base's blocks; also the first test of whether it can be trained."""
    chooser, drop_path = _chooser(options), _recipe(options).drop_path
    model = build(options.base, chooser, drop_path=drop_path, **_model_args(options)).model
    kinds: Any = getattr(model, "kinds", None)
    plan = recipe_of(_training(options, kinds or ()), options.seeds[0], chooser)
    check_trainable(model, chooser, plan)
    if not kinds:
        able = [name for name, (made, _) in OURS.items() if "kinds" in signature(made).parameters]
        raise UserError(
            f"{options.base} does not declare the blocks of its stages (kinds); these do: "
            f"{', '.join(sorted(able))}"
        )
    return tuple(kinds)


def _run(options: BuildupOptions, networks: Sequence[Kinds], out: Path, engine: Engine) -> None:
    """Every network with every seed, trained and measured on the test images."""
    trainings = [_training(options, kinds) for kinds in networks]
    run_all([(t, (TEST,), seed) for t in trainings for seed in options.seeds], out, engine)


def _scored(options: BuildupOptions, kinds: Kinds, out: Path) -> dict[str, Any]:
    """Return the cost and the accuracies of a trained network."""
    training = _training(options, kinds)
    model = build(options.base, _chooser(options), **training.model_args).model
    parameters, multiply_adds = count(model, _whole(options).train.size)
    runs = [load_run(folder_of(training, seed, out)) for seed in options.seeds]
    read = [reading_of(training, TEST, seed, out) for seed in options.seeds]
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


def _change(options: BuildupOptions, trial: Kinds, before: Kinds, out: Path) -> dict[str, Any]:
    """Judge the difference to the best network so far."""
    pair = {"trial": _training(options, trial), "kept": _training(options, before)}
    right = correct_arrays(pair, options.seeds, out)
    if len(right) < len(pair):
        return {"verdict": "undecided"}
    estimate = difference(*right.values(), groups=_chooser(options).test.groups)
    judged = judge(estimate, margin=options.margin)
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
    options: BuildupOptions,
    rows: Sequence[dict[str, Any]],
    complete: bool,
    seconds: float,
) -> Record:
    """Return the record of the search so far."""
    values = {
        "question": "Which conv blocks should become MSA blocks?",
        "base": options.base,
        "data": _whole(options).name,
        "images": {
            "train": len(subset(_chooser(options).train, _recipe(options).subset)),
            "validation": len(_chooser(options).test),
            "test": len(_whole(options).test),
        },
        "seeds": list(options.seeds),
        "margin": options.margin,
        "candidates": list(rows),
        "kinds": next(row["kinds"] for row in reversed(rows) if row["kept"]),
        "complete": complete,
        "training_seconds": sum(row["seconds"] for row in rows),
    }
    config, seed = _config(options), options.seeds[0]
    return Record(kind="buildup", values=values, config=config, seed=seed, seconds=seconds)
