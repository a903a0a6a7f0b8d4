"""Tables for a terminal."""

from collections.abc import Sequence

__all__ = ["table"]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they need to be; numbers to the right.

    >>> print(table(["model", "top-1"], [["vit", "9.5"], ["convit", "10.1"]]))
    model   top-1
    vit       9.5
    convit   10.1
    """
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    numeric = [all(_is_number(row[i]) for row in rows) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    return "\n".join(line(cells) for cells in [head, *rows])


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "+-."
