"""Options of the commands whose runs a cluster can make; torch is not needed to read them."""

from dataclasses import dataclass
from typing import Annotated, Literal

from vitascope.settings import Processes, Within


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Options of commands that train: on this machine, or as SLURM jobs."""

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
