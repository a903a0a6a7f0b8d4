"""Figures of units: frequencies, variance, CKA, lesions, masking, of one or several models."""

from collections.abc import Iterator, Sequence

import numpy as np

from vitascope.figure import Dots, DotSeries, Figure, Heat, Lines, Series
from vitascope.record import Record
from vitascope.report.figures.axes import thin
from vitascope.report.figures.style import Styles
from vitascope.report.formatting import number, plural, short_names
from vitascope.report.instruments.instrument import Instrument, Seen, mean_over, mean_row, table_row
from vitascope.report.instruments.per_layer import along, joined, marks_legend
from vitascope.report.tables.table import TableRow


def fourier(models: Sequence[Seen]) -> Figure:
    """Amplitude of high frequencies after each unit."""
    parts = []
    released = any(seen.values.get("end") == "released" for seen in models)
    for seen in models:
        high = seen.values["high"]
        parts.append(f"{seen.label} {number(high[0])} to {number(high[-1])}{_falls(seen, high)}")
    ends = Lines(
        title="After the last unit" if len(models) > 1 else "After some of the units",
        x_label="frequency (π)",
        y_label="Δ log amplitude",
        series=tuple(_spectra(models)),
    )
    way = along(
        models,
        "units",
        "high",
        title="At the last frequency, unit by unit" if released else "At frequency π, unit by unit",
        y_label="Δ log amplitude",
    )
    return Figure(
        name="fourier",
        title="Fourier spectrum of the feature maps",
        reading=f"High frequencies from the first unit to the last: {joined(parts, 3)}",
        how="Lower: high frequencies are damped more, relative to the zero frequency. "
        + marks_legend(models),
        panels=(way, ends),
        definition="Δ log amplitude(f) = mean log |F[f, f]| − mean log |F[0, 0]| of the feature "
        "map after a unit, in natural logarithms, each relative to white noise (Park & Kim, arXiv "
        "2202.06709, Fig. 2a and 8).",
    )


def _spectra(models: Sequence[Seen]) -> Iterator[Series]:
    """The curve after the last unit of each model; of one model, after units early to late."""
    only = models[0] if len(models) == 1 else None
    styles = Styles()
    for seen in models:
        units = seen.values["units"]
        for index in thin(len(units), 5) if only else [len(units) - 1]:
            parts = (f"{part}/{units[index]}" for part in ("frequency", "amplitude"))
            x, y = (seen.record.arrays[part].tolist() for part in parts)
            label = short_names(units)[index] if only else seen.label
            yield Series(label=label, x=x, y=y, style=styles.of(label) if only else seen.style)


def variance(models: Sequence[Seen]) -> Figure:
    """Spatial variance of the feature map after each unit."""
    numbers = [float(v) for seen in models for v in seen.values["variance"]]
    log = min(numbers) > 0 and max(numbers) > 30 * min(numbers)
    parts = []
    for seen in models:
        variances = seen.values["variance"]
        parts.append(
            f"{seen.label}'s variance goes from {number(variances[0])} to {number(variances[-1])}"
            f"{_falls(seen, variances)}"
        )
    panel = along(
        models,
        "units",
        "variance",
        y_log=log,
        y_label="variance over space",
        floor=0.0,
    )
    return Figure(
        name="variance",
        title="Spatial variance of the feature maps",
        reading=joined(parts, 3),
        panels=(panel,),
        how=marks_legend(models),
        definition="Variance of the feature map over space, averaged over channels and images, "
        "after each unit (Park & Kim, Fig. 9): averaging lowers it.",
    )


def _falls(seen: Seen, numbers: Sequence[float]) -> str:
    """After how many units of each kind a number is lower than before them, in words."""
    parts = []
    for kind, noun in (("attention", "attention unit"), ("mlp", "MLP"), ("convolution",) * 2):
        steps = [
            after < before
            for before, after, now in zip(
                numbers, numbers[1:], seen.values["kind"][1:], strict=False
            )
            if now == kind
        ]
        if steps:
            parts.append(f"{sum(steps)} of {plural(len(steps), noun)}")
    if len(parts) > 1:
        parts = [", ".join(parts[:-1]), parts[-1]]
    return f", falling after {' and '.join(parts)}" if parts else ""


def cka(models: Sequence[Seen]) -> Figure:
    """Similarity of the units, one matrix per model."""
    panels, parts = [], []
    for seen in models:
        values = np.asarray(seen.values["similarity"], float)
        rows, columns = seen.values["rows"], seen.values["columns"]
        panels.append(
            Heat(
                title=seen.label,
                rows=tuple(short_names(rows)),
                values=values,
                low=0.0,
                high=1.0,
                columns=tuple(short_names(columns)),
                label="CKA",
            )
        )
        parts.append(
            f"{seen.label}'s first and last units have a similarity of {number(values[0, -1])}"
        )
    return Figure(
        name="cka",
        title="Similarity of the units (CKA)",
        reading=joined(parts),
        how="Yellow: alike up to rotation and scale; dark: independent.",
        panels=tuple(panels),
        definition="Linear centred kernel alignment with the unbiased HSIC_1, summed over "
        "mini-batches (Nguyen et al. 2021; Park & Kim, Fig. 10a).",
    )


