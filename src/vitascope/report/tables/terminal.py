"""Tables for a terminal and for Markdown."""

from collections.abc import Sequence

from vitascope.record import Record

__all__ = ["comparison", "markdown", "table"]


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


def comparison(answer: Record) -> str:
    """The table of a comparison and its recommendation."""
    values = answer.values
    models = [model["name"] for model in values["models"]]
    rows = []
    for row in values["table"]:
        entries = {entry["model"]: entry for entry in row["entries"]}
        cells = [f"{100 * row['fraction']:g} %", str(row["num_images"])]
        for model in models:
            entry = entries[model]
            spread = "" if entry["std"] is None else f" ± {entry['std']:.1f}"
            gain = "" if entry["gain"] is None else f" ({entry['gain']:+.1f} %, {entry['verdict']})"
            cells.append(f"{entry['mean']:.1f}{spread}{gain}")
        rows.append(cells)
    advice = values["recommendation"]
    lines = [table(["data", "images", *models], rows), "", advice["headline"], *advice["sentences"]]
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    return not cell or cell[0].isdigit() or cell[0] in "+-."


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; what would end a cell is escaped.

    >>> print(markdown(["a"], [["x|y"]]))
    | a |
    |---|
    | x\\|y |
    """
    lines = [head, ["---"] * len(head), *rows]
    text = ["| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |" for line in lines]
    text[1] = text[1].replace(" ", "")
    return "\n".join(text)
