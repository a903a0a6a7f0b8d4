"""Runs that the records of earlier studies have, so that nobody has to train them again.

With them seeds are added to a study whose runs are gone, or were made elsewhere. A study's record
keeps two things of its runs:

    which test images a run got right    (``correct/<training>``, a row per seed): enough for
                                         accuracies, also in another study of the same trainings
    the number of every seed             (the cells of its tables): enough for all numbers and
                                         claims of the same study at the same scale

What lies behind other numbers than accuracies (eigenvalues of every mini-batch, the loss of every
image) is not kept: a claim about them is then judged by the spread over seeds alone, and figures
are drawn of the seeds whose readings are there.

The name of a training covers model, images' source, recipe and teacher; that the test images are
the same is not in it, and only their number can be checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vitascope import record
from vitascope.errors import UserError, listed
from vitascope.papers.plan import TOP1, CellSpec, Plan, Training
from vitascope.papers.scale import Scale
from vitascope.record import Record, plain
from vitascope.runs.cache import images_of


@dataclass(frozen=True, kw_only=True)
class EarlierRun:
    """One run, as far as an earlier study's record has it."""

    final: Record  # top-1, and the images it got right
    source: str  # the file
    study: Record

    def provenance(self) -> dict[str, Any]:
        """The record that it comes from."""
        made = self.study.made or {}
        return {"record": self.source, **{name: made.get(name) for name in ("time", "commit")}}


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """The runs of a plan that earlier records have."""

    runs: Mapping[tuple[str, int], EarlierRun]  # by training and seed
    studies: Mapping[int, Record]  # by seed: the same study, with every number of that seed

    def numbers(self, plan: Plan, seeds: Sequence[int]) -> dict[CellSpec, dict[int, float | None]]:
        """Values taken from earlier study records, by cell and index of the seed."""
        numbers: dict[CellSpec, dict[int, float | None]] = {}
        for index, seed in enumerate(seeds):
            if seed in self.studies:
                cells = _cells(self.studies[seed], plan)
                at = self.studies[seed].values["seeds"].index(seed)
                for cell, values in (cells or {}).items():
                    if not is_final_top1(cell):  # has its images, of which it is the mean
                        numbers.setdefault(cell, {})[index] = values[at] if values else None
        return numbers


def is_final_top1(cell: CellSpec) -> bool:
    """Return whether a number is the final top-1, which the images that a run got right give."""
    return cell.measurement == TOP1


def of_accuracy_alone(plan: Plan) -> set[str]:
    """Keys of the trainings of which a plan wants the final top-1 and nothing else."""
    own = [cell for cell in plan.cells() if not cell.parts]
    more = {key for cell in own if not is_final_top1(cell) for key in cell.runs}
    return set(plan.wanted()) - more - {training.key for training, _ in plan.for_figures}


def _cells(study: Record, plan: Plan) -> dict[CellSpec, list[float]] | None:
    """The numbers of a record for every cell of a plan, in the order of its seeds or none at all.

    None if it has other cells, or one of which some seeds alone have a number.
    """
    stored = {table["name"]: table for table in study.values.get("tables") or ()}
    num_seeds = len(study.values.get("seeds") or ())
    numbers: dict[CellSpec, list[float]] = {}
    for table in plan.tables:
        if all(cell.parts for cell in table.filled.values()):
            continue  # follows from the others
        earlier = stored.get(table.name, {})
        rows = earlier.get("rows") or ()
        same = earlier.get("columns") == table.columns
        if not same or [row["label"] for row in rows] != table.rows:
            return None
        for row in rows:
            for stored_cell, cell in zip(row["cells"], table.row(row["label"]), strict=True):
                if len(stored_cell["ours"]) not in (0, num_seeds):
                    return None
                if cell is not None:
                    numbers[cell] = stored_cell["ours"]
    return numbers


def _is_the_same(study: Record, name: str, scale: Scale, plan: Plan) -> bool:
    """Return whether a record is of this study at this scale and has every cell."""
    wanted, given = plain(asdict(scale)), dict(study.config)
    wanted.pop("seeds")
    given.pop("seeds", None)
    trainings = all(f"correct/{key}" in study.arrays for key in plan.wanted())
    same = study.values.get("study") == name and given == wanted
    return same and trainings and _cells(study, plan) is not None


def earlier_runs(paths: Sequence[str | Path], name: str, scale: Scale, plan: Plan) -> Earlier:
    """Find the runs of a plan in earlier records; the first record to have one counts.

    Args:
        paths: Records of studies, or folders of them.
        name: Name of the study that is to be answered.
        scale: Its scale.
        plan: Its plan.

    Raises:
        UserError: If a file is no study's record or has other test images, or if none of the files
            has enough of any of the runs.
    """
    runs: dict[tuple[str, int], EarlierRun] = {}
    studies: dict[int, Record] = {}
    alone = of_accuracy_alone(plan)
    for path, study in _studies(paths):
        whole = _is_the_same(study, name, scale, plan)
        if whole:
            studies = {**dict.fromkeys(study.values.get("seeds") or [], study), **studies}
        for key, (training, _) in sorted(plan.wanted().items()):
            if f"correct/{key}" in study.arrays and (whole or key in alone):
                for each, run in _runs_of(training, path, study, whole).items():
                    runs.setdefault(each, run)
    if paths and not runs:
        why = (
            "kept the answers of its runs"
            if alone
            else "is of this study at this scale, and more than accuracies is read"
        )
        raise UserError(
            f"of {listed(list(map(str, paths)))} none {why} ({listed(sorted(plan.wanted()))}); "
            "leave --records out to train them"
        )
    return Earlier(runs=runs, studies=studies)


def _runs_of(
    training: Training, path: Path, study: Record, whole: bool
) -> dict[tuple[str, int], EarlierRun]:
    """The runs of one training, seed by seed; ``whole`` if all their measurements are there."""
    seeds = study.values.get("seeds") or []
    correct = study.arrays[f"correct/{training.key}"]
    tests = len(images_of(training).test)
    if correct.shape != (len(seeds), tests):
        raise UserError(
            f"{path} has {' x '.join(map(str, correct.shape))} answers of {len(seeds)} seeds "
            f"and {training.data} {tests} test images; give records of the same images"
        )
    training_seconds, reading_seconds = (
        float(study.values.get(spent) or 0.0) / (study.values.get("num_runs") or 1)
        for spent in ("training_seconds", "reading_seconds")
    )
    runs = {}
    for seed, row in zip(seeds, correct, strict=True):
        values = {"top1": float(row.mean()), "num_test": tests, "seconds": training_seconds}
        final = Record(
            kind="final",
            values=values,
            arrays={"correct": row},
            seed=seed,
            seconds=reading_seconds if whole else None,
        )
        runs[training.key, seed] = EarlierRun(final=final, source=path.name, study=study)
    return runs


def _studies(paths: Sequence[str | Path]) -> Iterator[tuple[Path, Record]]:
    """The records of studies, of folders those in them; other files there are passed over."""
    for path in map(Path, paths):
        if not path.is_dir():
            study = record.load(path)
            if study.kind != "study":
                raise UserError(f"{path} is a record of a {study.kind!r}, not of a study")
            yield path, study
            continue
        records = []
        for file in sorted(path.glob("*.json")):
            with suppress(UserError):
                records.append((file, record.load(file)))
        studies = [(file, each) for file, each in records if each.kind == "study"]
        if not studies:
            raise UserError(f"{path} has no record of a study (*.json)")
        yield from studies
