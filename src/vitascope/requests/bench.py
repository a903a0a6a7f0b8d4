"""What ``vitascope bench`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional

from vitascope.requests import fields
from vitascope.settings import Count, Processes, Side, Within

__all__ = ["Bench"]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure speed against peers on this machine.

    Candidates take turns in one process; ratios above 1 mean faster than the peer. Run nothing else
    on the machine meanwhile.

    Examples:
      vitascope bench gpsa
      vitascope bench gpsa --models convit_tiny convit_small --threads 8 --out runs/bench-gpsa
      vitascope bench training
      vitascope bench inspect
      vitascope bench capture
      vitascope bench neighborhood --grids 32 64
      vitascope bench corruptions
      vitascope bench hessian
      vitascope bench throughput --models deit_small convit_small resnet50
    """

    subject: Annotated[
        Literal[
            "capture",
            "corruptions",
            "gpsa",
            "hessian",
            "inspect",
            "neighborhood",
            "throughput",
            "training",
        ],
        Positional,
    ]
    """What to measure."""
    models: tuple[str, ...] | None = None
    """gpsa: our ConViTs to time at 224 px; throughput: any models, the first is what the others are
    compared with. All three sizes for gpsa, deit_tiny convit_tiny for throughput."""
    image_size: Side | None = None
    """throughput: side of the images, in pixels; the model's own when left out."""
    device: fields.Device = None
    grids: tuple[Annotated[int, Within(1, 1024)], ...] | None = None
    """Patches per side of the grids on which one layer is timed; 14 32 64 for gpsa, 32 64 for
    neighborhood."""
    batch_size: Count | None = None
    """Images per batch; 8 for gpsa, 16 for hessian, 64 for inspect, 1 for neighborhood, 128 for
    training and throughput, 4 for capture, and for corruptions at 224 px."""
    rounds: Count | None = None
    """Turns of each candidate; 15 for capture, 11 for gpsa, 7 for neighborhood, 3 for hessian, 5
    for the others."""
    threads: Processes | None = None
    """Threads of torch; one when left out, for gpsa one and two."""
    out: Path | None = None
    """Write a record, OUT.json."""
    json: fields.Json = False
    quiet: fields.Quiet = False
