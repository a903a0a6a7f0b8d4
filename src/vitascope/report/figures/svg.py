"""Scalable vector graphics, escaped: a tag, and the few shapes the charts are made of.

Nothing here knows colours: a class ``m0`` … ``m7`` on a group gives its lines and letters the
model's colour from the page's style sheet, so that dark mode and print need no second drawing.
"""

import base64
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
from markupsafe import Markup, escape

Point = tuple[float, float]

NOTHING = "No number to draw."


def nothing() -> Markup:
    """In place of a panel without a number."""
    return Markup(f'<p class="none">{NOTHING}</p>')


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element; text children and attribute values are escaped, None attributes left out.

    >>> print(tag("text", "a < b", x=1.25, class_="label", text_anchor="end"))
    <text x="1.2" class="label" text-anchor="end">a &lt; b</text>
    """
    written = [
        f' {key.rstrip("_").replace("_", "-")}="{escape(_number(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inside = "".join(escape(child) for child in children)
    return Markup(f"<{name}{''.join(written)}>{inside}</{name}>")


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return str(value)


def path(points: Iterable[Point], close: bool = False) -> str:
    """The ``d`` of a path through points."""
    steps = " ".join(f"{_number(float(x))},{_number(float(y))}" for x, y in points)
    return f"M{steps}Z" if close else f"M{steps}"


def line(start: Point, end: Point, class_: str) -> Markup:
    """Draw a straight line."""
    return tag("path", d=path([start, end]), class_=class_)


def text(
    x: float, y: float, text: str, class_: str = "", anchor: str | None = None, most: int = 999
) -> Markup:
    """Words at a place, at most ``most`` letters of them; the whole is in the tooltip."""
    shown = shorten(text, most)
    whole = tag("title", text) if shown != text else ""
    return tag("text", shown, whole, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def shorten(text: str, most: int) -> str:
    """``words``, or its beginning with an ellipsis.

    >>> shorten("convolutional", 8)
    'convolu…'
    """
    return text if len(text) <= most else text[: max(most - 1, 1)].rstrip() + "…"


def width(text: str, size: float) -> float:
    """About how wide a text is at a font size (a wide system sans-serif, half bold)."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return size * (0.64 * (len(text) - wide) + 1.05 * wide)


def marker(shape: str, x: float, y: float, radius: float, class_: str = "dot") -> Markup:
    """A filled mark of one of four shapes, of about equal area."""
    if shape == "circle":
        return tag("circle", cx=x, cy=y, r=radius, class_=class_)
    return tag("path", d=path(_corners(shape, x, y, radius), close=True), class_=class_)


def _corners(shape: str, x: float, y: float, radius: float) -> Sequence[Point]:
    if shape == "square":
        r = 0.88 * radius
        return [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
    if shape == "diamond":
        r = 1.25 * radius
        return [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
    r = 1.3 * radius
    return [(x, y - r), (x + 0.9 * r, y + 0.6 * r), (x - 0.9 * r, y + 0.6 * r)]


def picture_source(array: np.ndarray) -> str:
    """The bytes of a PNG or JPEG file as the source of an image; nothing for other bytes.

    >>> picture_source(np.frombuffer(b"GIF89a", np.uint8))
    ''
    """
    raw = array.tobytes()
    kind = "png" if raw.startswith(b"\x89PNG") else "jpeg" if raw.startswith(b"\xff\xd8") else ""
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode('ascii')}" if kind else ""
