"""Formulas of the site: TeX between dollars becomes MathML, which browsers draw without a script.

Two hooks of MkDocs (``hooks`` in mkdocs.yml). Before Markdown is read a formula becomes one word
that holds it, so that no sign of it is taken for emphasis; afterwards the word becomes MathML. Code
is left alone.
"""

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
FORMULA = re.compile(r"\$\$(?P<block>[^$]+)\$\$|\$(?P<inline>[^\s$](?:[^$\n]*[^\s$])?)\$(?!\d)")
WORD = re.compile(r"formula(block|inline)x([0-9a-f]+)x")


def hidden(markdown: str) -> str:
    """The page with a word for each formula."""

    def word(found: re.Match[str]) -> str:
        kind = "block" if found["block"] else "inline"
        return f"formula{kind}x{found[kind].encode().hex()}x"

    parts = CODE.split(markdown)
    parts[::2] = [FORMULA.sub(word, text) for text in parts[::2]]
    return "".join(parts)


def drawn(html: str) -> str:
    """The page with MathML for each such word."""
    return WORD.sub(lambda word: convert(bytes.fromhex(word[2]).decode(), display=word[1]), html)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What MkDocs calls before it reads a page."""
    return hidden(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """What MkDocs calls once a page is HTML."""
    return drawn(html)
