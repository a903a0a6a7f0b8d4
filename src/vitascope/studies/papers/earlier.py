"""Runs that records of earlier studies tell about, so that nobody has to train them again.

A study's record keeps which test images every run got right (``correct/<training>``, a row per
seed). That is all that a table of accuracies needs: with it seeds can be added to a study whose
runs are gone, or were made elsewhere. A training of which more is read (a curve, an instrument) is
trained again.

The name of a training covers model, images' source, recipe and teacher; that the test images are
the same is not in it, and only their number can be checked.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitascope import record
from vitascope.errors import UserError, listed
from vitascope.record import Record
from vitascope.studies.grid.runs import images_of
from vitascope.studies.papers.plan import FINAL, HITS, Plan


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """One run as an earlier record tells of it."""

    final: Record  # top-1, and the images it got right
    source: str  # the file
    study: Record

    def told(self) -> dict[str, Any]:
        """Where it comes from."""
        made = self.study.made or {}
        return {"record": self.source, **{name: made.get(name) for name in ("time", "commit")}}


def of_accuracy_alone(plan: Plan) -> set[str]:
    """Keys of the trainings of which a plan wants the final top-1 and nothing else."""
    asks = [ask for t in plan.tables for row in t.rows for ask in row.cells if ask is not None]
    more = {key for ask in asks if (ask.reading, ask.key) != (FINAL, "top1") for key in ask.runs}
    more |= {key for ask in asks if ask.sample not in (None, HITS) for key in ask.runs}
    return set(plan.wanted()) - more - {training.key for training, _ in plan.also}


def earlier_runs(paths: Sequence[str | Path], plan: Plan) -> dict[tuple[str, int], EarlierRun]:
    """What records know of the runs of a plan, by training and seed; the first to know one counts.

    Args:
        paths: Records of studies, or folders of them.
        plan: Whose runs are wanted.

    Raises:
        UserError: If a file is no study's record or has other test images, or if none of the files
            tells enough about any of the runs.
    """
    found: dict[tuple[str, int], EarlierRun] = {}
    wanted = {key: plan.wanted()[key][0] for key in sorted(of_accuracy_alone(plan))}
    for path, study in _studies(paths):
        seeds = study.values.get("seeds") or []
        runs = study.values.get("num_runs") or 1
        seconds = float(study.values.get("training_seconds") or 0.0) / runs  # the mean of its own
        for key, training in wanted.items():
            right = study.arrays.get(f"correct/{key}")
            if right is None:
                continue
            tests = len(images_of(training).test)
            if right.shape != (len(seeds), tests):
                raise UserError(
                    f"{path} has {' x '.join(map(str, right.shape))} answers of {len(seeds)} seeds "
                    f"and {training.data} {tests} test images; give records of the same images"
                )
            for seed, row in zip(seeds, right, strict=True):
                values = {"top1": float(row.mean()), "num_test": tests, "seconds": seconds}
                final = Record(kind="final", values=values, arrays={"correct": row}, seed=seed)
                run = EarlierRun(final=final, source=path.name, study=study)
                found.setdefault((key, seed), run)
    if paths and not found:
        why = "kept the answers of its runs" if wanted else "can: more than accuracies is read"
        raise UserError(
            f"of {listed(list(map(str, paths)))} none {why} ({listed(sorted(plan.wanted()))}); "
            "leave --records out to train them"
        )
    return found


def _studies(paths: Sequence[str | Path]) -> Iterator[tuple[Path, Record]]:
    """The records of studies, of folders those in them; other files there are passed over."""
    for path in map(Path, paths):
        if not path.is_dir():
            study = record.load(path)
            if study.kind != "study":
                raise UserError(f"{path} is a record of a {study.kind!r}, not of a study")
            yield path, study
            continue
        found = []
        for file in sorted(path.glob("*.json")):
            with suppress(UserError):
                found.append((file, record.load(file)))
        kept = [pair for pair in found if pair[1].kind == "study"]
        if not kept:
            raise UserError(f"{path} has no record of a study (*.json)")
        yield from kept
