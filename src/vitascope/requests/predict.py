"""What ``vitascope predict`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope.requests import fields
from vitascope.settings import Count

__all__ = ["Predict"]


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Classify image files with a trained run.

    Writes one line per file: file,label,probability, then the next of --top. Files that cannot be
    read are named and left out.

    Examples:
      vitascope predict runs/a new/ --out answers.csv
      vitascope predict runs/a one.jpg two.jpg --top 3
      vitascope predict runs/a new/ --temperature robust/calibration.json --out answers.csv
    """

    run: Annotated[Path, Positional, arg(metavar="RUN", help="Folder of a run or of a comparison.")]
    files: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FILES", help="Images, or folders of images.")
    ]
    out: Path | None = None
    """Write the answers to this file; printed when left out."""
    top: Count = 1
    """How many classes to give for each file, the most probable first."""
    temperature: str | None = None
    """Divide the logits by it: a number, or the calibration.json of `vitascope evaluate RUN --on
    calibration --out FOLDER`."""
    batch_size: Count = 64
    """Images at a time."""
    device: fields.Device = None
    threads: fields.Threads = None
    json: fields.Json = False
    quiet: fields.Quiet = False
