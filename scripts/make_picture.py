"""The pictures of README and site: the first figure of a page, or a comparison with its explorer.

    python scripts/make_picture.py FOLDER/report.html docs/figures/instruments/photographs.jpg
    python scripts/make_picture.py RUNS/report.html FILE.png IMAGE LAYER HEAD ROW COLUMN

IMAGE, LAYER, HEAD and the patch's ROW and COLUMN count from 0: the patch that is pointed at. Needs
Chromium and Playwright. The photographs are ImageNet's; the record of their page stands beside
those of the instruments' figures.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

WIDTH, GRID = 1500, 8


@contextmanager
def opened(page: Path, width: int) -> Iterator[Page]:
    """The page in a browser that is so wide."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    binary = next(found for name in names if name and (found := shutil.which(name)))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=binary, args=["--disable-gpu"])
        tab = browser.new_page(viewport={"width": width, "height": 1000})
        tab.goto(page.resolve().as_uri())
        yield tab
        browser.close()


def first_figure(page: Path) -> bytes:
    """The drawings of the page's first figure, without the words below them."""
    with opened(page, WIDTH) as tab:
        return tab.locator("figure .row").first.screenshot()


def pointing_at(page: Path, choices: tuple[int, ...]) -> bytes:
    """The top of the page and its explorer, as PNG."""
    image, layer, head, row, column = choices
    with opened(page, WIDTH) as tab:
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
        return tab.screenshot(full_page=True, clip=clip)


if __name__ == "__main__":
    source, target, *rest = sys.argv[1:]
    if rest:
        drawn = pointing_at(Path(source), tuple(map(int, rest)))
        picture = Image.open(BytesIO(drawn)).convert("RGB")
        picture.quantize(192, dither=Image.Dither.NONE).save(target, optimize=True)
    else:
        picture = Image.open(BytesIO(first_figure(Path(source)))).convert("RGB")
        picture.save(target, quality=60, optimize=True)
