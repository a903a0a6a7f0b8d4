"""Figures of instruments as pixel arrays, for experiment trackers."""

from collections.abc import Mapping

import numpy as np

from vitascope.figure import Style
from vitascope.record import Record
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.report.instruments.instrument import Seen
from vitascope.report.instruments.summary import INSTRUMENTS


def pictures(records: Mapping[str, Record], label: str) -> dict[str, np.ndarray]:
    """The figure of each record, (height, width, 3) in uint8, by instrument; ``label`` names it."""
    seen = {
        kind: Seen(label=label, style=Style(0, "circle"), record=record)
        for kind, record in records.items()
    }
    return {kind: draw_figure(INSTRUMENTS[kind].draw([one])).pixels() for kind, one in seen.items()}
