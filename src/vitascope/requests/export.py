"""What ``vitascope export`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope.requests import fields

__all__ = ["Export"]


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained run as one file for other programs, or as a folder for the Hugging Face hub.

    The file says in its metadata how images are prepared (size, mean, std, interpolation, crop) and
    what the classes are. It is read back and must give the logits of the run.

    Examples:
      vitascope export runs/a --to onnx --out a.onnx
      vitascope export runs/a --to safetensors
      vitascope export runs/a --to hub --out a-hub
    """

    run: Annotated[Path, Positional, arg(metavar="RUN", help="Folder of a run or of a comparison.")]
    to: Literal["onnx", "safetensors", "hub"] = "onnx"
    """The format; hub is a folder with weights, config.json and a model card."""
    out: Path | None = None
    """Where to; RUN/export.onnx, RUN/export.safetensors or RUN/hub when left out."""
    json: fields.Json = False
    quiet: fields.Quiet = False
