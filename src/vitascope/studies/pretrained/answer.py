"""Which pretrained backbone for these images, and how good will it get?

1. Probe every candidate: frozen features, nearest neighbours and a linear classifier.
2. Race: fine-tune the best few and the best of each kind of locality; the winner's network also
   from random weights, which shows what pretraining added.
3. Answer: accuracy against cost, and one recommendation, or that it is undecided. Beside it the
   order by ImageNet accuracy, which shows what probing added.

Choice and report are those of a comparison from scratch (:func:`advise`): validation images, held
out of the training images, or every training image out of its fold choose; test images, which
chose nothing, tell how good it is and by how much it leads.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.record import Record, provenance
from vitascope.studies import stats
from vitascope.studies.comparison.advice import Advice, advise
from vitascope.studies.comparison.cautions import Trainings
from vitascope.studies.comparison.evidence import Evidence
from vitascope.studies.comparison.finished_runs import FinishedRuns
from vitascope.studies.comparison.question import Comparison
from vitascope.studies.grid.executor import Engine, run_all
from vitascope.studies.grid.train_command import load_images
from vitascope.studies.images import surveyed
from vitascope.studies.pretrained.candidates import IMAGENET, plain_name
from vitascope.studies.pretrained.probing import (
    OnImage,
    ProbedCandidate,
    Tell,
    evidence_of,
    parts_of,
    probe_all,
)
from vitascope.studies.pretrained.question import PretrainedQuestion
from vitascope.studies.pretrained.race import RacePlan, Runner, order_of, planned, runners
from vitascope.studies.session.mistakes import mistakes
from vitascope.studies.session.models import is_named, split_file
from vitascope.train import lock_folder

__all__ = ["choose_pretrained"]

MOST = 1.0  # all images: the only fraction


def choose_pretrained(
    question: PretrainedQuestion,
    out: str | Path,
    engine: Engine | None = None,
    *,
    tell: Tell = lambda line: None,
    on_image: OnImage = lambda model, done, total: None,
) -> Record:
    """Probe, race and answer. The record is ``out/pretrained.json``, the features are kept there.

    Args:
        question: What to ask.
        out: Folder for features, runs and record.
        engine: Where the runs are made; one after the other in this process when left out.
        tell: Told, in one line each, what every candidate is and found.
        on_image: Told of the probe's progress.

    Raises:
        UserError: If no candidate can be had or one cannot be fine-tuned, or another process is at
            work in ``out``.
    """
    out, started, made = Path(out), perf_counter(), provenance()
    engine = engine or Engine()
    if not question.probe_only:
        _check_rebuildable(question)
    load_images.cache_clear()  # they may have changed since
    with lock_folder(out):
        look = surveyed(question.data)
        tell(look.short)
        candidates, skipped, images = probe_all(question, out / "features", tell, on_image)
        chosen, reported = evidence_of(question, candidates, images)
        trainings = Trainings(leak=look.leak if look.leaks else "")
        plan, race, scratch = None, None, None
        if not question.probe_only:
            left = None if question.budget is None else question.budget - (perf_counter() - started)
            plan = _plan(question, candidates, left, engine)
            asked = question.race(plan.models, plan.epochs, "pretrained")
            race = _raced(asked, candidates, images, out, engine)
            chosen, reported = race.chosen, race.reported
            curves = [(key[0], _curve(run.metrics)) for key, run in race.by_key.items()]
            trainings = replace(trainings, curves=curves, never=race.never())
        costs = {name: float(each.cost.multiply_adds) for name, each in candidates.items()}
        found = stats.recommend(chosen.correct(MOST), costs, question.margin, **chosen.kinds)
        advice = advise(
            chosen,
            reported,
            costs,
            found.best,
            margin=question.margin,
            metric=question.metric,
            trainings=trainings,
        )
        if plan is not None:
            alone = question.race((found.best,), plan.epochs, "random")
            scratch = _raced(alone, candidates, images, out, engine).reported
        wrong, pictures = (
            _mistakes(question, candidates[advice.model], images)
            if race is None
            else race.mistakes(advice.model)
        )
        answer = Record(
            kind="pretrained",
            values={
                **_values(question, candidates, reported, advice, found, raced=race is not None),
                **_images(question, images, chosen, reported),
                "race": [] if plan is None else _lines(reported, plan),
                "race_left_out": [] if plan is None else list(plan.left_out),
                "fine_tuning": None if race is None else _added(candidates, reported, found.best),
                "scratch": None if scratch is None else _gained(found.best, reported, scratch),
                "skipped": skipped,
                "images": look.values(),
                "mistakes": wrong,
            },
            arrays={**_arrays(candidates, race, scratch), **pictures},
            config=question.config,
            seed=question.seeds[0],
            seconds=perf_counter() - started,
            made=made,
        )
        answer.save(out / "pretrained")
    return answer


def _check_rebuildable(question: PretrainedQuestion) -> None:
    """Refuse candidates that cannot be fine-tuned, before anything is computed."""
    for text in question.models:
        if not (Path(text).is_dir() or split_file(text)[1] is not None or is_named(text)):
            raise UserError(
                f"{text} can be probed, not fine-tuned: a run could not build it again; give "
                "--probe-only, or candidates of timm's, NAME@FILE or a run's folder"
            )


def _plan(
    question: PretrainedQuestion,
    candidates: Mapping[str, ProbedCandidate],
    left: float | None,
    engine: Engine,
) -> RacePlan:
    wanted = runners(
        [
            Runner(
                model=name,
                kind=each.opened.kind,
                linear=each.inner,
                seconds=each.cost.milliseconds / 1000,
            )
            for name, each in candidates.items()
        ]
    )
    return planned(
        wanted,
        num_images=next(iter(candidates.values())).num_train,
        num_seeds=len(question.seeds) * (question.folds or 1),
        epochs=question.recipe.epochs,
        budget=left,
        processes=engine.processes,
    )


def _raced(
    asked: Comparison,
    candidates: Mapping[str, ProbedCandidate],
    images: Dataset,
    out: Path,
    engine: Engine,
) -> FinishedRuns:
    """The runs of a comparison of some candidates, made unless they are there."""
    run_all(
        asked.runs(has_test=len(images.test) > 0),
        out,
        engine,
        cost=lambda training: float(candidates[training.model].cost.multiply_adds),
    )
    return FinishedRuns(question=asked, dataset=images, out=out)


def _curve(metrics: Any) -> list[float]:
    return [100 * row["top1"] for row in metrics if row["top1"] is not None]


def _values(
    question: PretrainedQuestion,
    candidates: Mapping[str, ProbedCandidate],
    reported: Evidence,
    advice: Advice,
    found: stats.Recommendation,
    *,
    raced: bool,
) -> dict[str, Any]:
    """Every candidate, the orders and the recommendation."""
    final = reported.correct(MOST)
    shares = {name: float(right.mean()) for name, right in final.items()} if raced else {}
    rows = [_row(name, each, shares.get(name)) for name, each in candidates.items()]
    for line in rows:  # how far behind the best, on the images that report
        if line["model"] in final and line["model"] != found.best:
            pair = (final[found.best], final[line["model"]])
            line["behind"] = _interval(stats.difference(*pair, **reported.kinds))
    return {
        "question": "Which pretrained backbone for these images, and how good will it get?",
        "probe": rows,
        "order": {
            "imagenet": order_of({line["model"]: line["imagenet"] for line in rows}),
            "probe": order_of({line["model"]: line["linear"] for line in rows}),
            "race": order_of(shares),
        },
        "table": rows,
        "recommendation": {
            **asdict(advice),
            "verdict": found.verdict,
            "best": found.best,
            "reason": found.reason,
            "rivals": list(found.rivals),
            "stage": "race" if raced else "probe",
        },
        "metric": question.metric,
        "seeds": list(question.seeds),
    }


def _images(
    question: PretrainedQuestion, images: Dataset, chosen: Evidence, reported: Evidence
) -> dict[str, Any]:
    """Which images there are, which chose and which report."""
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


def _added(
    candidates: Mapping[str, ProbedCandidate], reported: Evidence, best: str
) -> dict[str, Any]:
    """What fine-tuning added to the linear probe of the best network."""
    frozen = candidates[best].reported["linear"]
    gain = stats.difference(reported.correct(MOST)[best], frozen, **reported.kinds)
    return {"model": best, "linear": 100 * float(frozen.mean()), "gain": _interval(gain)}


def _gained(best: str, reported: Evidence, scratch: Evidence) -> dict[str, Any]:
    """What the pretrained weights added to the best network."""
    (right,) = scratch.correct(MOST).values()
    gain = stats.difference(reported.correct(MOST)[best], right, **reported.kinds)
    return {"model": best, "top1": 100 * float(right.mean()), "gain": _interval(gain)}


def _interval(found: stats.Estimate) -> dict[str, float]:
    return {"value": found.value, "low": found.low, "high": found.high}


def _arrays(
    candidates: Mapping[str, ProbedCandidate], race: FinishedRuns | None, scratch: Evidence | None
) -> dict[str, np.ndarray]:
    """Which images each got right: ``correct/`` those that report, ``chosen/`` those that chose."""
    found = {}
    for name, each in candidates.items():
        for kind in ("linear", "knn"):
            found[f"correct/{kind}/{name}"] = each.reported[kind]
            found[f"chosen/{kind}/{name}"] = each.chosen[kind]
    if race is not None:
        found |= {f"correct/race/{n}": right for n, right in race.reported.correct(MOST).items()}
        found |= {f"chosen/race/{n}": right for n, right in race.chosen.correct(MOST).items()}
    if scratch is not None:
        (found["correct/scratch"],) = scratch.correct(MOST).values()
    return {name: right.astype(np.uint8) for name, right in found.items()}


def _mistakes(
    question: PretrainedQuestion, taken: ProbedCandidate, images: Dataset
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the linear head of a candidate gets wrong, of the first seed and fold."""
    part = images.test
    if not len(part):
        part = images.train.take(parts_of(question, images)[0][1])
    values, arrays = mistakes(taken.first, images.classes, part)
    told = {"model": taken.opened.text, "seed": question.seeds[0]}
    return {**told, **values}, {f"mistakes/{key}": each for key, each in arrays.items()}


def _row(name: str, each: ProbedCandidate, fine_tuned: float | None) -> dict[str, Any]:
    """One candidate, as ``--json`` has it."""
    found = each.opened.found
    assert found is not None
    how = found.preprocessing
    top1, where = IMAGENET.get(plain_name(name), (None, ""))
    return {
        "model": name,
        **each.shares,
        "k": each.k,
        "c": each.c,
        "fine_tuned": fine_tuned,
        "kind": each.opened.kind,
        "locality": each.opened.locality,
        "size": list(how.size),
        "mean": list(how.mean),
        "std": list(how.std),
        "interpolation": how.interpolation,
        "crop_pct": how.crop_pct,
        "weights": found.weights_key,
        "line": found.line,
        "license": found.license,
        "imagenet": top1,
        "imagenet_source": where,
        "twice": None if each.twice is None else asdict(each.twice),
        **asdict(each.cost),
    }
