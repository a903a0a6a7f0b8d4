"""Format numbers, durations, names and settings as text; the page's filters."""

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from vitascope.reliability import TOO_WIDE
from vitascope.report.figures.axes import count, short


def duration(seconds: float | None) -> str:
    """Seconds as a person says them.

    >>> duration(4.2), duration(250), duration(9000)
    ('4.2 s', '4 min 10 s', '2 h 30 min')
    """
    if seconds is None:
        return "not recorded"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def tied(text: str) -> str:
    """Words in which a percent sign, top-1 and an interval are not broken over two lines.

    What stands in backticks is code and stays as it is.

    >>> tied("90.0 % top-1 [88.1, 91.9]: `--set a=[0, 1]`")
    '90.0\\xa0% top\u20111 [88.1,\\xa091.9]: `--set a=[0, 1]`'
    """
    parts = text.split("`")
    for index in range(0, len(parts), 2):
        part = re.sub(r"\[[^\]]*\]", lambda match: match[0].replace(" ", "\u00a0"), parts[index])
        parts[index] = re.sub(r"\btop-(?=\d)", "top\u2011", part.replace(" %", "\u00a0%"))
    return "`".join(parts)


def code(text: str) -> Markup:
    """Words for the page in which what stands in backticks is code.

    >>> code("a < b: type `vitascope data`")
    Markup('a &lt; b: type <code>vitascope data</code>')
    """
    return Markup(re.sub("`([^`]+)`", lambda part: f"<code>{typed(part[1])}</code>", escape(text)))


def typed(command: str) -> Markup:
    """A command for the page, its options not broken over two lines.

    >>> typed("vitascope data a<b --json")
    Markup('vitascope data a&lt;b <span class="option">--json</span>')
    """
    option = r'<span class="option">\1</span>'
    return Markup(re.sub(r"(?<!\S)(--[\w-]+)", option, str(escape(command))))


def signed(value: float) -> str:
    """A change in percent with a real minus sign.

    >>> signed(-3.21)
    '−3.2'
    """
    rounded = round(value, 1) + 0.0
    return f"{rounded:+.1f}".replace("-", "−")


def number(value: Any, digits: int | None = None) -> str:
    """A number that may be missing; three figures unless ``digits`` after the point are asked for.

    >>> number(None), number(81.26, 1), number(-0.0123)
    ('–', '81.3', '−0.0123')
    """
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        return "–"
    text = f"{value:.3g}" if digits is None else f"{value:.{digits}f}"
    return text.replace("-", "−")


def interval(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """A 95 % interval in percentage points; one that spans nearly everything says nothing.

    >>> interval(98.1, 100.0), interval(-2.0, 3.04, sign=True), interval(0.0, 100.0)
    ('[98.1, 100.0]', '[−2.0, +3.0]', '(too few images to tell)')
    """
    if low is None or high is None:
        return ""
    if high - low > TOO_WIDE:
        return "(too few images to tell)"
    ends = (signed(end) if sign else number(end, 1) for end in (low, high))
    return f"[{', '.join(ends)}]"


def plural(amount: int, noun: str) -> str:
    """A number of things.

    >>> plural(1, "seed"), plural(1200, "image")
    ('1 seed', '1,200 images')
    """
    return f"{count(amount)} {noun}" + ("" if amount == 1 else "s")


def listed(value: Any, most: int = 60) -> str:
    """A value of a recipe or record on one line.

    >>> listed({"lr": 0.001, "crop": None}), listed([1, 2, 3], most=2)
    ('lr 0.001, crop none', '1, 2 and 1 more')
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {listed(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(listed(item) for item in value[:most])
        return shown if len(value) <= most else f"{shown} and {len(value) - most} more"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def short_names(names: Sequence[str]) -> list[str]:
    """Names without the parts that all of them share.

    >>> short_names(["blocks.0.attn", "blocks.1.attn"])
    ['0', '1']
    >>> short_names(["blocks.0.attn", "blocks.0.mlp", "head"])
    ['blocks.0.attn', 'blocks.0.mlp', 'head']
    """
    parts = [name.split(".") for name in names]
    least = min((len(p) for p in parts), default=0)
    front = 0
    while front < least - 1 and len({p[front] for p in parts}) == 1:
        front += 1
    back = 0
    while back < least - 1 - front and len({p[-1 - back] for p in parts}) == 1:
        back += 1
    return [".".join(p[front : len(p) - back]) for p in parts]


def picture_source(array: np.ndarray) -> str:
    """The bytes of a PNG or JPEG file as the source of an image; nothing for other bytes.

    >>> picture_source(np.frombuffer(b"GIF89a", np.uint8))
    ''
    """
    raw = array.tobytes()
    kind = "png" if raw.startswith(b"\x89PNG") else "jpeg" if raw.startswith(b"\xff\xd8") else ""
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode('ascii')}" if kind else ""


FILTERS: dict[str, Callable[..., str]] = {
    "code": code,
    "count": count,
    "short": short,
    "duration": duration,
    "listed": listed,
    "number": number,
    "plural": plural,
    "signed": signed,
    "tied": tied,
    "typed": typed,
}
