"""Templates, styles and scripts of pages: jinja's environment with our filters and drawings."""

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from vitascope.report.figures.page_renderer import across, draw_panel, left_out, num_points, room
from vitascope.report.formatting import FILTERS, interval


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
