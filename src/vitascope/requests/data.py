"""What ``vitascope data`` can be asked."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope.requests import fields

__all__ = ["DataRequest"]


@dataclass(frozen=True, kw_only=True)
class DataRequest:
    """Look at images before training: numbers, sizes, balance, unreadable files and duplicates.

    Duplicates inside and across training and test images are found by their pixels and by a
    perceptual hash; the same image with two labels is named.

    Examples:
      vitascope data photos/
      vitascope data csv:labels.csv --json
    """

    source: Annotated[
        str, Positional, arg(metavar="DATA", help="Images, as --data of the other commands.")
    ]
    json: fields.Json = False
    quiet: fields.Quiet = False
