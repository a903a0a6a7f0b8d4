"""The explorer in a real browser: what is pointed at is what is shown."""

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from explorer_making import (
    CAIT,
    distances,
    explorer_record,
    row_distance,
    row_entropy,
    serving,
    token_shares,
    with_evil_names,
)
from vitascope.explorer.live import Live
from vitascope.report.explorer import attention_maps as stored_maps
from vitascope.report.explorer.page import page

PIXELS = "(canvas) => canvas.toDataURL()"
# By the page's own clock, which a busy machine slows: words are said 150 ms after a frame is drawn.
SETTLED = """() => new Promise(done => requestAnimationFrame(
    () => requestAnimationFrame(() => setTimeout(done, 170))))"""


@pytest.fixture(scope="session")
def records():
    return [explorer_record(name, epochs=2) for name in ("vit_micro", "convit_micro")]


@pytest.fixture(scope="session")
def explorer(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(page(records))
    return path


def settled(tab):
    """The frame after the last change is drawn, and the words are said."""
    tab.evaluate(SETTLED)
    return tab


def maps(tab):
    """Every map of the page as an image."""
    settled(tab)
    return [canvas.evaluate(PIXELS) for canvas in tab.locator(".ex-tile canvas").all()]


def tiles(tab, card):
    """The four maps of a card: on the image, mixed, content, position."""
    settled(tab)
    found = tab.locator(".ex-card").nth(card).locator(".ex-tile canvas")
    return [canvas.evaluate(PIXELS) for canvas in found.all()]


def point(tab, row, column, grid=4):
    box = tab.locator("#ex-picture").bounding_box()
    x = box["x"] + (column + 0.5) / grid * box["width"]
    tab.mouse.move(x, box["y"] + (row + 0.5) / grid * box["height"])
    settled(tab)


def press(tab, name, number):
    tab.locator(f"input[name={name}]").nth(number).check(force=True)


def test_pointing_at_another_patch_changes_every_map(visit, explorer):
    tab = visit(explorer)
    point(tab, 0, 0)
    before, said = maps(tab), tab.locator("#ex-said").inner_text()
    point(tab, 3, 2)
    after = maps(tab)
    shown = [
        place
        for place, canvas in enumerate(tab.locator(".ex-tile canvas").all())
        if canvas.is_visible()
    ]
    assert len(shown) == 6  # two of the plain model, four of the gated one
    assert all(before[place] != after[place] for place in shown)
    assert "row 1 of 4, column 1 of 4" in said
    assert "row 4 of 4, column 3 of 4" in tab.locator("#ex-said").inner_text()


@pytest.mark.parametrize("name", ["ex-layer", "ex-head", "ex-image"])
def test_another_layer_head_or_image_changes_the_maps(visit, explorer, name):
    tab = visit(explorer)
    before = tiles(tab, 1)
    press(tab, name, 1)
    assert tiles(tab, 1)[1] != before[1]


def test_an_earlier_epoch_changes_the_maps_and_is_named(visit, explorer):
    tab = visit(explorer)
    before = tiles(tab, 1)
    assert tab.locator("#ex-when").inner_text() == "epoch 1"
    tab.locator("#ex-epoch").focus()
    tab.keyboard.press("ArrowLeft")
    assert tiles(tab, 1)[1] != before[1]
    assert tab.locator("#ex-when").inner_text() == "epoch 0"
    assert "epoch 0" in tab.locator(".ex-about").first.inner_text()


def test_forced_gates_show_position_alone_or_content_alone(visit, explorer):
    tab = visit(explorer)
    _, mixed, content, position = tiles(tab, 1)
    assert len({mixed, content, position}) == 3
    press(tab, "ex-gate", 2)
    assert tiles(tab, 1)[1] == position
    assert "gate 1.00, forced" in tab.locator(".ex-card").nth(1).inner_text()
    press(tab, "ex-gate", 1)
    assert tiles(tab, 1)[1] == content


def test_the_numbers_are_those_of_the_reference(visit, explorer, records):
    tab = visit(explorer)
    for row, column, layer, head in ((0, 0, 0, 0), (2, 1, 1, 5), (3, 3, 3, 8)):
        press(tab, "ex-layer", layer)
        press(tab, "ex-head", head)
        point(tab, row, column)
        for card, record in enumerate(records):
            described = record.values["layers"][layer]
            found = stored_maps.mixed(record, described["name"], epoch=1)[head]
            far, dense = row_distance(found, described), row_entropy(found)
            even = distances(described).mean()
            q = row * 4 + column
            wanted = [far[q], far.mean(), even, dense[q], dense.mean(), np.log(16)]
            cells = tab.locator(".ex-card").nth(card).locator("tbody td").all_inner_texts()
            np.testing.assert_allclose([float(cell) for cell in cells], wanted, atol=0.0051)


def test_arrow_keys_move_the_patch_and_stop_at_the_edge(visit, explorer):
    tab = visit(explorer)
    tab.locator("#ex-picture").focus()
    for key in ("ArrowUp",) * 5 + ("ArrowRight",):
        tab.keyboard.press(key)
    settled(tab)
    assert "row 1 of 4, column 4 of 4" in tab.locator("#ex-said").inner_text()


def test_a_click_holds_the_patch_until_the_next(visit, explorer):
    tab = visit(explorer)
    point(tab, 1, 1)
    tab.mouse.down()
    tab.mouse.up()
    point(tab, 3, 3)
    assert "row 2 of 4, column 2 of 4" in tab.locator("#ex-said").inner_text()


def test_a_head_is_chosen_in_the_overview(visit, explorer):
    tab = visit(explorer)
    canvas = tab.locator(".ex-all canvas").nth(1)
    canvas.scroll_into_view_if_needed()
    settled(tab)
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 7.5 / 9, "y": box["height"] * 2.5 / 4})
    settled(tab)
    assert "layer 3, head 8" in tab.locator("#ex-said").inner_text()
    assert tab.locator("input[name=ex-head]").nth(7).is_checked()


