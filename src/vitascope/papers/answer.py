"""Answer a study at a scale: make its runs, fill its tables, judge its claims, write its record."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from vitascope.data import load
from vitascope.errors import UserError, listed
from vitascope.figure import Figure, restored, stored
from vitascope.loading.built_in_locality import built_in
from vitascope.models import create_model
from vitascope.papers.catalog import order_of
from vitascope.papers.cost import RunCosts
from vitascope.papers.earlier import (
    Earlier,
    EarlierRun,
    earlier_runs,
    is_final_top1,
    of_accuracy_alone,
)
from vitascope.papers.judging import judged
from vitascope.papers.plan import FINAL, CellSpec, Plan, Results, Study, TableSpec
from vitascope.papers.scale import SCALES, Scale
from vitascope.record import Record, provenance
from vitascope.runs.cache import folder_of, is_finished, reading_of
from vitascope.runs.executor import Engine, run_all
from vitascope.runs.spec import Reading, Training
from vitascope.settings import command_line
from vitascope.training import load_run


def answer(
    study: Study, scale: Scale, out: str | Path, engine: Engine, earlier: Sequence[str | Path] = ()
) -> Record:
    """Run what is not there yet and write ``out/<study>.json``.

    Args:
        study: The question.
        scale: Its size.
        out: Folder of the runs.
        engine: Where they are made.
        earlier: Records of studies; runs whose numbers they have are not made again.
    """
    out, made = Path(out), provenance()
    plan = study.plan(scale)
    stored = _not_here(earlier_runs(earlier, study.name, scale, plan), plan, scale, out)
    runs = [
        (training, tuple(readings.values()), seed)
        for seed in scale.seeds
        for key, (training, readings) in plan.wanted().items()
        if (key, seed) not in stored.runs
    ]
    if engine.quiet and engine.processes == 1:  # nobody asks how long, and the order is the same
        run_all(runs, out, engine)
    else:
        costs = RunCosts(plan)
        run_all(runs, out, engine, cost=costs.epoch, overhead=costs.readings)
    results = gathered(plan, scale, out, stored)
    drawn, seeds = _drawn(plan, scale, out, stored, results)
    answered = replace(_record(study, scale, plan, results, drawn), made=made)
    if stored.runs:
        more = {"earlier": _sources_of(stored.runs.values()), "figure_seeds": list(seeds)}
        answered = replace(answered, values={**answered.values, **more})
    answered.save(out / study.name)
    return answered


def check_images(plans: Mapping[str, Plan]) -> None:
    """All images must be there before anything starts: to train on, and to be read on elsewhere.

    Args:
        plans: By the name of their study.

    Raises:
        UserError: If some are not, or if a set is named without its place.
    """
    checked = set()
    for name, plan in plans.items():
        for source in _images(plan):
            if source in checked:
                continue
            checked.add(source)
            if source[0] in ("imagenet", "cifar100"):
                raise UserError(f"say where the images are: --data {source[0]}:PATH")
            try:
                load(source[0], image_size=source[1])
            except UserError as error:
                raise UserError(f"{name} has no images {source[0]}: {error}") from None


def _images(plan: Plan) -> Iterator[tuple[str, int | None]]:
    """Images and the size they are wanted in."""
    for training, readings in plan.wanted().values():
        yield training.data, training.image_size
        for reading in readings.values():
            if "data" in reading.options:
                yield reading.options["data"], training.image_size


def _not_here(earlier: Earlier, plan: Plan, scale: Scale, out: Path) -> Earlier:
    """The earlier runs of the scale's seeds that are not in ``out``."""
    wanted, alone = plan.wanted(), of_accuracy_alone(plan)
    studies = {
        seed: study
        for seed, study in earlier.studies.items()
        if seed in scale.seeds
        and not all(is_finished(t, tuple(rs.values()), seed, out) for t, rs in wanted.values())
    }
    runs = {
        (key, seed): run
        for (key, seed), run in earlier.runs.items()
        if seed in studies
        or (seed in scale.seeds and key in alone and not is_finished(wanted[key][0], (), seed, out))
    }
    return Earlier(runs=runs, studies=studies)


def gathered(plan: Plan, scale: Scale, out: Path, earlier: Earlier | None = None) -> Results:
    """All records that the plan wants, from the runs in ``out`` and from earlier studies."""
    earlier = earlier or Earlier(runs={}, studies={})
    records: dict[tuple[str, str], list[Record | None]] = {}
    for key, (training, readings) in plan.wanted().items():
        for name, reading in readings.items():
            records[key, name] = [
                _read(training, reading, seed, out)
                if (run := earlier.runs.get((key, seed))) is None
                else (run.final if reading == FINAL else None)
                for seed in scale.seeds
            ]
    return Results(records, earlier.numbers(plan, scale.seeds))


def _read(training: Training, reading: Reading, seed: int, out: Path) -> Record:
    """A reading of a run; its predictions are in that of its final line."""
    measured = reading_of(training, reading, seed, out)
    if measured is None:
        raise UserError(f"{training.key} has no {reading.name} yet in {out}")
    if reading != FINAL:
        return measured
    predictions = load_run(folder_of(training, seed, out)).predictions
    if predictions is None:
        return measured
    return replace(measured, arrays={**measured.arrays, **predictions.arrays})


