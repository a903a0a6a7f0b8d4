"""What ``vitascope study NAME`` can be asked, for the studies of the papers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from vitascope.requests import fields
from vitascope.settings import Count, Processes, Seed, Within

__all__ = ["StudyRequest"]


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """Reproduce a paper's tables and figures, at the size of a laptop or of the paper.

    The same table at both scales, with the paper's numbers beside ours, the spread over seeds, and
    a verdict on every claim: agrees, disagrees, undecided, or not testable here. If it is
    interrupted, the same command continues; finished runs are used again, also by other studies
    in the same folder.
    vitascope study --list names all studies; a table or figure names one too: convit-table-3.

    Examples:
      vitascope study sample-efficiency --scale laptop
      vitascope study convit-table-3 --data photos/ --image-size 32 --seeds 0 1 2
      vitascope study sample-efficiency --scale paper --data imagenet:/data/imagenet --plan
      vitascope study fine-grid --scale desk --data cifar10:/data/cifar10 --plan
      vitascope study fine-grid --seeds 0 1 2 3 4 --records results/fine-grid.json
      vitascope study --all --scale laptop --out runs/studies
      vitascope study --all --scale paper --data imagenet:/data/imagenet cifar100:/data/cifar100 \\
          --engine slurm --gpus 8 --slurm slurm_partition=gpu
    """

    scale: Literal["laptop", "desk", "paper", "smoke"] = "laptop"
    """laptop: micro models, minutes; desk: mini models on real images, hours; paper: its models,
    images and epochs; smoke: seconds."""
    data: tuple[str, ...] = ()
    """Images, as for `vitascope train`, several if studies need different ones; laptop: digits."""
    image_size: fields.ImageSize = None
    recipe: str | None = None
    """Another recipe than the scale's."""
    epochs: Count | None = None
    """Epochs of every run; the scale's when left out."""
    seeds: tuple[Seed, ...] = ()
    """One run per seed; the scale's when left out."""
    records: tuple[Path, ...] = ()
    """Records of earlier studies, or folders of them, so that seeds are added: seeds that one of
    the same study and scale has are not trained again, nor, where accuracies alone are asked for,
    runs whose answers any of them kept."""
    out: Path = Path("runs/studies")
    """Folder for runs, records and figures."""
    engine: Literal["local", "slurm"] = "local"
    """Run on this machine, or as SLURM jobs (submitit)."""
    processes: fields.RunsAtATime = None
    gpus: Annotated[int, Within(0, 1024)] = 8
    """SLURM: GPUs per node and run."""
    nodes: Processes = 1
    """SLURM: nodes per run."""
    hours: Annotated[float, Within(0, open_low=True)] = 72.0
    """SLURM: time limit of a run."""
    slurm: tuple[str, ...] = ()
    """SLURM: more options of submitit, as NAME=VALUE: slurm_partition=gpu."""
    plan: bool = False
    """Print what would be run and what it costs (paper: GPU-hours and memory, computed; desk:
    core-hours, from timed steps), and stop."""
    keep: Path | None = None
    """Copy what is worth keeping of the finished runs into this folder: records, predictions,
    metrics, readings; no weights."""
    json: fields.Json = False
    quiet: fields.Quiet = False
