"""The README's picture: a comparison's page as a visitor meets it, pointing at one patch.

python docs/make_picture.py RUNS/report.html docs/figures/report.png [IMAGE LAYER HEAD ROW COLUMN]

IMAGE, LAYER, HEAD and the patch's ROW and COLUMN count from 0. Needs Chromium and Playwright.
"""

import os
import shutil
import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH, GRID = 1500, 8


def shoot(page: Path, choices: tuple[int, ...]) -> bytes:
    """The top of the page and its explorer, as PNG."""
    image, layer, head, row, column = choices
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    binary = next(found for name in names if name and (found := shutil.which(name)))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=binary, args=["--disable-gpu"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": 1000})
        tab.goto(page.resolve().as_uri())
        for name, number in (("ex-image", image), ("ex-layer", layer), ("ex-head", head)):
            tab.locator(f"input[name={name}]").nth(number).check(force=True)
        box = tab.locator("#ex-picture").bounding_box()
        assert box is not None
        tab.mouse.click(
            box["x"] + (column + 0.5) / GRID * box["width"],
            box["y"] + (row + 0.5) / GRID * box["height"],
        )
        tab.wait_for_timeout(500)
        end = tab.locator(".ex-card").last.bounding_box()
        assert end is not None
        height = tab.evaluate("window.scrollY") + end["y"] + end["height"] + 30
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
        drawn = tab.screenshot(full_page=True, clip=clip)
        browser.close()
    return drawn


if __name__ == "__main__":
    source, target, *rest = sys.argv[1:]
    chosen = tuple(map(int, rest)) if rest else (1, 2, 1, 5, 2)
    picture = Image.open(BytesIO(shoot(Path(source), chosen))).convert("RGB")
    picture.quantize(192, dither=Image.Dither.NONE).save(target, optimize=True)
