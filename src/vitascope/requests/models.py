"""What ``vitascope models`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope.requests import fields
from vitascope.settings import Count

__all__ = ["Models"]


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the models, count their parameters and FLOPs, or time them.

    Examples:
      vitascope models                      the names of ours
      vitascope models 'swin*'              ours and timm's that match
      vitascope models --table              Table 1 of the ConViT paper, counted
      vitascope models --speed deit_small convit_small resnet50    images a second, by turns
      vitascope models --attention-map a.png   where positional heads look before training
    """

    pattern: Annotated[str | None, Positional, arg(metavar="PATTERN")] = None
    """Wildcard for the names; only ours when left out."""
    table: bool = False
    """Parameters and multiply-adds beside the paper's; with a pattern, of the models that match."""
    attention_map: Path | None = None
    """Draw where four heads look before training (ConViT, Fig. 3) to this file (.png, .svg or
    .pdf)."""
    speed: tuple[str, ...] | None = None
    """Time these models in inference and in training, as Table 1 of the ConViT paper does. They
    take turns, and are compared with the first. Run nothing else on the machine meanwhile."""
    batch_size: Count = 128
    """--speed: images per batch."""
    rounds: Count = 5
    """--speed: turns of each model."""
    image_size: fields.ModelSize = None
    device: fields.Device = None
    threads: fields.Threads = None
    out: Path | None = None
    """Also write the table as a record, OUT.json."""
    json: fields.Json = False
    quiet: fields.Quiet = False
