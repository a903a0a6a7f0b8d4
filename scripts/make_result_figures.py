"""Draw the figures of docs/results again from their records.

    python scripts/make_result_figures.py [NAME ...]

The figure ``docs/figures/NAME-FIGURE.png`` is one of the record ``NAME.json`` in docs/records or a
folder there. Existing figures are drawn anew, of all records or of those that are named; a figure
that does not exist yet is drawn when it is named in full.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from make_figures import write

from vitascope.report.exports import drawings
from vitascope.report.page import KINDS, compose
from vitascope.report.records import find

HERE = Path(__file__).parents[1] / "docs"
FIGURES = HERE / "figures"
WIDTH = 1500  # pixels: of many panels each must be read


def main(words: Sequence[str]) -> None:
    """Draw them, and say which."""
    for path in sorted((HERE / "records").rglob("*.json")):
        there = {figure.stem for figure in FIGURES.glob(f"{path.stem}-*.png")}
        wanted = there if not words or path.stem in words else set()
        wanted |= {word for word in words if word.startswith(f"{path.stem}-")}
        if not wanted:
            continue
        for figure, drawing in drawings(compose(find([path], KINDS))):
            name = f"{path.stem}-{figure}"
            if name in wanted:
                write(FIGURES / f"{name}.png", drawing, WIDTH)
                print(name)


if __name__ == "__main__":
    main(sys.argv[1:])
