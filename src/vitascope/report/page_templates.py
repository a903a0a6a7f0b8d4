"""Templates, styles and scripts of pages: jinja's environment with our filters and drawings."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from vitascope.formatting import count, duration, interval, listed, number, plural, short, signed
from vitascope.report.figures.page_renderer import across, draw_panel, left_out, num_points, room


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


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return where templates are found, and what they may call."""
    made = Environment(
        loader=PackageLoader("vitascope.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.globals.update(
        across=across,
        draw_panel=draw_panel,
        interval=interval,
        left_out=left_out,
        num_points=num_points,
        room=room,
    )
    return made


def asset(name: str) -> str:
    """The text of a style or script."""
    return files("vitascope.report").joinpath("templates", name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    """By which a page's content policy allows a script."""
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
