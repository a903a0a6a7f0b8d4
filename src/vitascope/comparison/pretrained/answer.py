"""Which pretrained backbone for these images, and how good will it get?

1. Probe every candidate: frozen features, nearest neighbours and a linear classifier.
2. Race: fine-tune the best few and the best of each kind of locality; the winner's network also
   from random weights, which shows what pretraining added.
3. Answer: accuracy against cost, and one recommendation, or that it is undecided: a candidate and
   the way to use it, with a linear head on its frozen features or fine-tuned, whichever is better.
   It is there as a run, for `predict`. Beside it the order by ImageNet accuracy, which shows what
   probing added.

Choice and report are those of a comparison from scratch (:func:`advise`): validation images, held
out of the training images, or every training image out of its fold choose; test images, which
were not used for selection, show how good it is and by how much it leads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vitascope import stats
from vitascope.comparison.advice import advise
from vitascope.comparison.budget import in_words
from vitascope.comparison.cautions import Caution, Trainings, typed_command
from vitascope.comparison.evidence import Evidence
from vitascope.comparison.finished_runs import FinishedRuns
from vitascope.comparison.options import CompareOptions
from vitascope.comparison.pretrained.candidates import (
    IMAGENET,
    Backbone,
    at_least_one,
    foreign,
    opened,
    plain_name,
)
from vitascope.comparison.pretrained.cost import Cost, cost_of
from vitascope.comparison.pretrained.probing import (
    FEW,
    OnImage,
    ProbedCandidate,
    Tell,
    parts_of,
    probe_all,
)
from vitascope.comparison.pretrained.race import (
    PretrainedQuestion,
    RacePlan,
    Runner,
    order_of,
    planned,
    pretrained_question,
    runners,
    seconds_of,
)
from vitascope.comparison.pretrained.usages import LINEAR, TUNED, Usage, UsageResults
from vitascope.comparison.question import TEST
from vitascope.comparison.rounds import MOST as MOST_SEEDS
from vitascope.comparison.rounds import Rounds, in_rounds
from vitascope.data import Dataset
from vitascope.data.survey import Survey, surveyed
from vitascope.inspection.evaluation import mistakes
from vitascope.loading.opening import is_named, split_file
from vitascope.record import Record, provenance
from vitascope.runs.cache import folder_of, is_finished, on_so_many, reading_of
from vitascope.runs.executor import Engine, Wanted, run_all
from vitascope.runs.train_model import load_images
from vitascope.settings import command_line
from vitascope.training import load_run, lock_folder

MOST = 1.0  # all images: the only fraction
CLEARLY, TOO_EASY = 10.0, 95.0  # points over random weights; percent that those get right


def choose_pretrained(
    options: CompareOptions,
    out: str | Path,
    engine: Engine | None = None,
    *,
    tell: Tell = lambda line: None,
    on_image: OnImage = lambda model, done, total: None,
) -> Record:
    """Probe, race and answer. The record is ``out/pretrained.json``, the features are kept there.

    Args:
        options: What to ask.
        out: Folder for features, runs and record.
        engine: Where the runs are made; one after the other in this process when left out.
        tell: Told, in one line each, what every candidate is and found.
        on_image: Told of the probe's progress.

    Raises:
        UserError: If no candidate is available, or another process is at work in ``out``.
    """
    out, started, made = Path(out), perf_counter(), provenance()
    question, engine = pretrained_question(options), engine or Engine()
    load_images.cache_clear()  # they may have changed since
    with lock_folder(out):
        tried = list(at_least_one(opened(question.models, question.image_size)))
        look = surveyed(question.data)
        tell(look.short)
        costs_of = {
            each.text: cost_of(each.opened.model, each.opened.input_size())
            for each in tried
            if each.opened is not None
        }
        if question.budget is not None:
            tell(foreseen(question, tried, costs_of, look, engine.processes))
        candidates, skipped, images = probe_all(
            question, tried, costs_of, out / "features", tell, on_image
        )
        results = UsageResults(question, candidates, images, out, engine)
        trainings = Trainings(
            weights={name: _about_weights(each) for name, each in candidates.items()},
            leak=look.leak if look.leaks else "",
            command=typed_command(
                made,
                command_line(
                    ["vitascope", "compare", "--pretrained"],
                    [("--data", question.data), ("--out", str(out))],
                ),
            ),
            out=str(out),
            epochs=question.recipe.epochs,
            num_classes=len(images.classes),
        )
        plan, scratch = RacePlan((), 0, ()), None
        if not question.probe_only:
            left = None if question.budget is None else question.budget - (perf_counter() - started)
            if left is not None:  # the run of the recommended linear head comes last
                left -= _last_run(candidates)
            plan = _plan(question, candidates, left, engine)
            for line in plan.notes:
                tell(line)
        if plan.models:
            results.fine_tune(plan.models, plan.epochs)
        rounds = None
        if question.until:
            rounds = _in_rounds(results, plan, started, tell)
        candidates, race = results.candidates, results.fine_tuned
        chosen, reported = results.evidence()
        if race is not None:
            curves = [(f"{Usage(k[0], TUNED)}", _curve(r.metrics)) for k, r in race.by_key.items()]
            never = {f"{Usage(name, TUNED)}": classes for name, classes in race.never().items()}
            trainings = replace(trainings, curves=curves, never=never)
        recommendation = (
            stats.recommend(chosen.correct(MOST), results.costs, question.margin, **chosen.kinds)
            if rounds is None
            else rounds.recommendation
        )
        advice = advise(
            chosen,
            reported,
            results.costs,
            recommendation.best,
            margin=question.margin,
            metric=question.metric,
            trainings=trainings,
            notes=() if rounds is None else rounds.notes(),
            recommendation=recommendation,
        )
        taken, best = results.usages[advice.model], results.usages[recommendation.best]
        if race is not None and plan.scratch and candidates[best.model].backbone.rebuildable:
            alone = question.race((best.model,), plan.epochs, "random")
            scratch = results.make(alone).reported
        wrong, pictures = (
            race.mistakes(taken.model)
            if race is not None and taken.how == TUNED
            else _mistakes(question, candidates[taken.model], images)
        )
        answer = Record(
            kind="pretrained",
            values={
                "question": "Which pretrained backbone for these images, and how good will it get?",
                **_lists(candidates, chosen, reported, recommendation.best),
                **_images(question, images, chosen, reported),
                "recommendation": {
                    **asdict(advice),
                    "model": taken.model,
                    "way": taken.how,
                    "verdict": recommendation.verdict,
                    "best": best.model,
                    "reason": recommendation.reason,
                    "rivals": list(recommendation.rivals),
                    "stage": "probe" if race is None else "race",
                    **_in_use(question, taken, candidates, images, plan, out, engine),
                },
                "race": [] if race is None else _lines(race.reported, plan),
                "race_left_out": list(plan.left_out),
                "race_notes": list(plan.notes),
                "fine_tuning": None if race is None else _added(candidates, race),
                "scratch": None if scratch is None else _gained(best, reported, scratch),
                "skipped": skipped,
                "images": look.values(),
                "mistakes": wrong,
                "metric": question.metric,
                "seeds": list(question.seeds),
                "rounds": None if rounds is None else rounds.values(),
            },
            arrays={**_arrays(candidates, race, scratch), **pictures},
            config=question.config,
            seed=question.seeds[0],
            seconds=perf_counter() - started,
            made=made,
        )
        answer.save(out / "pretrained")
    return answer


def _in_rounds(results: UsageResults, plan: RacePlan, started: float, tell: Tell) -> Rounds:
    """Repeat the cross-validation for the usages in question, until that ends."""
    question, engine = results.question, results.engine

    def affordable(runs: Sequence[Wanted]) -> bool:
        """Return whether the runs end within the budget; finished ones take no time."""
        left = [run for run in runs if not is_finished(*run, results.out)]
        if question.budget is None or not left:
            return True
        seconds = 0.0
        for training, _, _ in left:
            each = results.candidates[training.model]
            runner = _runner(training.model, each)
            seconds += seconds_of(runner, each.num_train * plan.epochs, engine.processes)
        reserve = _last_run(results.candidates)
        return perf_counter() - started + seconds + reserve <= question.budget

    return in_rounds(
        lambda: results.evidence()[0],
        lambda names: results.add_seed(names, affordable),
        results.costs,
        first=len(question.seeds),
        most=max(MOST_SEEDS, len(question.seeds)),
        margin=question.margin,
        tell=tell,
    )


def foreseen(
    question: PretrainedQuestion,
    tried: Sequence[Backbone],
    costs: Mapping[str, Cost],
    look: Survey,
    processes: int,
) -> str:
    """Say before the probe what the budget buys, and what the cheapest fine-tuning costs."""
    assert question.budget is not None
    total, train = sum(look.train) + sum(look.test), sum(look.train)
    if question.folds is not None:
        train = round(train * (question.folds - 1) / question.folds)
    else:
        train = round(train * (1 - question.validation))
    seconds = {name: cost.usual_milliseconds / 1000 for name, cost in costs.items()}
    probing = sum(seconds.values()) * total
    line = f"Budget of {in_words(question.budget)}: the probe takes about {in_words(probing)}"
    able = [each.text for each in tried if each.rebuildable]
    if question.probe_only or not able:
        return f"{line}."
    cheapest = min(able, key=lambda name: seconds[name])
    runs = len(question.seeds) * (question.folds or 1)
    images = train * runs * on_so_many(question.recipe, train).epochs
    runner = Runner(model=cheapest, kind="", linear=0.0, seconds=seconds[cheapest])
    cost = seconds_of(runner, images, processes)
    line += f", fine-tuning of the cheapest candidate, {cheapest}, about {in_words(cost)}"
    room = question.budget - probing
    if cost > room:
        return (
            f"{line}: the budget buys the probe alone. To fine-tune it too, give --budget "
            f"{max(1, round(1.2 * (probing + cost) / 60))}m, fewer --seeds or a smaller "
            "--image-size."
        )
    return f"{line}; the probe decides what is fine-tuned in the rest."


def _about_weights(each: ProbedCandidate) -> list[Caution]:
    """Cautions about a candidate's weights, for both of its usages."""
    name, lead, cautions = each.backbone.text, each.over_random, []
    if lead is not None and lead.low <= 0 and lead.value < CLEARLY and each.random < TOO_EASY:
        cautions.append(
            (
                f"weights no better than random ({name})",
                f"With its weights {name} is not shown to be better than with random ones "
                f"({each.random + lead.value:.0f} against {each.random:.0f} % of "
                f"{FEW} images or fewer): did the weights load? Check the file and its names.",
            )
        )
    foreign_values = foreign(each.backbone)
    if foreign_values:
        cautions.append(
            (
                f"foreign preprocessing ({name})",
                f"Images are not prepared as the weights of {name} expect: "
                f"{'; '.join(foreign_values)}.",
            )
        )
    return [
        Caution(words, sentence, f"{Usage(name, how)}")
        for words, sentence in cautions
        for how in (LINEAR, TUNED)
    ]


