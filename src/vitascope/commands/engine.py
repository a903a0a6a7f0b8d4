"""Where runs are made: in processes of this machine, or as SLURM jobs."""

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from vitascope.errors import UserError
from vitascope.runs.options import EngineOptions

if TYPE_CHECKING:
    from vitascope.commands.buildup import Buildup
    from vitascope.commands.compare import Compare
    from vitascope.commands.study import StudyOptions
    from vitascope.commands.train import Train


def engine_of(options: "Compare | StudyOptions | Train") -> Any:
    """Return the engine of a command: this machine or SLURM.

    Raises:
        UserError: If options of a cluster are given without one.
    """
    from vitascope.runs.executor import Engine

    quiet = options.quiet or options.json
    if options.engine == "local":
        for each in fields(EngineOptions):
            if getattr(options, each.name) != each.default:
                raise UserError(f"--{each.name} is for a cluster; give --engine slurm too")
        return Engine(processes=processes_of(options), quiet=quiet)
    return Engine(
        engine=options.engine,
        gpus=options.gpus,
        nodes=options.nodes,
        hours=options.hours,
        slurm=options.slurm,
        cancel=options.cancel,
        quiet=quiet,
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
