"""The report in a real browser: it opens alone, changes colours, fits a phone and prints."""

import pytest

from report_making import made_up
from vitascope.commands import main

EVIL = "<img src=x onerror=window.hit=1>"  # as in the `evil` page
PAGES = ("demo", "whole", "crowded", "evil")

OVERFLOW = "document.scrollingElement.scrollWidth - window.innerWidth"
CUT = """[...document.querySelectorAll("td, th")].filter(cell => {
    const at = cell.getBoundingClientRect(), box = cell.closest(".scroll");
    const edge = box ? box.getBoundingClientRect().right : innerWidth;
    return !cell.closest("thead") && (at.right > Math.min(edge, innerWidth) + 1 || at.left < -1);
}).map(cell => cell.textContent)"""  # cells that are out of sight
HIDDEN = """names => [...document.querySelectorAll(names)]
    .filter(e => !e.checkVisibility() || e.getBoundingClientRect().width === 0)
    .map(e => e.outerHTML.slice(0, 120))"""


def colours(page) -> tuple[str, str]:
    """Background and text colour of the page as the browser shows it."""
    return page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )


def brightness(page) -> int:
    """Sum of the background's red, green and blue."""
    return sum(map(int, colours(page)[0].removeprefix("rgb(").removesuffix(")").split(",")))


def test_the_watch_sees_errors_dialogs_and_requests(visit, watch, tmp_path):
    (tmp_path / "bad.html").write_text(
        "<script>console.error('heard'); alert('asked'); throw Error('thrown')</script>"
        "<img src='https://vitascope.invalid/seen.png'>"
    )
    visit(tmp_path / "bad.html")
    found = sorted(watch.faults)
    watch.faults.clear()
    assert [fault.split(":")[0] for fault in found] == ["console"] * 2 + [
        "dialog",
        "error",
        "request",
    ]
    assert "request: https://vitascope.invalid/seen.png" in found


@pytest.mark.parametrize("name", PAGES)
def test_a_report_opens_without_an_error_or_a_request(visit, request, name):
    path = request.getfixturevalue(name)
    page = visit(path)  # leaving the test checks that nothing was seen
    assert path.stat().st_size < 5_000_000
    assert page.locator("h1").inner_text().strip()
    assert page.locator("svg").count() > 3
    assert page.evaluate("performance.getEntriesByType('resource').map(r => r.name)") == []


def test_everything_is_there_without_the_script(visit, demo):
    page = visit(demo, java_script_enabled=False)
    assert page.locator("h1").is_visible()
    assert page.locator("figure").count() > 2
    for summary in page.locator("details.fold > summary").all():
        summary.click()  # details are folded
    for figure in page.locator("figure").all():
        assert figure.is_visible()
    assert page.locator("#theme").is_hidden()  # a switch that could not switch


def test_the_switch_changes_the_colours_and_is_remembered(visit, demo):
    page = visit(demo)
    assert brightness(page) > 600
    light = colours(page)
    page.get_by_role("button", name="Switch to dark colours").click()
    assert brightness(page) < 150
    assert colours(page)[1] != light[1]
    for _ in range(20):  # the browser writes what a page stores a moment later
        page.reload()
        if brightness(page) < 150:
            break
    assert brightness(page) < 150
    page.get_by_role("button", name="Switch to light colours").click()
    assert colours(page) == light


def test_the_colours_follow_the_system_until_one_chooses(visit, demo):
    page = visit(demo, color_scheme="dark")
    assert brightness(page) < 150
    page.emulate_media(color_scheme="light")
    assert brightness(page) > 600
    page.get_by_role("button", name="Switch to dark colours").click()
    page.emulate_media(color_scheme="light")
    assert brightness(page) < 150


@pytest.mark.parametrize("width", [320, 768])
@pytest.mark.parametrize("name", PAGES)
def test_no_width_scrolls_sideways(visit, request, name, width):
    page = visit(request.getfixturevalue(name), width=width, height=780)
    assert page.evaluate(OVERFLOW) <= 0
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate(OVERFLOW) <= 0


@pytest.mark.parametrize("width", [390, 1280, 1920])
def test_no_table_hides_a_column(visit, tmp_path, width):
    fractions = tuple(0.05 * (i + 1) for i in range(20))
    labels = ("ConViT", "ViT", "ResNet", "Mixer", "a longer name" * 4)
    for name, shape in (
        ("few", {}),
        ("some", {"fractions": fractions[-8:]}),
        ("many", {"fractions": fractions}),
    ):
        made_up(num_models=6, labels=labels, seeds=(0,), **shape).save(tmp_path / name / "compare")
    assert main(["report", str(tmp_path), "--quiet"]) == 0
    page = visit(tmp_path / "report.html", width=width, height=780)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.locator("table td").count() > 100
    assert page.evaluate(CUT) == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_shows_every_cell_of_every_table(visit, request, name):
    page = visit(request.getfixturevalue(name), width=390, height=780)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert page.evaluate(CUT) == []


def test_the_first_screen_has_the_answer_and_commands_to_copy(visit, demo):
    page = visit(demo, width=1280, height=900)
    assert page.locator("h1").bounding_box()["y"] < 200
    command = page.locator(".next pre").first
    assert command.bounding_box()["y"] < 700
    assert "vitascope predict" in command.inner_text()
    command.get_by_role("button").click()
    assert page.locator(".bars li").count() > 1


@pytest.mark.parametrize("name", PAGES)
def test_print_shows_every_drawing_on_white(visit, request, name):
    page = visit(request.getfixturevalue(name), color_scheme="dark")
    page.emulate_media(media="print")
    for names in ("h1, h2, h3", "figure, figcaption", ".wide svg", "table"):
        # the explorer's still maps have made room for its live ones, as far as a model has them
        shown = ", ".join(f"{n}:not(#ex-static *, [hidden], [hidden] *)" for n in names.split(", "))
        assert page.evaluate(HIDDEN, shown) == []
    assert page.evaluate(HIDDEN, "nav, #theme") != []  # nothing to press on paper
    assert brightness(page) == 765
    assert page.pdf().startswith(b"%PDF")


def test_names_from_outside_stay_text(visit, evil):
    page = visit(evil)
    assert page.evaluate("window.hit") is None
    assert page.locator("img").count() == 0
    assert page.locator("script:not([type='application/json'])").count() == 1
    assert page.get_by_text(EVIL, exact=True).count() > 3
    assert page.title().count(EVIL) > 0