def _last_run(candidates: Mapping[str, ProbedCandidate]) -> float:
    """Seconds of the run of a linear head: its fit and one pass through the images."""
    each = max(candidates.values(), key=lambda one: one.cost.usual_milliseconds)
    images = 2 * each.num_train + len(next(iter(each.reported.values()))[0])
    return images * each.cost.usual_milliseconds / 1000


def _in_use(
    question: PretrainedQuestion,
    taken: Usage,
    candidates: Mapping[str, ProbedCandidate],
    images: Dataset,
    plan: RacePlan,
    out: Path,
    engine: Engine,
) -> dict[str, Any]:
    """The recommended way as a run, made unless it is there, and the command for all images.

    ``run`` and ``run_top1`` are None after a probe alone; all are where no run can build the model.
    """
    nothing = {"run": None, "run_top1": None, "command": None, "train": None}
    if not candidates[taken.model].backbone.rebuildable:
        return nothing
    asked = question.race((taken.model,), plan.epochs if taken.how == TUNED else None, "pretrained")
    seed = question.seeds[0]
    training = asked.on_every_fold(asked.training(taken.model, MOST), seed)[0]
    train = {
        **asked.for_all_images(taken.model),
        "pretrained": is_named(taken.model) and split_file(taken.model)[1] is None,
        "epochs": plan.epochs if taken.how == TUNED else None,
    }
    options = [(f"--{name.replace('_', '-')}", value) for name, value in train.items()]
    command = command_line(["vitascope", "train"], [*options, ("--out", out / "model")])
    if question.probe_only:
        return {**nothing, "command": command, "train": train}
    tests = (TEST,) if TEST in asked.readings and len(images.test) else ()
    run_all([(training, tests, seed)], out, engine)
    folder = folder_of(training, seed, out)
    read = reading_of(training, TEST, seed, out)
    right = (
        load_run(folder).final["top1"]
        if read is None
        else float((read.arrays["predicted"] == read.arrays["label"]).mean())
    )
    return {"run": str(folder), "run_top1": right, "command": command, "train": train}


