"""Figure of token norms: quantiles per unit, high patches, and the attention they draw."""

from collections.abc import Sequence

import numpy as np

from vitascope.figure import Figure, Lines, Maps, Panel, Series
from vitascope.record import Record
from vitascope.report.formatting import number
from vitascope.report.instruments.instrument import Instrument, Seen, mean_row, table_row
from vitascope.report.instruments.per_layer import along, joined, layer_names
from vitascope.report.tables.table import TableRow


def norms(models: Sequence[Seen]) -> Figure:
    """Norms and the share of high ones along the units; of attention, what high patches draw."""
    parts = []
    for seen in models:
        share, where = max(zip(seen.values["high"], seen.values["units"], strict=True))
        if seen.values["appears"] is None:
            parts.append(f"{seen.label} has no patch of high norm")
            continue
        sentence = f"{seen.label}: patches of high norm from {seen.values['appears']} on, at most "
        sentence += f"{number(100 * share)} % (after {where})"
        if seen.values["layers"]:
            drawn, even = max(zip(seen.values["drawn"], seen.values["even"], strict=True))
            sentence += f"; they get up to {number(100 * drawn)} % of attention (uniform: "
            sentence += f"{number(100 * even)} %)"
        parts.append(sentence)
    panels: list[Panel] = [
        along(
            models,
            "units",
            "median",
            _spread,
            title="Norm of a patch",
            y_label="norm (median)",
            y_log=True,
        ),
        along(
            models,
            "units",
            "high",
            factor=100.0,
            title="High norms",
            y_label="patches of high norm (%)",
            floor=0.0,
            include=(0.0, 1.0),
        ),
    ]
    panels += [_drawn(seen) for seen in models if any(seen.values["high"])]
    panels += [_where(seen) for seen in models if any(seen.values["high"])]
    return Figure(
        name="norms",
        title="Patches of high norm",
        reading=joined(parts),
        how="Around the median: from the smallest norm of an image's patches to the largest. High: "
        "above three times the median of its image.",
        panels=tuple(panels),
        definition="|x_i| of each patch in the residual stream; high: above 3 times the median of "
        "the image's patches (Darcet et al. 2024: artifacts, which registers take over).",
    )


def _spread(seen: Seen) -> list[np.ndarray]:
    return list(np.asarray(seen.record.arrays["quantiles"], float))


def _drawn(seen: Seen) -> Lines:
    layers = seen.values["layers"]
    lines = {"to patches of high norm": "drawn", "with uniform attention": "even"}
    return Lines(
        title=f"{seen.label}: attention",
        x_label="attention layer",
        y_label="share of attention (%)",
        x_names=layer_names(layers),
        series=tuple(
            Series(
                label=label,
                x=list(range(len(layers))),
                y=[100 * value for value in seen.values[key]],
                style=seen.style if key == "drawn" else type(seen.style)(6, "circle", "2 3"),
            )
            for label, key in lines.items()
        ),
        floor=0.0,
        include=(0.0,),
    )


def _where(seen: Seen) -> Maps:
    """Return where high patches lie after the unit that has most, and after the last."""
    units, high = seen.values["units"], seen.values["high"]
    chosen = list(dict.fromkeys([units[int(np.argmax(high))], units[-1]]))
    maps = [np.asarray(seen.record.arrays[f"where/{unit}"], float) for unit in chosen]
    down, across = (max(each.shape[axis] for each in maps) for axis in (0, 1))
    values = np.full((1, len(maps), down, across), np.nan)
    for index, each in enumerate(maps):
        values[0, index, : each.shape[0], : each.shape[1]] = each
    title = f"{seen.label}: where they lie"
    rows = ("share of images",)
    return Maps(title=title, rows=rows, columns=tuple(chosen), values=values, log=False)


def _rows(record: Record) -> list[TableRow]:
    values = record.values
    percent = [100 * share for share in values["high"]]
    rows = [
        mean_row("norms", "% of patches of high norm, mean over units", values["units"], percent)
    ]
    if values["appears"] is not None:
        rows.append(table_row("norms", "they appear after", values["appears"]))
    return rows


NORMS: dict[str, Instrument] = {"norms": Instrument(norms, _rows)}
