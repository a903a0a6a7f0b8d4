"""Records of instruments as pictures, for those who keep pixels (experiment trackers)."""

from collections.abc import Mapping

import numpy as np

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.report.instruments.instrument import Seen
from vitascope.report.instruments.summary import INSTRUMENTS

__all__ = ["pictures"]


def pictures(records: Mapping[str, Record], label: str) -> dict[str, np.ndarray]:
    """The figure of each record, (height, width, 3) in uint8, by instrument; ``label`` names it."""
    seen = {
        kind: Seen(label=label, style=Style(0, "circle"), record=record)
        for kind, record in records.items()
    }
    return {kind: draw_figure(INSTRUMENTS[kind].draw([one])).pixels() for kind, one in seen.items()}
