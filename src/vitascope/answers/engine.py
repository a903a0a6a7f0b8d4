"""Where the runs that a request wants are made: processes of this machine, or SLURM jobs."""

import os
from typing import Any

from vitascope.requests.buildup import Buildup
from vitascope.requests.compare import Compare
from vitascope.requests.study import StudyRequest
from vitascope.settings import made_from


def engine_of(request: StudyRequest) -> Any:
    """Where the runs of a study are made."""
    from vitascope.studies.grid.executor import Engine
    from vitascope.studies.grid.train_command import pairs

    return made_from(
        request,
        Engine,
        kind=request.engine,
        processes=processes_of(request),
        options=pairs(request.slurm, "--slurm"),
        quiet=request.quiet or request.json,
    )


def this_machine(request: Compare | Buildup) -> Any:
    """Runs side by side, in processes of this machine."""
    from vitascope.studies.grid.executor import Engine

    return Engine(processes=processes_of(request), quiet=request.quiet or request.json)


def processes_of(request: Compare | Buildup | StudyRequest) -> int:
    """As many as were asked for, or one per core."""
    if request.processes is not None:
        return request.processes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