def _plan(
    question: PretrainedQuestion,
    candidates: Mapping[str, ProbedCandidate],
    left: float | None,
    engine: Engine,
) -> RacePlan:
    """Return who is fine-tuned: of those that a run can build again."""
    able = {name: each for name, each in candidates.items() if each.backbone.rebuildable}
    wanted = runners([_runner(name, each) for name, each in able.items()])
    num_images = next(iter(candidates.values())).num_train
    plan = planned(
        wanted,
        num_images=num_images,
        num_seeds=len(question.seeds) * (question.folds or 1),
        epochs=on_so_many(question.recipe, num_images).epochs,
        budget=left,
        processes=engine.processes,
    )
    return replace(plan, unable=tuple(name for name in candidates if name not in able))


def _runner(name: str, each: ProbedCandidate) -> Runner:
    """A candidate as the fine-tuning stage sees it."""
    return Runner(
        model=name,
        kind=each.backbone.kind,
        linear=each.inner,
        seconds=each.cost.usual_milliseconds / 1000,
    )


def _curve(metrics: Any) -> list[float]:
    return [100 * row["top1"] for row in metrics if row["top1"] is not None]


def _lists(
    candidates: Mapping[str, ProbedCandidate], chosen: Evidence, reported: Evidence, best: str
) -> dict[str, Any]:
    """Every candidate, and the orders."""
    final, by = reported.correct(MOST), chosen.correct(MOST)
    rows, tuned = [], {}
    for name, each in candidates.items():
        usages = [
            usage for usage in (Usage(name, LINEAR), Usage(name, TUNED)) if f"{usage}" in final
        ]
        own = max(
            usages, key=lambda usage: by[f"{usage}"].mean()
        )  # its better one, of those that choose
        if len(usages) > 1:
            tuned[name] = float(final[f"{usages[1]}"].mean())
        line = {**_row(name, each, tuned.get(name)), "way": own.how}
        right = {"knn": each.reported["knn"]}
        right |= {
            key: final[f"{w}"] for key, w in zip(("linear", "fine_tuned"), usages, strict=False)
        }
        line["intervals"] = {
            key: _interval(stats.accuracy(estimate, **reported.kinds))
            for key, estimate in right.items()
        }
        if f"{own}" != best:
            pair = (final[best], final[f"{own}"])
            line["behind"] = _interval(stats.difference(*pair, **reported.kinds))
        rows.append(line)
    return {
        "probe": rows,
        "table": rows,
        "order": {
            "imagenet": order_of({line["model"]: line["imagenet"] for line in rows}),
            "probe": order_of({line["model"]: line["linear"] for line in rows}),
            "race": order_of(tuned),
        },
    }


