"""What ``vitascope models`` can be asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope.requests import fields

__all__ = ["Models"]


@dataclass(frozen=True, kw_only=True)
class Models:
    """List the models, or count their parameters and FLOPs.

    Examples:
      vitascope models                      the names of ours
      vitascope models 'swin*'              ours and timm's that match
      vitascope models --table              Table 1 of the ConViT paper, counted
      vitascope models --attention-map a.png   where positional heads look before training
    """

    pattern: Annotated[str | None, Positional, arg(metavar="PATTERN")] = None
    """Wildcard for the names; only ours when left out."""
    table: bool = False
    """Parameters and multiply-adds beside the paper's; with a pattern, of the models that match."""
    attention_map: Path | None = None
    """Draw where four heads look before training (ConViT, Fig. 3) to this file (.png, .svg or
    .pdf)."""
    out: Path | None = None
    """Also write the table as a record, OUT.json."""
    json: fields.Json = False
    quiet: fields.Quiet = False
