"""Run a grid of trainings: side by side on this machine, or as jobs of a SLURM cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitascope.processes import side_by_side
from vitascope.runs.cache import folder_of, is_finished, train_and_read
from vitascope.runs.options import EngineOptions
from vitascope.runs.slurm import submit
from vitascope.runs.spec import Reading, Training
from vitascope.settings import Processes, check, pairs

Wanted = tuple[Training, Sequence[Reading], int]  # of one seed


@dataclass(frozen=True, kw_only=True)
class Engine(EngineOptions):
    """Engine of runs: where they are made, and how many at a time."""

    processes: Processes = 1  # runs at a time on this machine
    cluster: str | None = None  # submitit's; "debug" and "local" run here
    quiet: bool = False

    def __post_init__(self) -> None:
        check(self)
        pairs(self.slurm, "--slurm")  # refused before anything is made

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
        if engine.engine == "slurm":
            submit(jobs, Path(out), engine)
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
