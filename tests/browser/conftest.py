"""A real Chromium, and pages in it that fail their test on any error or request.

One browser a test process, started with the first test that needs it; a fresh profile a test.
``CHROMIUM`` names another binary than the ones found on the path.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from report_making import made_up
from report_records import made_study, write_inspection, write_run
from vitascope.commands import main
from vitascope.record import Record

BINARIES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LOCAL = ("file", "data", "blob", "about")
EVIL = "<img src=x onerror=window.hit=1>"


class Watch:
    """What went wrong on the pages it was shown: errors, dialogs, requests that leave the file."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def over(self, page: Page) -> Page:
        """Watch ``page`` from now on."""
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self._saw("error", str(error)))
        page.on("dialog", lambda dialog: (self._saw("dialog", dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url))
        return page

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self._saw("console", text)

    def _asked(self, url: str) -> None:
        if urlsplit(url).scheme not in LOCAL:
            self._saw("request", url)

    def _saw(self, kind: str, text: str) -> None:
        self.faults.append(f"{kind}: {text}")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The one browser of this process. Playwright leaves Chromium's sandbox off, as root needs."""
    binary = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BINARIES)), None)
    assert binary, "no Chromium found: run `make browser`, or set CHROMIUM to one"
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=binary, args=list(QUIET))
        yield running
        running.close()


@pytest.fixture
def watch() -> Watch:
    """The watch over the test's pages; `visit` fails the test on what it saw."""
    return Watch()


@pytest.fixture
def visit(browser: Browser, watch: Watch) -> Iterator[Callable[..., Page]]:
    """``visit(path, width=1200, **context)``: the file in a fresh profile, offline and watched."""
    contexts = []

    def _visit(path: Path, width: int = 1200, height: int = 900, **options) -> Page:
        size = {"width": width, "height": height}
        contexts.append(browser.new_context(viewport=size, offline=True, **options))
        page = watch.over(contexts[-1].new_page())
        page.goto(path.resolve().as_uri())
        return page

    yield _visit
    for context in contexts:
        context.close()
    assert watch.faults == []


@pytest.fixture(scope="session")
def demo(comparison: Path) -> Path:
    """The page of a real, short comparison."""
    return comparison / "report.html"


def page_of(folder: Path) -> Path:
    """The page of every record in the folder, as the command makes it."""
    assert main(["report", str(folder), "--quiet"]) == 0
    return folder / "report.html"


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of every kind: a study, inspections of two models, three runs."""
    folder = tmp_path_factory.mktemp("whole")
    made_study().save(folder / "study")
    write_inspection(folder / "convit", "convit_micro")
    write_inspection(folder / "vit", "vit_micro", gated=False, layers=6)
    for seed in (0, 1):
        write_run(folder / str(seed), seed=seed)
    write_run(folder / "open", "convit_micro", finished=False)
    return page_of(folder)


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with five models of long names over four fractions."""
    labels = ("a model with a rather long name " * 3, "模型" * 30, "x" * 120, "ViT", "ResNet")
    folder = tmp_path_factory.mktemp("crowded")
    record = made_up(num_models=5, fractions=(0.05, 0.1, 0.3, 1.0), labels=labels)
    record.save(folder / "compare")
    return page_of(folder)


@pytest.fixture(scope="session")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page whose names, notes and commands are markup that would run a script."""
    folder = tmp_path_factory.mktemp("evil")
    record = made_up(labels=(EVIL, f"'{EVIL}", f'"{EVIL}'), data_name=EVIL, classes=(EVIL, "b"))
    values = dict(record.values)
    values["data"] = {**values["data"], "notes": [EVIL, "</script><script>window.hit=1</script>"]}
    values["question"] = values["command"] = EVIL
    values["recipe"] = {EVIL: EVIL}
    values["crossings"] = [{**crossing, "text": EVIL} for crossing in values["crossings"]]
    for trace in (*values["gates"], *values["nonlocality"]):
        trace["layers"] = ['"><script>window.hit=1</script>'] * len(trace["layers"])
    Record(kind="compare", values=values, arrays=record.arrays).save(folder / "compare")
    made_study(models=(EVIL, "vit"), words=EVIL).save(folder / "study")
    write_inspection(folder / "inside", EVIL, subject=EVIL)
    write_run(folder / "run", EVIL, data=EVIL)
    return page_of(folder)
