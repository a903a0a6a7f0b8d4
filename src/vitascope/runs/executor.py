"""Run a grid of trainings: side by side on this machine, or as jobs of a SLURM cluster.

The cluster's work is done by submitit (https://github.com/facebookincubator/submitit): it writes
the batch script, submits an array of jobs and waits for them. A run that needs several GPUs is a
``torchrun`` of ``vitascope train``; its readings follow in the same job, on the first GPU. A job
that hits its time limit is submitted again by the same command, and resumes.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from vitascope.errors import UserError
from vitascope.processes import side_by_side
from vitascope.runs.cache import (
    command,
    folder_of,
    images_of,
    is_finished,
    train_and_read,
)
from vitascope.runs.spec import Reading, Training
from vitascope.settings import Processes, Within, check

FIRST_PORT, NUM_PORTS = 10_000, 20_000  # below the ports that systems give out by themselves

Wanted = tuple[Training, Sequence[Reading], int]  # of one seed


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Which engine, and its options."""

    kind: Literal["local", "slurm"] = "local"
    processes: Processes = 1  # runs at a time on this machine
    gpus: Annotated[int, Within(0, 1024)] = 8  # of one run on a cluster
    nodes: Processes = 1
    # of one run on a cluster, at most
    hours: Annotated[float, Within(0, open_low=True)] = 72.0
    options: dict[str, Any] = field(default_factory=dict)  # submitit's: slurm_partition, ...
    cluster: str | None = None  # submitit's; "debug" and "local" run here
    quiet: bool = False

    def __post_init__(self) -> None:
        check(self)

    def launcher(self, program: str = "torchrun") -> str:
        """The launcher of ``vitascope train`` on several GPUs; empty for one.

        Args:
            program: Name of the launcher. Commands that are printed say ``torchrun``; jobs use this
                interpreter, because their environment need not be activated.
        """
        if self.gpus * self.nodes <= 1:
            return ""
        meet = "--rdzv-backend=c10d --rdzv-id=$ID --rdzv-endpoint=$HEAD:$PORT "
        nodes = f"--nnodes={self.nodes} {meet}" if self.nodes > 1 else ""
        return f"{program} {nodes}--nproc-per-node={self.gpus} -m"


def run_all(
    wanted: Sequence[Wanted],
    out: Path,
    engine: Engine,
    cost: Callable[[Training], float] = lambda training: 1.0,
    overhead: Callable[[Training], float] = lambda training: 0.0,
    what: str = "training",
) -> None:
    """Make all missing runs and readings; teachers before their students.

    Args:
        wanted: The runs.
        out: Folder for them.
        engine: Where they are made.
        cost: Of one epoch of a training, in any unit, for the progress and the time left; the
            most expensive runs begin.
        overhead: Cost of a run besides its epochs, in the same unit.
        what: The work, in a word, for the progress.

    Raises:
        UserError: If a run failed; it names the run.
    """
    for wave in waves(wanted):
        jobs: list[dict[str, Any]] = [
            {
                "training": training,
                "readings": tuple(readings),
                "seed": seed,
                "grid": Path(out),
                "out": folder_of(training, seed, out),
            }
            for training, readings, seed in wave
            if not is_finished(training, readings, seed, out)
        ]
        if not jobs:
            continue
        if engine.kind == "slurm":
            _submit(jobs, Path(out), engine)
            continue

        def epochs_of(job: dict[str, Any]) -> int:
            return int(job["training"].full_recipe.total_epochs)

        jobs.sort(key=lambda job: -epochs_of(job) * cost(job["training"]))  # none is left alone
        side_by_side(
            train_and_read,
            jobs,
            processes=engine.processes,
            epochs=[epochs_of(job) for job in jobs],
            overhead=[overhead(job["training"]) for job in jobs],
            weights=[cost(job["training"]) for job in jobs],
            what=what,
            quiet=engine.quiet,
        )


def waves(wanted: Sequence[Wanted]) -> list[list[Wanted]]:
    """Runs with teachers before their students; a teacher that is missing is added."""
    runs = {(training.key, seed): (training, list(readings)) for training, readings, seed in wanted}
    for training, _, seed in wanted:
        teacher = training.teacher
        if isinstance(teacher, Training):
            runs.setdefault((teacher.key, seed), (teacher, []))
    by_level: dict[int, list[Wanted]] = {}
    for (_, seed), (training, readings) in runs.items():
        late = int(isinstance(training.teacher, Training))
        by_level.setdefault(late, []).append((training, readings, seed))
    return [by_level[level] for level in sorted(by_level)]


def _submit(jobs: Sequence[dict[str, Any]], out: Path, engine: Engine) -> None:
    """One array of jobs, and wait for it."""
    try:
        import submitit
    except ImportError:
        raise UserError(
            "the slurm engine needs submitit: pip install 'vitascope[cluster]'"
        ) from None
    try:
        executor = submitit.AutoExecutor(folder=out / "slurm", cluster=engine.cluster or "slurm")
    except RuntimeError as error:
        raise UserError(f"no SLURM here: {error}; use --engine local") from None
    executor.update_parameters(
        timeout_min=round(60 * engine.hours),
        nodes=engine.nodes,
        tasks_per_node=1,
        gpus_per_node=engine.gpus,
        name="vitascope",
        **engine.options,
    )
    launcher = engine.launcher(f"{shlex.quote(sys.executable)} -m torch.distributed.run")
    running = executor.map_array(_launched, jobs, [launcher] * len(jobs))
    failed = []
    for job, task in zip(jobs, running, strict=True):
        try:
            task.results()  # one a node
        except Exception as error:  # submitit wraps whatever happened there
            failed.append(f"{job['out']}: {str(error).strip().splitlines()[-1]}")
    if failed:
        raise UserError(
            f"{len(failed)} of {len(jobs)} runs failed, first {failed[0]}; logs are in "
            f"{out / 'slurm'}; run the same command to continue"
        )


def meeting_point(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the id, host and port at which the nodes of a job meet.

    Port and id come from the job's id, so that jobs that share a node do not meet each other.

    >>> meeting_point({"SLURM_JOB_ID": "1234", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"})
    {'$ID': '1234', '$HEAD': '10.0.0.7', '$PORT': '11234'}
    """
    job = environment.get("SLURM_JOB_ID", "0")
    port = FIRST_PORT + int(job) % NUM_PORTS
    head = environment.get("SLURM_LAUNCH_NODE_IPADDR", "localhost")
    return {"$ID": job, "$HEAD": head, "$PORT": str(port)}


def _launched(job: dict[str, Any], launcher: str) -> None:
    """Train on all GPUs of a node, then measure."""
    if launcher and not (job["out"] / "record.json").exists():
        training = job["training"]
        line = command(training, job["seed"], job["grid"], images_of(training), launcher)
        for name, value in meeting_point(os.environ).items():
            line = line.replace(name, value)
        subprocess.run(shlex.split(line), check=True)
    if os.environ.get("SLURM_PROCID", "0") == "0":  # of several nodes the first reads
        train_and_read(**job)