def test_a_plain_model_alone_has_its_gate_switch_off_with_the_reason(visit, records, tmp_path):
    path = tmp_path / "plain.html"
    path.write_text(page(records[:1]))
    tab = settled(visit(path))
    assert tab.locator("input[name=ex-gate]").nth(2).is_disabled()
    assert "has no gates" in tab.locator("#ex-why").inner_text()
    assert tab.locator(".ex-card").count() == 1


def test_three_models_can_be_chosen_from(visit, records, tmp_path):
    path = tmp_path / "three.html"
    path.write_text(page([*records, explorer_record("vit_micro")]))
    tab = visit(path)
    tab.locator("#ex-second").select_option(label="vit_micro (2)")
    assert settled(tab).locator(".ex-card h3").all_inner_texts() == [
        "vit_micro (1)",
        "vit_micro (2)",
    ]


@pytest.mark.parametrize("width", [360, 390, 800])
def test_narrow_windows_have_no_sideways_scroll(visit, explorer, width):
    tab = settled(visit(explorer, width=width))
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width


def test_names_stay_text(visit, records, tmp_path):
    path = tmp_path / "evil.html"
    path.write_text(page([with_evil_names(record) for record in records]))
    tab = settled(visit(path))
    assert tab.evaluate("window.hit") is None
    assert tab.locator(".ex-card h3").first.inner_text().startswith("</script><img")


def test_the_class_token_looks_when_it_is_chosen_by_the_keyboard(visit, explorer, records):
    tab = visit(explorer)
    press(tab, "ex-layer", 3)
    before = tiles(tab, 0)
    tab.locator("input[name=ex-token]").first.focus()
    tab.keyboard.press("ArrowRight")
    assert tiles(tab, 0)[1] != before[1]
    said = tab.locator("#ex-said").inner_text()
    assert said.startswith("Class token; layer 4")
    layer = records[0].values["layers"][3]["name"]
    head = tab.locator("input[name=ex-head]:checked").evaluate("(input) => Number(input.value)")
    share = token_shares(records[0], layer, epoch=1)[head, -1, 0]
    assert f"class token {100 * share:.1f}\u00a0%" in tab.locator(".ex-shares").first.inner_text()
    assert tab.locator(".ex-card").first.locator("tbody td").first.inner_text() == "–"
    label = tab.locator(".ex-tile canvas").nth(1).get_attribute("aria-label")
    assert "of the class token" in label
    press(tab, "ex-layer", 0)
    settled(tab)
    assert "There is no class token in this layer." in tab.locator(".ex-card").nth(1).inner_text()
    point(tab, 0, 0)  # a patch looks again
    assert "row 1 of 4, column 1 of 4" in tab.locator("#ex-said").inner_text()


