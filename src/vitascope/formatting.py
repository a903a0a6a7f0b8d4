"""Numbers, durations and names as text, for sentences, tables and pages."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vitascope.reliability import TOO_WIDE


def count(value: float) -> str:
    """A whole number with thousands apart.

    >>> count(1437)
    '1,437'
    """
    return f"{value:,.0f}"


def short(value: float, digits: int | None = None) -> str:
    """A number in at most four characters or so; ``digits`` keeps that many after the point.

    >>> [short(value) for value in (0.25, 20, 1500, 261_402, 5.4e9)]
    ['0.25', '20', '1.5k', '261k', '5.4G']
    >>> short(4.96e6, 1), short(3e6, 1)
    ('5.0M', '3.0M')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            if abs(scaled) >= 99.95:
                return f"{scaled:.0f}{letter}"
            return f"{scaled:.3g}{letter}" if digits is None else f"{scaled:.{digits}f}{letter}"
    return f"{value:.3g}"


def percent(share: float) -> str:
    """Write a fraction in percent."""
    return f"{100 * share:.1f} %"


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


def signed(value: float) -> str:
    """A change in percent with a real minus sign.

    >>> signed(-3.21)
    '−3.2'
    """
    rounded = round(value, 1) + 0.0
    return f"{rounded:+.1f}".replace("-", "−")


def finite(value: Any) -> bool:
    """Return whether this is a number that is neither missing nor infinite."""
    return isinstance(value, (int, float)) and math.isfinite(value)


def number(value: Any, digits: int | None = None) -> str:
    """A number that may be missing; three figures unless ``digits`` after the point are asked for.

    >>> number(None), number(81.26, 1), number(-0.0123)
    ('–', '81.3', '−0.0123')
    """
    if not finite(value):
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


def joined(parts: Sequence[str], most: int = 4) -> str:
    """Parts of a sentence, the first few of them.

    >>> joined(["a is 1", "b is 2"]), joined(list("abcde"), 3)
    ('a is 1; b is 2.', 'a; b; c; and 2 more.')
    """
    text = "; ".join(parts[:most])
    return text + (f"; and {len(parts) - most} more." if len(parts) > most else ".")


def sentence(text: str) -> str:
    """Words that begin as a sentence does; a model keeps its name.

    >>> sentence("at first"), sentence("vit_micro looks")
    ('At first', 'vit_micro looks')
    """
    return text if "_" in text.partition(" ")[0] else text[:1].upper() + text[1:]
