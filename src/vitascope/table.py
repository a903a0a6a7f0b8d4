"""A table as data, written for a terminal, as Markdown, LaTeX with booktabs, or CSV.

Pages have a template of their own, table.html.

Names in a table come from outside: what is special in LaTeX or ends a Markdown cell is escaped, and
a CSV cell that a spreadsheet would run as a formula gets an apostrophe before it.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vitascope.figure import Style


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Words, and a note next to them (the paper's number, the gain over a reference)."""

    text: str
    note: str = ""
    bold: bool = False
    tone: str = ""  # of the note: "ahead", "behind" or nothing


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A label and its cells; the note stands next to the label."""

    label: str
    cells: tuple[Cell, ...]
    note: str = ""
    style: Style | None = None


def row(
    label: str, cells: Iterable[str | Cell], *, note: str = "", style: Style | None = None
) -> TableRow:
    """A row of words and cells."""
    made = tuple(Cell(text=cell) if isinstance(cell, str) else cell for cell in cells)
    return TableRow(label=label, cells=made, note=note, style=style)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under the names of their columns; an empty cell has no value.

    ``corner`` names the labels, ``next to`` says what the notes of the cells are.
    """

    name: str
    title: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    beside: str = "paper"
    caption: str = ""
    styles: tuple[Style, ...] = ()  # of the columns

    def __post_init__(self) -> None:
        """Refuse cells that are not text, which a damaged record may have."""
        labels = (word for line in self.rows for word in (line.label, line.note))
        cells = (
            word for line in self.rows for cell in line.cells for word in (cell.text, cell.note)
        )
        if not all(isinstance(word, str) for word in (*self.columns, *labels, *cells)):
            raise TypeError(f"the table {self.name!r} has cells that are no words")

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Columns that hold numbers and are aligned to the right."""
        return tuple(numeric_columns(*self.inline())[1:])

    def inline(self, bold: str = "") -> tuple[list[str], list[list[str]]]:
        """Head and rows of words, each note in brackets after its words; ``bold`` marks bold words.

        >>> cells = [Cell(text="59.0 ± 1.3", note="59.6"), Cell(text="", note="73.0")]
        >>> table = Table(
        ...     name="",
        ...     title="",
        ...     corner="Model",
        ...     columns=("10 %", "all"),
        ...     rows=(row("vit", cells, note="DeiT-S"),),
        ... )
        >>> table.inline()[1]
        [['vit (DeiT-S)', '59.0 ± 1.3 (paper 59.6)', '– (paper 73.0)']]
        """
        body = []
        for line in self.rows:
            label = f"{line.label} ({line.note})" if line.note else line.label
            body.append([label, *(self._with_note(cell, bold) for cell in line.cells)])
        return [self.corner, *self.columns], body

    def _with_note(self, cell: Cell, bold: str) -> str:
        text = f"{bold}{cell.text}{bold}" if cell.bold else cell.text
        return f"{text or '–'} ({self.beside} {cell.note})" if cell.note else text

    def apart(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of words, the notes in columns of their own."""
        indices = range(len(self.columns))
        noted = [any(line.cells[index].note for line in self.rows) for index in indices]
        named = any(line.note for line in self.rows)
        head = [self.corner, *([f"{self.corner} ({self.beside})".strip()] if named else [])]
        for index, column in enumerate(self.columns):
            head += [column, *([f"{column} ({self.beside})"] if noted[index] else [])]
        body = []
        for line in self.rows:
            parts = [line.label, *([line.note] if named else [])]
            for index, cell in enumerate(line.cells):
                parts += [cell.text, *([cell.note] if noted[index] else [])]
            body.append(parts)
        return head, body


def numeric_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return which columns hold numbers or nothing; the first, of labels, is left out.

    >>> numeric_columns(["a", "b", "c"], [["1", "−2 ± 1", "x"], ["2", "", "3"]])
    [False, True, False]
    """
    columns = [[line[index] for line in rows] for index in range(1, len(head))]
    return [False, *(all(map(_is_number, column)) for column in columns)]


def _is_number(text: str) -> bool:
    return not text or text[0].isdigit() or text[0] in "+-−–."


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

    >>> rows = (row("vit", ["9.5"]), row("convit", ["10.1"]))
    >>> print(as_text(Table(name="", title="", corner="Model", columns=("Top-1",), rows=rows)))
    Model   Top-1
    vit       9.5
    convit   10.1
    """
    head, rows = table.inline()
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = numeric_columns(head, rows)

    def line(row: Sequence[str]) -> str:
        placed = zip(row, widths, right, strict=True)
        return "  ".join(w.rjust(n) if r else w.ljust(n) for w, n, r in placed).rstrip()

    return "\n".join(line(row) for row in [head, *rows])


def as_markdown(table: Table) -> str:
    """A title in bold, if it has one, and the table."""
    head, rows = table.inline(bold="**")
    lines = [[markdown_text(text) for text in line] for line in [head, *rows]]
    drawn = [f"| {' | '.join(line)} |" for line in lines]
    drawn.insert(1, "|" + "---|" * len(head))
    title = f"**{markdown_text(table.title)}**\n\n" if table.title else ""
    return title + "\n".join(drawn)


def markdown_text(text: str) -> str:
    r"""One line; nothing that ends a cell or that a Markdown page would take for HTML.

    >>> print(markdown_text("x|y <b>"))
    x\|y &lt;b&gt;
    """
    plain = " ".join(text.split()).replace("|", "\\|")
    entities = re.sub(r"&(?=#?\w+;)", "&amp;", plain)  # a lone & is itself
    return entities.replace("<", "&lt;").replace(">", "&gt;")


def as_latex(table: Table) -> str:
    r"""A ``table`` with ``\toprule``; needs ``\usepackage{booktabs}`` (and amssymb for ticks)."""
    head, rows = table.apart()
    columns = "l" + "".join("r" if right else "l" for right in numeric_columns(head, rows)[1:])
    body = [" & ".join(latex_text(text) for text in line) + r" \\" for line in [head, *rows]]
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


def latex_text(text: str) -> str:
    r"""Words as LaTeX prints them.

    >>> print(latex_text("a_b & 50 % ± 1"))
    a\_b \& 50 \% $\pm$ 1
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def as_csv(table: Table) -> str:
    """Head and rows; a mean and its spread stand in one cell, as on the page."""
    stream = io.StringIO()
    head, rows = table.apart()
    lines = [[csv_text(text) for text in line] for line in [head, *rows]]
    csv.writer(stream, lineterminator="\n").writerows(lines)
    return stream.getvalue().rstrip("\n")


def csv_text(text: str) -> str:
    """A cell that no spreadsheet runs as a formula.

    >>> csv_text("=cmd()"), csv_text("-1.5"), csv_text("-x"), csv_text("−2.0")
    ("'=cmd()", '-1.5', "'-x", '-2.0')
    """
    if _NUMBER.match(text):
        return text.replace("−", "-")
    risky = text.startswith(("\t", "\r", "\n")) or text.lstrip().startswith(tuple("=+-@"))
    return f"'{text}" if risky else text


FILE_WRITERS: dict[str, Callable[[Table], str]] = {
    "md": as_markdown,
    "tex": as_latex,
    "csv": as_csv,
}