def lesion(models: Sequence[Seen]) -> Figure:
    """Points of accuracy lost without each unit."""
    models = [seen for seen in models if seen.values["units"]] or list(models)
    parts = []
    for seen in models:
        lost = seen.values["lost"]
        if lost:
            worst = int(np.argmax(lost))
            parts.append(
                f"{seen.label} ({number(100 * seen.values['intact'], 1)} % intact) loses most "
                f"without {seen.values['units'][worst]}: {number(100 * lost[worst], 1)} points"
            )
    panel = along(
        models,
        "units",
        "lost",
        factor=100.0,
        y_label="accuracy lost (points)",
    )
    return Figure(
        name="lesion",
        title="Lesions: accuracy lost without each unit",
        reading=joined(parts or ["No unit was dropped"]),
        how=f"One unit is dropped at a time, nothing is trained again. {marks_legend(models)}",
        panels=(panel,),
        definition="lost(u) = accuracy of the network − accuracy without unit u (Park & Kim, "
        "Fig. 10b).",
    )


def masking(models: Sequence[Seen]) -> Figure:
    """Accuracy with positions or content masked."""
    groups = {"as it is": ("unmasked", "")}
    for seen in models:
        if seen.values["no_positions"] is not None:
            groups["no position embeddings"] = ("no_positions", "")
        for part in ("content", "position"):
            for layers in seen.values[f"{part}_masked"]:
                where = plural(int(layers), "layer")
                groups[f"no {part} in {where}"] = (f"{part}_masked", layers)
    series, parts = [], []
    for seen in models:
        lines = []
        for key, layers in groups.values():
            value = seen.values[key].get(layers) if layers else seen.values[key]
            lines.append([None if value is None else 100 * value])
        series.append(DotSeries(label=seen.label, values=lines, style=seen.style))
        measured = [
            (row[0], name) for row, name in zip(lines, groups, strict=True) if row[0] is not None
        ]
        low = min(measured)
        parts.append(
            f"{seen.label} falls from {number(measured[0][0], 1)} % to {number(low[0], 1)} % "
            f"with {low[1]}"
        )
    panel = Dots(y_label="top-1 accuracy (%)", groups=tuple(groups), series=tuple(series))
    return Figure(
        name="masking",
        title="Masking: accuracy without positions, and without content",
        reading=joined(parts),
        how="Masked at test time, nothing is trained again.",
        panels=(panel,),
        definition="Position embeddings set to zero; gates of the first k gated layers forced to 1 "
        "(no content) or 0 (no position) (ConViT, Tables 5 and 6).",
    )


def _fourier_rows(record: Record) -> list[TableRow]:
    at = "the last frequency" if record.values.get("end") == "released" else "π"
    return mean_over("units", "high", f"Δ log amplitude at {at}, mean over units")(record)


def _cka_rows(record: Record) -> list[TableRow]:
    values = record.values
    pairs = {
        f"{a} / {b}": similarity
        for a, line in zip(values["rows"], values["similarity"], strict=True)
        for b, similarity in zip(values["columns"], line, strict=True)
        if a != b
    }
    label = "similarity, mean over pairs of units"
    return [mean_row("cka", label, [*pairs], [*pairs.values()])] if pairs else []


def _masking_rows(record: Record) -> list[TableRow]:
    values = record.values
    whole = {"nothing": values["unmasked"]}
    if values["no_positions"] is not None:
        whole["position embeddings"] = values["no_positions"]
    for part in ("content", "position"):
        for k, accuracy in values[f"{part}_masked"].items():
            whole[f"{part} of {plural(int(k), 'layer')}"] = accuracy
    return [
        table_row("masking", f"top-1 without {mask}", f"{100 * accuracy:.1f} %")
        for mask, accuracy in whole.items()
    ]


def _lesion_rows(record: Record) -> list[TableRow]:
    values = record.values
    rows = [table_row("lesion", "top-1, intact", f"{100 * values['intact']:.1f} %")]
    if values["units"]:
        points = [100 * lost for lost in values["lost"]]
        rows.append(mean_row("lesion", "points lost, mean over units", values["units"], points))
    return rows


UNITS: dict[str, Instrument] = {
    "fourier": Instrument(fourier, _fourier_rows),
    "variance": Instrument(variance, mean_over("units", "variance", "over space, mean over units")),
    "cka": Instrument(cka, _cka_rows),
    "masking": Instrument(masking, _masking_rows),
    "lesion": Instrument(lesion, _lesion_rows),
}
