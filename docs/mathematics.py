"""Formulas of the site: TeX between dollars becomes MathML, which browsers draw without a script.

A hook of MkDocs (``hooks`` in mkdocs.yml). Code is left alone.
"""

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
FORMULA = re.compile(r"\$\$(?P<block>[^$]+)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)")


def formulas(markdown: str) -> str:
    """The page with MathML in place of its formulas."""
    parts = CODE.split(markdown)
    parts[::2] = [FORMULA.sub(_mathml, text) for text in parts[::2]]
    return "".join(parts)


def _mathml(found: re.Match[str]) -> str:
    block, inline = found["block"], found["inline"]
    return convert(inline) if inline else convert(block, display="block")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What MkDocs calls for each page."""
    return formulas(markdown)
