"""One self-contained page from the record of a comparison.

The page needs nothing but itself: style, script and drawings are inside, its content policy
forbids any request, it opens from a disk, and everything on it is there without the script.
"""

import base64
import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vitascope.record import Record, load, write_text
from vitascope.report import readings
from vitascope.report.comparison import Comparison, Trace
from vitascope.report.cost import AXES, draw_cost
from vitascope.report.efficiency import draw_efficiency
from vitascope.report.inside import FEWEST, draw_layer, trace_scale
from vitascope.report.learning import WHAT, draw_learning
from vitascope.report.palette import COLOURS
from vitascope.report.scale import count, short

__all__ = ["render_page", "write_page"]

_MOST_BYTES = 950_000
_POINTS = (80, 40, 20, FEWEST)  # drawn of a line, fewer where the page would grow too large

_SINGLE = "Thin lines: heads (point at one to see which); thick: their mean."
_BANDS = "Bands: from the least head to the most; lines: their mean."


def write_page(folder: Path, record: Record | None = None) -> Path:
    """Write ``folder/report.html`` from ``folder/compare.json`` (or the record given)."""
    folder = Path(folder)
    comparison = Comparison(load(folder / "compare") if record is None else record)
    for most in _POINTS:
        html = render_page(comparison, most)
        if len(html.encode("utf-8")) <= _MOST_BYTES:
            break
    write_text(folder / "report.html", html)
    return folder / "report.html"


def render_page(comparison: Comparison, most: int = 80) -> str:
    """The page's text; ``most`` bounds the points drawn of a line over epochs."""
    style, script = Markup(_asset("style.css")), Markup(_asset("script.js"))
    digest = hashlib.sha256(str(script).encode("utf-8")).digest()
    return (
        _environment()
        .get_template("page.html")
        .render(
            comparison=comparison,
            values=comparison.values,
            record=comparison.record,
            colours=COLOURS,
            style=style,
            script=script,
            script_hash=base64.b64encode(digest).decode("ascii"),
            efficiency=[draw_efficiency(comparison), draw_efficiency(comparison, narrow=True)],
            costs=[drawn for what in AXES if (drawn := draw_cost(comparison, what))],
            learning=_learning(comparison, most),
            gates=_inside(comparison, "gates", most),
            nonlocality=_inside(comparison, "nonlocality", most),
            heads=_SINGLE if most > FEWEST else _BANDS,
            readings=readings,
            intervals=any(
                e.gain_low is not None for r in comparison.rows for e in r.entries.values()
            ),
            seeds=max(
                (e.num_seeds for row in comparison.rows for e in row.entries.values()), default=0
            ),
        )
    )


def _learning(comparison: Comparison, most: int) -> list[tuple[str, list[Markup]]]:
    """(what is drawn, a plot a fraction) for accuracy and training loss."""
    found = []
    for what, name in WHAT.items():
        plots = [
            drawn
            for row in comparison.rows
            if (drawn := draw_learning(comparison, row, what, most))
        ]
        if plots:
            found.append((name, plots))
    return found


def _inside(
    comparison: Comparison, what: str, most: int
) -> list[tuple[str, list[tuple[Trace, list[Markup]]]]]:
    """(the fraction's caption, [(trace, a plot a layer)]), fewest images first."""
    traces = comparison.traces(what)
    scale = trace_scale(traces, what)
    found = []
    for fraction, group in groupby(traces, key=lambda trace: trace.fraction):
        row = comparison.row(fraction)
        share = row.share if row else f"{100 * fraction:.3g} %"
        plots = [
            (trace, [draw_layer(trace, i, what, scale, most) for i in range(len(trace.layers))])
            for trace in group
        ]
        found.append((_images(share, row.num_images if row else None), plots))
    return found


def _images(share: str, number: int | None) -> str:
    return f"{share} images" if number is None else f"{share} ({count(number)} images)"


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vitascope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "count": count,
        "short": short,
        "duration": duration,
        "listed": listed,
        "signed": signed,
        "tied": tied,
    }
    environment.filters.update(filters)
    return environment


def _asset(name: str) -> str:
    return files("vitascope.report").joinpath("templates", name).read_text(encoding="utf-8")


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


def tied(words: str) -> str:
    """Words in which a percent sign stays on its number's line."""
    return words.replace(" %", "\u00a0%")


def signed(value: float) -> str:
    """A change in percent with a real minus sign.

    >>> signed(-3.21)
    '−3.2'
    """
    rounded = round(value, 1) + 0.0
    return f"{rounded:+.1f}".replace("-", "−")


def listed(value: Any, most: int = 60) -> str:
    """A value of a recipe or record on one line.

    >>> listed({"lr": 0.001, "crop": None}), listed([1, 2, 3], most=2)
    ('lr 0.001, crop none', '1, 2 and 1 more')
    """
    if isinstance(value, dict):
        return ", ".join(f"{key} {listed(item)}" for key, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(listed(item) for item in value[:most])
        return shown if len(value) <= most else f"{shown} and {len(value) - most} more"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)
