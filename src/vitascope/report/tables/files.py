"""Tables as files: Markdown, LaTeX with booktabs, and CSV that no spreadsheet takes for a program.

Names in a table come from outside: what is special in LaTeX or ends a Markdown cell is escaped, and
a CSV cell that a spreadsheet would run as a formula gets an apostrophe before it.
"""

import csv
import io
import re
from collections.abc import Callable

from vitascope.report.figures.figure import Table
from vitascope.report.tables.terminal import markdown

__all__ = ["WRITERS", "as_csv", "as_latex", "as_markdown"]

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\textquotedbl{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "≈": r"$\approx$", "Δ": r"$\Delta$",
    "σ": r"$\sigma$", "λ": r"$\lambda$", "π": r"$\pi$", "ε": r"$\varepsilon$", "α": r"$\alpha$",
    "→": r"$\to$", "✓": r"$\checkmark$", "✗": r"$\times$", "…": r"\dots{}", "\n": " ", "\r": " ",
}  # fmt: skip
_NUMBER = re.compile(r"[+\-−]?[\d.,]+([eE][+\-]?\d+)?( ?%)?( ± [\d.,]+)?$")


def latex_text(words: str) -> str:
    r"""Words as LaTeX prints them.

    >>> print(latex_text("a_b & 50 % ± 1"))
    a\_b \& 50 \% $\pm$ 1
    """
    return "".join(_LATEX.get(letter, letter) for letter in words)


def csv_text(words: str) -> str:
    """A cell that stays a cell.

    >>> csv_text("=cmd()"), csv_text("-1.5"), csv_text("-x"), csv_text("−2.0")
    ("'=cmd()", '-1.5', "'-x", '-2.0')
    """
    if _NUMBER.match(words):
        return words.replace("−", "-")
    risky = words.startswith(("\t", "\r", "\n")) or words.lstrip().startswith(tuple("=+-@"))
    return f"'{words}" if risky else words


def as_markdown(table: Table) -> str:
    """A title and a table."""
    head, rows = table.flat()
    clean = [[_one_line(cell) for cell in row] for row in [head, *rows]]
    return f"**{_one_line(table.title)}**\n\n{markdown(clean[0], clean[1:])}\n"


def _one_line(words: str) -> str:
    """No line breaks, and nothing a Markdown page would take for HTML."""
    return " ".join(words.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_latex(table: Table) -> str:
    r"""A ``table`` with ``\toprule``; needs ``\usepackage{booktabs}`` (and amssymb for ticks)."""
    head, rows = table.flat()
    columns = "l" + ("r" if table.numeric else "l") * (len(head) - 1)
    body = [" & ".join(latex_text(cell) for cell in row) + r" \\" for row in [head, *rows]]
    return "\n".join(
        [
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
            "",
        ]
    )


def as_csv(table: Table) -> str:
    """Head and rows; a mean and its spread stand in one cell, as on the page."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head, rows = table.flat()
    writer.writerows([csv_text(cell) for cell in row] for row in [head, *rows])
    return stream.getvalue()


WRITERS: dict[str, Callable[[Table], str]] = {"md": as_markdown, "tex": as_latex, "csv": as_csv}
