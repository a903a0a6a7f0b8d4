"""The example of docs/instruments/pca.md: patch features of SAM 2's encoder on free photographs.

    python scripts/make_patch_colours.py sam2_hiera_tiny.safetensors

Draws docs/figures/instruments/pca.png and writes the record of its numbers. The page
docs/what-sam2-looks-at.md says where the weights come from. It takes two minutes on one core.
"""

import sys
from dataclasses import replace
from pathlib import Path

from make_figures import OUT, write
from make_photographs import squares

import vitascope
from vitascope.figure import Style
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS
from vitascope.record import Record, load
from vitascope.report.figures.paper_renderer import draw_figure

NAME = "sam2_hiera_tiny"
SIDE = 1024  # pixels, as SAM 2 takes them


def measured(weights: Path) -> Record:
    """The record, without the place of the weights on this machine."""
    found = vitascope.inspect(
        f"{NAME}@{weights}", data=squares(SIDE), measures=["pca"], image_size=SIDE, batch_size=2
    )
    config = {**found.record.config, "subject": NAME, "name": NAME, "data": "six photographs"}
    command = f"python scripts/make_patch_colours.py {weights.name}"
    return replace(found.record, config=config, made={**found.record.made, "command": command})


def main(words: list[str]) -> None:
    """Measure if weights are given, and draw."""
    if words:
        measured(Path(words[0])).save(OUT / "records" / "pca")
    one = ModelRecord(
        label="SAM 2's Hiera-Tiny", style=Style(), record=load(OUT / "records" / "pca")
    )
    write(OUT / "pca.png", draw_figure(INSTRUMENTS["pca"].figure([one])))


if __name__ == "__main__":
    main(sys.argv[1:])
