"""A build-up search as a sentence and a figure (Fig. 12a of Park and Kim 2022).

https://arxiv.org/abs/2202.06709. The networks stand in the order they were tried. Filled marks were
kept, and the line goes through them; hollow ones were taken back. Crosses are the test images,
which decided nothing.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vitascope.record import Record, atomic_write
from vitascope.report.figures.comparison_paper import STYLE
from vitascope.report.figures.style import COLOURS
from vitascope.report.tables.buildup import tried_networks

__all__ = ["draw", "says", "write_figure"]

_KEPT, _LEFT, _TEST = COLOURS[0][0], COLOURS[1][0], COLOURS[6][0]
_FORMATS = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}  # undated
_WIDEST = 9  # letters that have room under a mark


def says(record: Record) -> str:
    """What was found, and whether one can know."""
    rows = tried_networks(record)
    base, kept = rows[0], [row for row in rows if row["kept"]][-1]
    tried = len(rows) - 1
    if kept is base:
        found = f"No MSA block helped: {' '.join(base['kinds'])} stays."
    else:
        before, after = (" ".join(row["kinds"]) for row in (base, kept))
        found = (
            f"Kept {after}: {kept['top1']:.2f} % on the validation images against "
            f"{base['top1']:.2f} % of {before}, and {kept['test_top1']:.2f} % against "
            f"{base['test_top1']:.2f} % on the test images."
        )
    clear = sum(abs(row["change"]) > row["noise"] for row in rows[1:])
    found += f" {clear} of {tried} changes {'is' if clear == 1 else 'are'} beyond the noise (95 %)."
    if clear < tried:
        found += " More seeds or images would tell more."
    if base["top1_std"] is None:
        found += " One seed a network: the spread between runs is unknown."
    if not record.values["complete"]:
        found += " The rule has blocks left to try."
    return found


def draw(record: Record) -> Figure:
    """Accuracy of each network in the order tried, by stage."""
    rows = tried_networks(record)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(max(4.2, 1.4 + 0.72 * len(rows)), 3.6))
        axis = figure.subplots()
        _stages(axis, rows)
        kept = 0
        for x, row in enumerate(rows):
            colour = _KEPT if row["kept"] else _LEFT
            if x:
                style: Any = {"color": colour, "lw": 1.6 if row["kept"] else 0.9}
                dash = "-" if row["kept"] else ":"
                axis.plot([kept, x], [rows[kept]["top1"], row["top1"]], dash, **style)
            seeds, face = row["top1_seeds"], colour if row["kept"] else "white"
            if len(seeds) > 1:
                axis.plot([x] * len(seeds), seeds, "o", color=colour, ms=2.5, alpha=0.4)
            spread: Any = {"capsize": 2, "lw": 0.9, "color": colour}
            axis.errorbar([x], [row["top1"]], [row["top1_std"] or 0.0], ls="none", **spread)
            axis.plot([x], [row["top1"]], "o", color=colour, mfc=face, ms=7, zorder=3)
            axis.plot([x + 0.16], [row["test_top1"]], "x", color=_TEST, ms=5)
            kept = x if row["kept"] else kept
        _name(axis, rows)
    return figure


def _short(word: str) -> str:
    """A stage's word, in numbers where it is long: ``n`` conv blocks, then ``m`` turns.

    >>> _short("cccaca"), _short("c" * 30 + "cacaca")
    ('cccaca', '30c+3ca')
    """
    head, turns = word, 0
    while head.endswith("ca"):
        head, turns = head[:-2], turns + 1
    if len(word) <= _WIDEST or "a" in head:
        return word
    return "+".join([f"{len(head)}c"] * bool(head) + [f"{turns}ca"] * bool(turns))


def _stages(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """A band behind the networks whose new block is in the same stage, with its name above."""
    numbered = list(enumerate(rows))[1:]
    for turn, (stage, members) in enumerate(groupby(numbered, key=lambda pair: pair[1]["stage"])):
        places = [x for x, _ in members]
        if turn % 2 == 0:
            axis.axvspan(places[0] - 0.5, places[-1] + 0.5, color="#f1f3f6", lw=0, zorder=0)
        middle = (places[0] + places[-1]) / 2
        above: Any = {"transform": axis.get_xaxis_transform(), "ha": "center", "va": "bottom"}
        axis.text(middle, 1.0, f"c{stage + 1}", **above)


def _name(axis: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Ticks with number and kinds of the blocks, and a legend."""
    labels = ["\n".join([str(row["num_msa"]), *map(_short, row["kinds"])]) for row in rows]
    axis.set_xticks(range(len(rows)), labels)
    for label in axis.get_xticklabels():
        label.set(family="monospace", size=7.5)
    axis.set(xlim=(-0.5, len(rows) - 0.5), ylabel="top-1 accuracy (%)")
    axis.set_xlabel("number of MSA blocks, and each stage's blocks\n(c conv, a MSA), as tried")
    marks = [("kept", "o", _KEPT, _KEPT), ("not kept", "o", _LEFT, "white")]
    for words, mark, colour, face in [*marks, ("test images", "x", _TEST, _TEST)]:
        axis.plot([], [], mark, color=colour, mfc=face, ms=5, label=words)
    axis.legend(loc="lower left", bbox_to_anchor=(0, 1.06), ncol=3, frameon=False, borderpad=0)


def write_figure(folder: str | Path, record: Record) -> list[Path]:
    """Write ``folder/figures/buildup.{png,svg,pdf}``."""
    figure, written = draw(record), []
    with matplotlib.rc_context(STYLE):
        for kind, undated in _FORMATS.items():
            path = Path(folder) / "figures" / f"buildup.{kind}"
            with atomic_write(path) as stream:
                figure.savefig(stream, format=kind, dpi=200, metadata=undated)
            written.append(path)
    return written
