"""Where runs are made: in processes of this machine, or as SLURM jobs."""

import os
from typing import TYPE_CHECKING, Any

from vitascope.settings import made_from

if TYPE_CHECKING:
    from vitascope.commands.buildup import Buildup
    from vitascope.commands.compare import Compare
    from vitascope.commands.study import StudyOptions


def engine_of(options: "StudyOptions") -> Any:
    """Return the engine that runs a study: this machine or SLURM."""
    from vitascope.runs.executor import Engine
    from vitascope.runs.train_model import pairs

    return made_from(
        options,
        Engine,
        kind=options.engine,
        processes=processes_of(options),
        options=pairs(options.slurm, "--slurm"),
        quiet=options.quiet or options.json,
    )


def this_machine(options: "Compare | Buildup") -> Any:
    """Runs side by side, in processes of this machine."""
    from vitascope.runs.executor import Engine

    return Engine(processes=processes_of(options), quiet=options.quiet or options.json)


def processes_of(options: "Compare | Buildup | StudyOptions") -> int:
    """Return the number of processes: as given, or one per core."""
    if options.processes is not None:
        return options.processes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