def _images(
    question: PretrainedQuestion, images: Dataset, chosen: Evidence, reported: Evidence
) -> dict[str, Any]:
    """Return the numbers of images, for choosing and for reporting."""
    return {
        "data": {
            "name": images.name,
            "num_train": len(images.train),
            "num_test": len(images.test),
            "classes": list(images.classes),
            "notes": list(images.notes),
        },
        "chosen_by": {
            "images": chosen.name,
            "count": chosen.num_images,
            "share": None if question.folds else question.validation,
            "folds": question.folds,
        },
        "reported_on": {"images": reported.name, "count": reported.num_images},
    }


def _lines(reported: Evidence, plan: RacePlan) -> list[dict[str, Any]]:
    return [
        {
            "model": name,
            "top1": float(right.mean()),
            "per_seed": [float(share) for share in right.mean(axis=1)],
            "epochs": plan.epochs,
        }
        for name, right in reported.correct(MOST).items()
    ]


def _added(candidates: Mapping[str, ProbedCandidate], race: FinishedRuns) -> dict[str, Any]:
    """Return what fine-tuning added to the linear head of the network that gained most."""
    means = {name: right.mean() for name, right in race.chosen.correct(MOST).items()}
    best = max(means, key=lambda name: means[name])
    frozen = candidates[best].reported["linear"]
    gain = stats.difference(race.reported.correct(MOST)[best], frozen, **race.reported.kinds)
    return {"model": best, "linear": 100 * float(frozen.mean()), "gain": _interval(gain)}