def _drawn(
    plan: Plan, scale: Scale, out: Path, earlier: Earlier, results: Results
) -> tuple[Sequence[Figure], Sequence[int]]:
    """The figures and their seeds: all, or those in ``out``, or an earlier record's if more."""
    if not plan.figures or not earlier.studies:
        return [draw(results) for draw in plan.figures], scale.seeds
    here = tuple(seed for seed in scale.seeds if seed not in earlier.studies)
    largest = max(earlier.studies.values(), key=lambda study: len(_figure_seeds(study)))
    seeds = _figure_seeds(largest)
    if len(here) < len(seeds):
        figures = [restored(item, largest.arrays) for item in largest.values["figures"]]
        has_note = seeds != largest.values["seeds"]
    else:
        seeds, has_note = here, False
        those = gathered(plan, replace(scale, seeds=here), out, earlier)
        figures = [draw(those) for draw in plan.figures]
    if has_note or set(seeds) == set(scale.seeds):
        return figures, seeds
    numbers = listed(list(map(str, seeds)), most=len(seeds))
    note = f"Drawn of the seeds {numbers}." if len(seeds) > 1 else f"Drawn of seed {numbers}."
    return [replace(figure, reading=f"{figure.reading} {note}") for figure in figures], seeds


def _figure_seeds(study: Record) -> Sequence[int]:
    """The seeds that a study's figures are drawn of."""
    seeds: Sequence[int] = study.values.get("figure_seeds", study.values["seeds"])
    return seeds


def _sources_of(runs: Iterable[EarlierRun]) -> list[dict[str, Any]]:
    """The records that runs were taken from, and how many."""
    sources: dict[str, list[EarlierRun]] = {}
    for run in runs:
        sources.setdefault(run.source, []).append(run)
    return [{**those[0].provenance(), "num_runs": len(those)} for those in sources.values()]


def filled(table: TableSpec, results: Results, arrays: Container[str] = ()) -> dict[str, Any]:
    """A table with its numbers, as the record holds it.

    An accuracy on the run's own test images names the array of those that it got right, if that is
    among ``arrays``.
    """
    rows = [
        {
            "label": label,
            "paper_label": table.paper_rows.get(label),
            "cells": [_filled(cell, results, arrays) for cell in table.row(label)],
        }
        for label in table.rows
    ]
    return {
        "name": table.name,
        "title": table.title,
        "corner": table.corner,
        "columns": table.columns,
        "rows": rows,
        "unit": table.measurement.unit,
        "digits": table.measurement.digits,
        "accuracy": table.measurement.is_accuracy,
        "num_test": table.num_test,
        "log": table.measurement.log,
    }


def _filled(cell: CellSpec | None, results: Results, arrays: Container[str]) -> dict[str, Any]:
    values = results.values(cell)
    correct = f"correct/{cell.training.key}" if cell and is_final_top1(cell) else None
    return {
        "ours": values,
        "mean": fmean(values) if values else None,
        "std": stdev(values) if len(values) > 1 else None,
        "paper": cell.paper if cell else None,
        "correct": correct if correct in arrays else None,
    }


def _record(
    study: Study, scale: Scale, plan: Plan, results: Results, drawn: Sequence[Figure]
) -> Record:
    correct = _correct_images(plan, results)
    tables = [filled(table, results, correct) for table in plan.tables]
    finals = [r for t, _ in plan.wanted().values() for r in results.of(t)]
    num_test = max((r.values["num_test"] for r in finals), default=None)
    claims = [judged(claim, plan.contrast(claim), results, num_test) for claim in plan.claims]
    figures = [stored(figure) for figure in drawn if figure.panels]
    arrays = {name: array for _, more in figures for name, array in more.items()}
    values = {
        "study": study.name,
        "order": order_of(study.name),
        "title": study.title,
        "claim": study.claim,
        "covers": list(study.covers),
        "scale": scale.name,
        "data": scale.data,
        "num_test": num_test,
        "seeds": list(scale.seeds),
        "tables": tables,
        "claims": claims,
        "figures": [figure for figure, _ in figures],
        "num_runs": len(plan.wanted()) * len(scale.seeds),
        "kinds": kinds_of(plan),
        "bands": "one standard deviation over seeds",  # of the figures, as in the tables
        **_spent(results),
        "command": command(study.name, scale),
    }
    return Record(
        kind="study",
        values=values,
        arrays={**arrays, **correct},
        config=asdict(scale),
        seed=scale.seeds[0],
        seconds=sum(_spent(results).values()),
    )


def _correct_images(plan: Plan, results: Results) -> dict[str, np.ndarray]:
    """The test images that every run got right, as ``correct/<training>``. (seeds, images)

    A training whose runs kept no predictions is left out.
    """
    correct = {key: results.sample(CellSpec(t)) for key, (t, _) in plan.wanted().items()}
    return {
        f"correct/{k}": rows.astype(np.uint8) for k, rows in correct.items() if rows is not None
    }


def kinds_of(plan: Plan) -> dict[str, str]:
    """Each network's kind, by which pages colour it."""
    return {t.model: _kind_of(t.model) for t, _ in plan.wanted().values()}


@cache
def _kind_of(model: str) -> str:
    """The kind of a network, built without memory."""
    with torch.device("meta"):
        return built_in(create_model(model))[0]


def _spent(results: Results) -> dict[str, float]:
    """Seconds of one core behind the numbers; shared runs are counted in every study."""
    records = [(name, r) for (_, name), rs in results.records.items() for r in rs if r]
    training = sum(r.values["seconds"] for name, r in records if name == FINAL.key)
    reading = sum(r.seconds or 0.0 for _, r in records)
    return {"training_seconds": training, "reading_seconds": reading}


def command(name: str, scale: Scale, extra: Sequence[str] = ()) -> str:
    """Return the command that runs the study again."""
    usual = SCALES[scale.name].recipe
    options = [
        ("--scale", scale.name),
        ("--data", scale.data),
        ("--seeds", scale.seeds),
        ("--epochs", scale.epochs),
        ("--image-size", scale.image_size),
        ("--recipe", scale.recipe if scale.recipe != usual else None),
    ]
    return " ".join([command_line(["vitascope", "study", name], options), *extra])
