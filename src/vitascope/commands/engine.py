"""Where runs are made: in processes of this machine, or as SLURM jobs."""

import os
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from vitascope.errors import UserError
from vitascope.settings import Processes, Within, fields_of

if TYPE_CHECKING:
    from vitascope.commands.buildup import Buildup
    from vitascope.commands.compare import Compare
    from vitascope.commands.study import StudyOptions
    from vitascope.commands.train import Train


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of the commands whose runs a cluster can make."""

    engine: Literal["local", "slurm"] = "local"
    """Run on this machine, or as SLURM jobs (submitit)."""
    gpus: Annotated[int, Within(0, 1024)] = 8
    """SLURM: GPUs per node and run; 0 for CPUs."""
    nodes: Processes = 1
    """SLURM: nodes per run."""
    hours: Annotated[float, Within(0, open_low=True)] = 72.0
    """SLURM: time limit of a run."""
    slurm: tuple[str, ...] = ()
    """SLURM: more options of submitit, as NAME=VALUE: slurm_partition=gpu."""
    cancel: bool = False
    """SLURM: cancel the jobs when this command is stopped; they continue otherwise."""


def engine_of(options: "Compare | StudyOptions | Train") -> Any:
    """Return the engine of a command: this machine or SLURM.

    Raises:
        UserError: If options of a cluster are given without one.
    """
    from vitascope.runs.executor import Engine
    from vitascope.runs.train_model import pairs

    quiet = options.quiet or options.json
    if options.engine == "local":
        for each in fields(EngineOptions):
            if getattr(options, each.name) != each.default:
                raise UserError(f"--{each.name} is for a cluster; give --engine slurm too")
        return Engine(processes=processes_of(options), quiet=quiet)
    return Engine(
        kind="slurm",
        options=pairs(options.slurm, "--slurm"),
        quiet=quiet,
        **fields_of(options, ("gpus", "nodes", "hours", "cancel")),
    )


def this_machine(options: "Buildup") -> Any:
    """Runs side by side, in processes of this machine."""
    from vitascope.runs.executor import Engine

    return Engine(processes=processes_of(options), quiet=options.quiet or options.json)


def processes_of(options: "Compare | Buildup | StudyOptions | Train") -> int:
    """Return the number of processes: as given, or one per core."""
    given = getattr(options, "processes", None)
    if given is not None:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