def _gained(best: Usage, reported: Evidence, scratch: Evidence) -> dict[str, Any]:
    """Return what pretrained weights added to the best network."""
    (right,) = scratch.correct(MOST).values()
    gain = stats.difference(reported.correct(MOST)[f"{best}"], right, **reported.kinds)
    return {"model": best.model, "top1": 100 * float(right.mean()), "gain": _interval(gain)}


def _interval(estimate: stats.Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _arrays(
    candidates: Mapping[str, ProbedCandidate], race: FinishedRuns | None, scratch: Evidence | None
) -> dict[str, np.ndarray]:
    """Return which images each got right: ``correct/`` reports, ``chosen/`` was used to choose."""
    arrays = {}
    for name, each in candidates.items():
        for kind in ("linear", "knn"):
            arrays[f"correct/{kind}/{name}"] = each.reported[kind]
            arrays[f"chosen/{kind}/{name}"] = each.chosen[kind]
    if race is not None:
        arrays |= {f"correct/race/{n}": right for n, right in race.reported.correct(MOST).items()}
        arrays |= {f"chosen/race/{n}": right for n, right in race.chosen.correct(MOST).items()}
    if scratch is not None:
        (arrays["correct/scratch"],) = scratch.correct(MOST).values()
    return {name: right.astype(np.uint8) for name, right in arrays.items()}


def _mistakes(
    question: PretrainedQuestion, taken: ProbedCandidate, images: Dataset
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the mistakes of a candidate's linear head, for the first seed and fold."""
    part = images.test
    if not len(part):
        part = images.train.take(parts_of(question, images, question.seeds[0])[0][1])
    values, arrays = mistakes(taken.first, images.classes, part)
    run = {"model": taken.backbone.text, "seed": question.seeds[0]}
    return {**run, **values}, {f"mistakes/{key}": each for key, each in arrays.items()}


def _row(name: str, each: ProbedCandidate, fine_tuned: float | None) -> dict[str, Any]:
    """One candidate, as ``--json`` has it."""
    model = each.backbone.opened
    assert model is not None
    assert model.origin is not None
    preprocessing = model.preprocessing.to_record()
    top1, where = IMAGENET.get(plain_name(name), (None, ""))
    return {
        "model": name,
        **each.shares,
        "k": each.k,
        "c": each.c,
        "fine_tuned": fine_tuned,
        "kind": each.backbone.kind,
        "locality": each.backbone.locality,
        **preprocessing,
        "weights": model.weights_key,
        "random": each.random / 100 if each.over_random is not None else None,
        "line": model.line,
        "license": model.origin.license,
        "imagenet": top1,
        "imagenet_source": where,
        "twice": None if each.twice is None else asdict(each.twice),
        **asdict(each.cost),
    }
