"""The report by keyboard, by screen reader and for weak eyes: what the browser itself computes."""

from itertools import pairwise

import pytest

CROWDED = pytest.param("crowded", marks=pytest.mark.slow)
PAGES = ("demo", "whole", CROWDED, "evil")

# Everything the Tab key should stop at: of radio buttons with one name only the chosen one.
STOPS = """() => [...document.querySelectorAll(
        'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter(e => !e.matches(':disabled') && e.checkVisibility({visibilityProperty: true}))
    .filter(e => e.type !== 'radio' || e.checked)
    .map(e => e.outerHTML.slice(0, 100))"""
FOCUSED = """() => { const e = document.activeElement;
    if (e === document.body) return null;
    const shown = e.type === 'radio' ? e.nextElementSibling : e;
    const ring = getComputedStyle(shown);
    return [e.outerHTML.slice(0, 100),
        ring.outlineStyle === 'none' ? 0 : parseFloat(ring.outlineWidth)]; }"""
NAMELESS = """() => [...document.querySelectorAll('svg, img, canvas, figure, button, input, th')]
    .filter(e => !e.closest('[aria-hidden="true"]') && e.checkVisibility())
    .filter(e => !(e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
        || e.hasAttribute('alt') // none on purpose where what holds it has a name
        || e.querySelector(':scope > title') || (e.labels && e.labels.length)
        || (!e.matches('svg, canvas') && e.textContent.trim())))
    .map(e => e.outerHTML.slice(0, 100))"""
DRAWN = "() => [...document.querySelectorAll('canvas')].map(c => c.toDataURL()).join()"
# WCAG 2: contrast of each visible text with the first opaque background behind it.
FAINT = """() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = rgb => { const [r, g, b] = rgb.slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c; }
    return [255, 255, 255]; };
  const onImage = text => { const t = text.getBoundingClientRect();  // whose pixels are not styles
    const [x, y] = [(t.left + t.right) / 2, (t.top + t.bottom) / 2];
    return [...text.closest('svg').querySelectorAll('image')].map(i => i.getBoundingClientRect())
      .some(r => r.left < x && x < r.right && r.top < y && y < r.bottom); };
  const found = new Set(), walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !e.checkVisibility() || e.closest('script, style, title'))
      continue;
    if (e.closest('svg') && onImage(e)) continue;
    seen++;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize);
    const ink = numbers(e.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(e))].sort((x, y) => y - x);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.add(`${ratio.toFixed(2)}: ${e.outerHTML.slice(0, 100)}`);
  }
  return [seen, [...found]]; }"""


def tab_through(page) -> list[tuple[str, float]]:
    """(element, width of its focus ring) at every press of Tab, until the page is left."""
    stops = []
    for _ in range(300):
        page.keyboard.press("Tab")
        stop = page.evaluate(FOCUSED)
        if stop is None or (stops and stop[0] == stops[0][0]):
            return stops
        stops.append(tuple(stop))
    raise AssertionError(f"Tab never leaves the page; it stands at {stops[-1]}")


@pytest.mark.parametrize("name", [pytest.param("demo", marks=pytest.mark.slow), "whole", CROWDED])
def test_tab_reaches_everything_in_order_and_shows_where_it_is(visit, request, name):
    page = visit(request.getfixturevalue(name))
    stops = tab_through(page)
    assert [element for element, _ in stops] == page.evaluate(STOPS)
    assert [element for element, ring in stops if ring < 2] == []


def test_the_first_tab_offers_to_skip_to_the_answer(visit, demo):
    page = visit(demo)
    page.keyboard.press("Tab")
    link = page.locator(":focus")
    assert "Skip" in link.inner_text()
    assert link.bounding_box()["x"] >= 0  # it hides until it has the focus
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector(':target').contains(document.querySelector('h1'))")


def test_arrow_keys_choose_what_is_drawn(visit, demo):
    page = visit(demo)
    drawn = page.locator("canvas[aria-label]").first
    drawn.wait_for()
    before = page.evaluate(DRAWN)
    page.locator("#ex-layers input:checked").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("#ex-layers input").nth(1).is_checked()
    page.wait_for_function(f"before => ({DRAWN})() !== before", arg=before)  # at the next frame


def test_enter_switches_the_theme_and_opens_what_is_folded(visit, demo):
    page = visit(demo)
    page.locator("#theme").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    folded = page.locator("details:not([open])").first
    folded.evaluate("element => { element.id = 'folded'; }")
    page.locator("#folded summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#folded").get_attribute("open") is not None


@pytest.mark.parametrize("name", PAGES)
def test_everything_drawn_or_pressed_has_a_name(visit, request, name):
    page = visit(request.getfixturevalue(name))
    page.locator("canvas:not([aria-label])").first.wait_for(state="detached")  # named once drawn
    assert page.evaluate(NAMELESS) == []
    drawings = page.locator("svg:not([aria-hidden='true'] svg)")
    assert drawings.count() > 3
    assert {drawing.get_attribute("role") for drawing in drawings.all()} == {"img"}
    assert page.evaluate("document.documentElement.lang") == "en"
    assert page.locator("main").count() == 1


@pytest.mark.parametrize("name", PAGES)
def test_headings_do_not_skip_a_level(visit, request, name):
    page = visit(request.getfixturevalue(name))
    levels = page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(h => +h.tagName[1])"
    )
    assert levels.count(1) == 1
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["demo", "whole", CROWDED])
def test_text_stands_out_from_its_background(visit, request, name, scheme):
    page = visit(request.getfixturevalue(name), color_scheme=scheme)
    seen, faint = page.evaluate(FAINT)
    assert seen > 100
    assert faint == []
