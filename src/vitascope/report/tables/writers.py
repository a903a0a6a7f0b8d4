"""Writers of tables: terminal, Markdown, LaTeX with booktabs, and CSV; the page has table.html.

Names in a table come from outside: what is special in LaTeX or ends a Markdown cell is escaped, and
a CSV cell that a spreadsheet would run as a formula gets an apostrophe before it.
"""

import csv
import io
import re
from collections.abc import Callable, Sequence

from vitascope.report.tables.table import Table, numeric_columns

_LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "≈": r"$\approx$",
    "Δ": r"$\Delta$",
    "σ": r"$\sigma$",
    "λ": r"$\lambda$",
    "π": r"$\pi$",
    "ε": r"$\varepsilon$",
    "α": r"$\alpha$",
    "→": r"$\to$",
    "✓": r"$\checkmark$",
    "✗": r"$\times$",
    "…": r"\dots{}",
    "\n": " ",
    "\r": " ",
}
_NUMBER = re.compile(r"[+\-−]?[\d.,]+([eE][+\-]?\d+)?( ?%)?( ± [\d.,]+)?$")


def as_text(table: Table) -> str:
    """For a terminal: columns as wide as they need to be, numbers to the right.

    >>> from vitascope.report.tables.table import row
    >>> rows = (row("vit", ["9.5"]), row("convit", ["10.1"]))
    >>> print(as_text(Table(name="", title="", corner="Model", columns=("Top-1",), rows=rows)))
    Model   Top-1
    vit       9.5
    convit   10.1
    """
    head, rows = table.inline()
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = numeric_columns(head, rows)

    def line(words: Sequence[str]) -> str:
        placed = zip(words, widths, right, strict=True)
        return "  ".join(w.rjust(n) if r else w.ljust(n) for w, n, r in placed).rstrip()

    return "\n".join(line(words) for words in [head, *rows])


def as_markdown(table: Table) -> str:
    """A title in bold, if it has one, and the table."""
    head, rows = table.inline(bold="**")
    lines = [[markdown_text(words) for words in line] for line in [head, *rows]]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    drawn.insert(1, "|" + "---|" * len(head))
    title = f"**{markdown_text(table.title)}**\n\n" if table.title else ""
    return title + "\n".join(drawn)


def markdown_text(words: str) -> str:
    r"""One line; nothing that ends a cell or that a Markdown page would take for HTML.

    >>> print(markdown_text("x|y <b>"))
    x\|y &lt;b&gt;
    """
    plain = " ".join(words.split()).replace("|", "\\|")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_latex(table: Table) -> str:
    r"""A ``table`` with ``\toprule``; needs ``\usepackage{booktabs}`` (and amssymb for ticks)."""
    head, rows = table.apart()
    columns = "l" + "".join("r" if right else "l" for right in numeric_columns(head, rows)[1:])
    body = [" & ".join(latex_text(words) for words in line) + r" \\" for line in [head, *rows]]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(table.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        body[0],
        r"\midrule",
        *body[1:],
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines)


def latex_text(words: str) -> str:
    r"""Words as LaTeX prints them.

    >>> print(latex_text("a_b & 50 % ± 1"))
    a\_b \& 50 \% $\pm$ 1
    """
    return "".join(_LATEX.get(letter, letter) for letter in words)


def as_csv(table: Table) -> str:
    """Head and rows; a mean and its spread stand in one cell, as on the page."""
    stream = io.StringIO()
    head, rows = table.apart()
    lines = [[csv_text(words) for words in line] for line in [head, *rows]]
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue().rstrip("\n")


def csv_text(words: str) -> str:
    """A cell that no spreadsheet runs as a formula.

    >>> csv_text("=cmd()"), csv_text("-1.5"), csv_text("-x"), csv_text("−2.0")
    ("'=cmd()", '-1.5', "'-x", '-2.0')
    """
    if _NUMBER.match(words):
        return words.replace("−", "-")
    risky = words.startswith(("\t", "\r", "\n")) or words.lstrip().startswith(tuple("=+-@"))
    return f"'{words}" if risky else words


FILE_WRITERS: dict[str, Callable[[Table], str]] = {
    "md": as_markdown,
    "tex": as_latex,
    "csv": as_csv,
}
