"""Draw docs/figures/growth-*.png from the record of ``python -m benchmarks growth``.

python scripts/make_growth.py [RECORD]
"""

import sys
from pathlib import Path

from benchmarks.growth import WORKS, growth_figure
from vitascope import record
from vitascope.report.figures.paper_renderer import write_figure

HERE = Path(__file__).parents[1]


def main(path: Path) -> None:
    """Draw the figure of each work, and say where."""
    stored = record.load(path)
    for work in WORKS:
        print(write_figure(growth_figure(stored, work), HERE / f"docs/figures/growth-{work}.png"))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "benchmarks/records/growth")
