"""Noise of one frequency in studies: the accuracy that it costs, as a table and a figure.

Park and Kim 2022, https://arxiv.org/abs/2202.06709, Fig. 2b and appendix B.
"""

from typing import Any

import numpy as np

from vitascope.figure import Figure
from vitascope.papers.figures import lines, over
from vitascope.papers.plan import Findings, Reading, Sheet
from vitascope.papers.vit.tables import Runs, lost_images
from vitascope.record import Record


def lost(low: float, high: float) -> dict[str, Any]:
    """Accuracy lost to noise of the frequencies between these, in pi: how to ask for it."""

    def band(record: Record) -> list[int]:
        return [i for i, f in enumerate(record.values["frequencies"]) if low <= f <= high]

    def key(record: Record) -> float | None:
        found = [record.values["accuracy"][i] for i in band(record)]
        return record.values["clean"] - float(np.mean(found)) if found else None

    return {"key": key, "sample": lost_images(band)}


def noise_table(runs: Runs, reading: Reading, where: str) -> Sheet:
    """What low and high frequencies cost each network."""
    title = f"Accuracy lost to noise up to 0.4 pi and from 0.6 pi on ({where})"
    bands = {"low": lost(0.0, 0.4), "high": lost(0.6, 1.0)}
    asked = {band: {"reading": reading, **how} for band, how in bands.items()}
    return Sheet.of_runs("noise", title, runs, asked, unit="lost, %", accuracy=False)


def noise_figure(
    findings: Findings, runs: Runs, reading: Reading, panel: str, where: str
) -> Figure:
    """The accuracy lost at every frequency, a line per network."""
    series = []
    for label, training in runs.items():
        records = [record.values for record in findings.of(training, reading)]
        at = records[0]["frequencies"]
        drops = [[100 * (v["clean"] - v["accuracy"][i]) for v in records] for i in range(len(at))]
        series.append(over(at, drops, label))
    drawn = lines(panel, series, x="frequency of the noise, pi", y="accuracy lost, %")
    said = "A higher line loses more accuracy."
    title = f"Noise of one frequency ({where})"
    return Figure(name="noise", title=title, reading=said, panels=(drawn,))
