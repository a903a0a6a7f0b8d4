"""The moving picture of README and site, docs/figures/page.webp: a report page, scrolled and used.

    python scripts/make_page_picture.py RUNS/report.html docs/figures/page.webp

RUNS is the folder of a `vitascope compare` on images that may be shown. The picture that is kept
shows `--epochs 25 --fractions 1` on the first 150 training and 50 test images of each class of
Fashion-MNIST (MIT licence), as a folder of class folders. The page is opened in
Chromium, scrolled from its answer to its figures and mistakes, and the pointer moves over an image
of the explorer. Needs Chromium and Playwright.
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

WIDTH, HEIGHT = 1100, 800  # of the page, as it is opened
SHOWN = 820  # pixels across, of the picture
STEPS, STEP, REST = 8, 60, 1800  # frames of a scroll, milliseconds of a frame and of a halt
HALTS = ("text=Most confident mistakes", "#explorer")  # what is scrolled to, where the page has it
PATH = (
    (0.2, 0.3),
    (0.35, 0.35),
    (0.5, 0.4),
    (0.6, 0.5),
    (0.55, 0.65),
    (0.4, 0.7),
)  # of the pointer


@contextmanager
def opened(page: Path, width: int, height: int = HEIGHT) -> Iterator[Page]:
    """The page in a browser of this size."""
    names = (os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome")
    binary = next(found for name in names if name and (found := shutil.which(name)))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=binary, args=["--disable-gpu"])
        tab = browser.new_page(viewport={"width": width, "height": height})
        tab.goto(page.resolve().as_uri())
        yield tab
        browser.close()


def frames(tab: Page) -> Iterator[tuple[bytes, int]]:
    """Screenshots, each with the milliseconds it is shown."""
    at = 0.0
    yield tab.screenshot(), REST
    halts = [tab.locator(halt).first for halt in HALTS if tab.locator(halt).count()]
    for place in halts:
        box = place.bounding_box()
        if box is None:
            continue
        target = tab.evaluate("window.scrollY") + box["y"] - 20
        for step in range(1, STEPS + 1):
            share = step / STEPS
            eased = share * share * (3 - 2 * share)
            tab.evaluate(
                "y => window.scrollTo({top: y, behavior: 'instant'})", at + eased * (target - at)
            )
            yield tab.screenshot(), STEP
        at = tab.evaluate("window.scrollY")
        yield tab.screenshot(), REST
    gated = tab.locator("#ex-first option").filter(has_text="convit")
    if gated.count():  # a model whose maps have something to show
        tab.locator("#ex-first").select_option(gated.first.get_attribute("value"))
    picture = tab.locator("#ex-picture").bounding_box()
    if picture is None:
        return
    for across, down in PATH:
        tab.mouse.move(
            picture["x"] + across * picture["width"], picture["y"] + down * picture["height"]
        )
        tab.wait_for_timeout(250)
        yield tab.screenshot(), 600


def main(page: Path, target: Path) -> None:
    """Write the picture as an animated WebP."""
    with opened(page, WIDTH) as tab:
        taken = list(frames(tab))
    drawn = [Image.open(BytesIO(shot)).convert("RGB") for shot, _ in taken]
    size = (SHOWN, round(SHOWN * HEIGHT / WIDTH))
    first, *rest = [image.resize(size, Image.Resampling.LANCZOS) for image in drawn]
    times = [time for _, time in taken]
    first.save(
        target, save_all=True, append_images=rest, duration=times, loop=0, quality=55, method=6
    )
    print(f"{target}: {len(drawn)} frames, {target.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
