"""Where the cells of a study run: side by side on this machine, or as jobs of a SLURM cluster.

The cluster's work is done by submitit (https://github.com/facebookincubator/submitit): it writes
the batch script, submits an array of jobs and waits for them. A cell that needs several GPUs is a
``torchrun`` of ``vitascope train``; its readings follow in the same job, on the first GPU. A job
that is cut off by its time limit is submitted again by the same command, and goes on.
"""

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from vitascope.errors import UserError
from vitascope.settings import Processes, Within, check
from vitascope.studies.grid.processes import side_by_side
from vitascope.studies.grid.study_cells import command, folder_of, images_of, recipe_of, run_cell
from vitascope.studies.papers.plan import Reading, Training

__all__ = ["Engine", "run_cells"]

Wanted = tuple[Training, Sequence[Reading], int]  # of one seed


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Which engine, and what it is told."""

    kind: Literal["local", "slurm"] = "local"
    processes: Processes = 1  # cells at a time on this machine
    gpus: Annotated[int, Within(0, 1024)] = 8  # of one cell on a cluster
    nodes: Processes = 1
    hours: Annotated[float, Within(0, open_low=True)] = 72.0  # of one cell on a cluster, at most
    options: dict[str, Any] = field(default_factory=dict)  # submitit's: slurm_partition, ...
    cluster: str | None = None  # submitit's; "debug" and "local" run here
    quiet: bool = False

    def __post_init__(self) -> None:
        check(self)

    def launcher(self) -> str:
        """What stands before ``vitascope train`` on several GPUs."""
        if self.gpus * self.nodes <= 1:
            return ""
        many = f"--nnodes={self.nodes} --rdzv-backend=c10d --rdzv-endpoint=$HEAD:29500 "
        return f"torchrun {many if self.nodes > 1 else ''}--nproc-per-node={self.gpus} --no-python"


def run_cells(wanted: Sequence[Wanted], out: Path, engine: Engine) -> None:
    """Train and read all cells; teachers of others first.

    Raises:
        UserError: If a cell failed; it names the cell.
    """
    for wave in waves(wanted):
        jobs: list[dict[str, Any]] = [
            {"training": training, "readings": tuple(readings), "seed": seed, "study": Path(out),
             "out": folder_of(training, seed, out)}
            for training, readings, seed in wave
        ]  # fmt: skip
        if engine.kind == "slurm":
            _submit(jobs, Path(out), engine)
            continue
        todo = [job for job in jobs if not _finished(job)]
        if todo:
            epochs = [_epochs(job["training"]) for job in todo]
            side_by_side(
                run_cell, todo, processes=engine.processes, epochs=epochs, quiet=engine.quiet
            )


def waves(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """Cells in the order of who teaches whom; a teacher nobody asked for is added."""
    cells = {
        (training.key, seed): (training, list(readings)) for training, readings, seed in wanted
    }
    for training, _, seed in wanted:
        teacher = training.teacher
        if isinstance(teacher, Training):
            cells.setdefault((teacher.key, seed), (teacher, []))
    found: dict[int, list[Wanted]] = {}
    for (_, seed), (training, readings) in cells.items():
        late = int(isinstance(training.teacher, Training))
        found.setdefault(late, []).append((training, readings, seed))
    return [found[level] for level in sorted(found)]


def _finished(job: dict[str, Any]) -> bool:
    paths = [job["out"] / "readings" / f"{reading.key}.json" for reading in job["readings"]]
    return (job["out"] / "record.json").exists() and all(path.exists() for path in paths)


def _epochs(training: Training) -> int:
    dataset = images_of(training.data, training.image_size)
    return recipe_of(training, dataset).total_epochs


def _submit(jobs: Sequence[dict[str, Any]], out: Path, engine: Engine) -> None:
    """One array of jobs, and wait for it."""
    try:
        import submitit
    except ImportError:
        raise UserError(
            "the slurm engine needs submitit: pip install 'vitascope[cluster]'"
        ) from None
    todo = [job for job in jobs if not _finished(job)]
    if not todo:
        return
    try:
        executor = submitit.AutoExecutor(folder=out / "slurm", cluster=engine.cluster or "slurm")
    except RuntimeError as error:
        raise UserError(f"no SLURM here: {error}; use --engine local") from None
    executor.update_parameters(
        timeout_min=round(60 * engine.hours), nodes=engine.nodes, tasks_per_node=1,
        gpus_per_node=engine.gpus, name="vitascope", **engine.options)  # fmt: skip
    launcher = engine.launcher()
    running = executor.map_array(_launched, todo, [launcher] * len(todo))
    failed = []
    for job, task in zip(todo, running, strict=True):
        try:
            task.results()  # one a node
        except Exception as error:  # submitit wraps whatever happened there
            failed.append(f"{job['out']}: {str(error).strip().splitlines()[-1]}")
    if failed:
        raise UserError(
            f"{len(failed)} of {len(todo)} cells failed, first {failed[0]}; logs are in "
            f"{out / 'slurm'}; the same command goes on"
        )


def _launched(job: dict[str, Any], launcher: str) -> None:
    """On a node: the training on all its GPUs, then the readings."""
    if launcher and not (job["out"] / "record.json").exists():
        training = job["training"]
        dataset = images_of(training.data, training.image_size)
        line = command(training, job["seed"], job["study"], dataset, launcher)
        head = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "localhost")
        words = shlex.split(line.replace("$HEAD", head))
        subprocess.run(words, check=True)
    if os.environ.get("SLURM_PROCID", "0") == "0":  # of several nodes the first reads
        run_cell(**job)