def test_in_class_attention_the_class_token_looks_whichever_patch_is_chosen(visit, tmp_path):
    record, path = explorer_record(CAIT), tmp_path / "cait.html"
    path.write_text(page([record]))
    tab = visit(path)
    press(tab, "ex-layer", 2)
    press(tab, "ex-head", 0)
    point(tab, 0, 0)
    before, card = tiles(tab, 0), tab.locator(".ex-card")
    point(tab, 3, 1)
    assert tiles(tab, 0) == before
    assert "Class attention: only the class token looks" in card.inner_text()
    assert tab.locator("#ex-said").inner_text().startswith("Class token; layer 3, head 1.")
    layer = record.values["layers"][2]["name"]
    share = token_shares(record, layer)[0, 0, 0]
    assert f"class token {100 * share:.1f}\u00a0%;" in card.locator(".ex-shares").inner_text()
    row = stored_maps.with_tokens(record, layer)[0]
    entropy = f"{row_entropy(row)[0]:.2f}"
    cells = card.locator("tbody td").all_inner_texts()
    assert cells == ["–", "–", "–", entropy, entropy, f"{np.log(16):.2f}"]


def test_a_network_without_attention_shows_what_its_answers_rest_on(visit, tmp_path):
    path = tmp_path / "both.html"
    path.write_text(page([explorer_record("resnet_micro"), explorer_record("vit_micro")]))
    tab = settled(visit(path))
    transformer, network = tab.locator(".ex-card").all()
    assert "has no attention" in network.inner_text()
    assert network.locator(".ex-rest").count() == 2
    assert transformer.locator(".ex-rest").count() == 3
    canvas, similar = network.locator(".ex-rest canvas").all()
    assert "the prediction depends most on row" in canvas.get_attribute("aria-label")
    before, other = canvas.evaluate(PIXELS), similar.evaluate(PIXELS)
    point(tab, 0, 0)
    assert canvas.evaluate(PIXELS) == before
    assert similar.evaluate(PIXELS) != other  # features like those under the pointer
    press(tab, "ex-image", 1)
    settled(tab)
    assert canvas.evaluate(PIXELS) != before


def test_without_scripts_a_few_maps_are_drawn(visit, explorer):
    tab = visit(explorer, java_script_enabled=False)
    assert tab.locator("#ex-static svg").count() == 10
    assert not tab.locator("#ex-live").is_visible()


@pytest.fixture
def served():
    """A running server of an untrained model."""
    with serving(Live.open(["convit_micro"], "digits")) as server:
        yield server


def test_an_image_of_ones_own_is_explored_or_refused_in_words(browser, served, tmp_path):
    photo, text = tmp_path / "<b>mine.png", tmp_path / "notes.png"
    Image.linear_gradient("L").save(photo)
    text.write_text("no image")
    context = browser.new_context()
    tab = context.new_page()
    asked, errors = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.goto(served.url)
    before = tiles(tab, 0)
    tab.locator("#ex-file").set_input_files(text)
    expect(tab.locator("#ex-told")).to_contain_text("no PNG")
    tab.locator("#ex-file").set_input_files(photo)
    expect(tab.locator(".ex-thumbs img")).to_have_count(7)
    assert tiles(tab, 0)[1] != before[1]
    assert "<b>mine.png" in tab.locator("#ex-thumbs").inner_text()
    assert {url for url in asked if not url.startswith("data:")} == {
        served.url,
        f"{served.url}look",
    }
    assert errors == []
    context.close()


def test_the_demos_report_has_the_explorer(visit, demo):
    tab = settled(visit(demo))
    assert tab.locator(".ex-card").count() == 2
    before = tiles(tab, 1)
    tab.locator("#ex-picture").focus()
    tab.keyboard.press("ArrowUp")
    assert tiles(tab, 1)[1] != before[1]


@pytest.mark.slow
def test_the_first_map_is_drawn_within_a_tenth_of_a_second_of_a_click_and_the_page_is_small(
    visit, explorer
):
    assert explorer.stat().st_size < 5_000_000
    tab = settled(visit(explorer))
    waited = tab.evaluate(
        """() => new Promise((done) => {
        const canvas = document.querySelector(".ex-tile canvas"), before = canvas.toDataURL();
        const box = document.getElementById("ex-picture"), at = box.getBoundingClientRect();
        const begun = performance.now();
        box.dispatchEvent(new PointerEvent("pointerdown",
          { clientX: at.left + 2, clientY: at.top + 2, pointerType: "touch" }));
        (function look() {
          if (canvas.toDataURL() !== before) done(performance.now() - begun);
          else requestAnimationFrame(look);
        })();
      })"""
    )
    assert waited < 100, f"{waited:.0f} ms"
