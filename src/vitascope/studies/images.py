"""A look at the images of a source: `vitascope data`, and its short form before a comparison."""

import warnings
from pathlib import Path

from vitascope.data import load
from vitascope.data.sources.load import described
from vitascope.data.survey import SIDE, Survey, file_sizes, survey

__all__ = ["described", "sizes_of", "surveyed"]


def surveyed(source: str) -> Survey:
    """What the images of a source are like; loaded small, whatever their size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # broken images: the survey names them
        return survey(load(source, image_size=SIDE))


def sizes_of(source: str) -> str | None:
    """The sizes of files in a folder, in words; None for other sources."""
    return file_sizes(source) if Path(source).expanduser().is_dir() else None
