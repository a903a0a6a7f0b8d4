"""Claims as lines that can be read: ``top1: convit > vit at 10 %``.

A statement names a table and compares rows of it:

    top1: a > b at 10 %                     row a is above row b in a column
    top1: a at end > a at start             two columns
    top1: a - b at 10 % > a - b at 100 %    one lead is larger than another
    rho: all heads < 0                      a sign; ``> -5`` allows five points
    top1: * at CB > * at without            the mean over all rows; ``a at * > b at *``: columns

A row without a column has that of the next one to its right; a table of one column needs none.
Every statement is a weighted sum of cells that lies above a margin.
"""

from collections.abc import Collection, Iterator, Sequence

Position = tuple[str, str]  # row and column of a table
EVERY = "*"


def name_of_table(statement: str) -> str:
    """The table that a statement is about.

    >>> name_of_table("top1: convit > vit at 10 %")
    'top1'
    """
    name, colon, _ = statement.partition(": ")
    if not colon:
        raise ValueError(f"{statement!r} names no table; write 'TABLE: a > b at COLUMN'")
    return name


def weights_and_margin(
    statement: str, rows: Sequence[str], columns: Sequence[str], filled: Collection[Position]
) -> tuple[dict[Position, float], float]:
    """The weighted sum of cells that a statement is about, and what it should lie above.

    >>> cells = [(row, column) for row in ("a", "b") for column in ("few", "all")]
    >>> weights_and_margin("top1: a > b at few", ["a", "b"], ["few", "all"], cells)
    ({('a', 'few'): 1.0, ('b', 'few'): -1.0}, 0.0)

    Args:
        statement: One line, see the module.
        rows: Labels of the table's rows.
        columns: Names of its columns.
        filled: The cells that have a number.

    Raises:
        ValueError: If it cannot be read, or names a cell that the table does not have.
    """
    comparison = statement.partition(": ")[2]
    left, sign, right = comparison.partition(" > ")
    direction = 1.0
    if not sign:
        left, sign, right = comparison.partition(" < ")
        direction = -1.0
    if not sign:
        raise ValueError(f"{statement!r} compares nothing; write 'a > b at COLUMN' or 'a < 0'")
    terms = list(_signed(left, direction))
    margin = None if right in rows else _number(right)
    if margin is None:
        terms += _signed(right, -direction)
    located = _located(statement, terms, rows, columns)
    weights: dict[Position, float] = {}
    expanded = list(_expanded(located, rows, columns, filled))
    if not expanded:
        missing = [tuple(cell) for _, *cell in located if tuple(cell) not in filled]
        raise ValueError(f"{statement!r} names cells without a number: {missing}")
    for each in expanded:
        for weight, row, column in each:
            weights[row, column] = weights.get((row, column), 0.0) + weight / len(expanded)
    return weights, direction * (margin or 0.0) or 0.0


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _signed(side: str, direction: float) -> Iterator[tuple[float, str]]:
    """The terms of one side: the first is added, the others are subtracted."""
    for i, term in enumerate(side.split(" - ")):
        yield (direction if i == 0 else -direction), term.strip()


def _located(
    statement: str, terms: list[tuple[float, str]], rows: Sequence[str], columns: Sequence[str]
) -> list[tuple[float, str, str]]:
    """Weight, row and column of every term."""
    column = columns[0] if len(columns) == 1 else None
    located = []
    for weight, term in reversed(terms):
        row, own = _row_and_column(statement, term, rows, columns)
        column = own or column
        if column is None:
            raise ValueError(f"{statement!r}: in which column is {row!r}? There are {[*columns]}")
        located.append((weight, row, column))
    return located[::-1]


def _row_and_column(
    statement: str, term: str, rows: Sequence[str], columns: Sequence[str]
) -> tuple[str, str | None]:
    """A row, and its column if the term has one; a label may itself contain " at "."""
    if term in (*rows, EVERY):
        return term, None
    at = term.find(" at ")
    while at >= 0:
        row, column = term[:at], term[at + 4 :]
        if row in (*rows, EVERY) and column in (*columns, EVERY):
            return row, column
        at = term.find(" at ", at + 1)
    raise ValueError(
        f"{statement!r}: {term!r} is no cell; the rows are {[*rows]}, the columns {[*columns]}"
    )


def _expanded(
    terms: list[tuple[float, str, str]],
    rows: Sequence[str],
    columns: Sequence[str],
    filled: Collection[Position],
) -> Iterator[list[tuple[float, str, str]]]:
    """Repeat a statement for each row or column that ``*`` matches and that has a number.

    Without ``*`` the terms themselves.
    """
    by_row = any(row == EVERY for _, row, _ in terms)
    by_column = any(column == EVERY for _, _, column in terms)
    for each in rows if by_row else columns if by_column else (EVERY,):
        replaced = [
            (w, each if row == EVERY else row, each if column == EVERY else column)
            for w, row, column in terms
        ]
        if all((row, column) in filled for _, row, column in replaced):
            yield replaced
