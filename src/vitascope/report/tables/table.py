"""A table as data: rows of cells with text and notes, for any writer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vitascope.figure import Style


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Words, and a note beside them (the paper's number, the gain over a reference)."""

    words: str
    note: str = ""
    bold: bool = False
    tone: str = ""  # of the note: "ahead", "behind" or nothing


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """A label and its cells; the note stands beside the label."""

    label: str
    cells: tuple[Cell, ...]
    note: str = ""
    style: Style | None = None


def row(
    label: str, cells: Iterable[str | Cell], *, note: str = "", style: Style | None = None
) -> TableRow:
    """A row of words and cells."""
    made = tuple(Cell(words=cell) if isinstance(cell, str) else cell for cell in cells)
    return TableRow(label=label, cells=made, note=note, style=style)


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under the names of their columns; an empty cell has no value.

    ``corner`` names the labels, ``beside`` says what the notes of the cells are.
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
            word for line in self.rows for cell in line.cells for word in (cell.words, cell.note)
        )
        if not all(isinstance(word, str) for word in (*self.columns, *labels, *cells)):
            raise TypeError(f"the table {self.name!r} has cells that are no words")

    @property
    def numeric(self) -> tuple[bool, ...]:
        """Which columns hold numbers and are aligned to the right."""
        return tuple(numeric_columns(*self.inline())[1:])

    def inline(self, bold: str = "") -> tuple[list[str], list[list[str]]]:
        """Head and rows of words, each note in brackets after its words; ``bold`` marks bold words.

        >>> cells = [Cell(words="59.0 ± 1.3", note="59.6"), Cell(words="", note="73.0")]
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
        words = f"{bold}{cell.words}{bold}" if cell.bold else cell.words
        return f"{words or '–'} ({self.beside} {cell.note})" if cell.note else words

    def apart(self) -> tuple[list[str], list[list[str]]]:
        """Head and rows of words, the notes in columns of their own."""
        places = range(len(self.columns))
        noted = [any(line.cells[place].note for line in self.rows) for place in places]
        named = any(line.note for line in self.rows)
        head = [self.corner, *([f"{self.corner} ({self.beside})".strip()] if named else [])]
        for place, column in enumerate(self.columns):
            head += [column, *([f"{column} ({self.beside})"] if noted[place] else [])]
        body = []
        for line in self.rows:
            words = [line.label, *([line.note] if named else [])]
            for place, cell in enumerate(line.cells):
                words += [cell.words, *([cell.note] if noted[place] else [])]
            body.append(words)
        return head, body


def numeric_columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """Which columns hold numbers alone, or nothing; the first has the labels and is not asked.

    >>> numeric_columns(["a", "b", "c"], [["1", "−2 ± 1", "x"], ["2", "", "3"]])
    [False, True, False]
    """
    columns = [[line[place] for line in rows] for place in range(1, len(head))]
    return [False, *(all(map(_is_number, column)) for column in columns)]


def _is_number(words: str) -> bool:
    return not words or words[0].isdigit() or words[0] in "+-−–."
