"""Figures and table rows of instruments on feature maps: Fourier, variance, CKA, token norms."""

from collections.abc import Iterator, Sequence

import numpy as np

from vitascope.figure import (
    Figure,
    Heat,
    Lines,
    Maps,
    Panel,
    Series,
    Style,
    check_photographs,
    thin,
)
from vitascope.formatting import joined, number, plural, short_names
from vitascope.measure.instrument import (
    ModelRecord,
    along,
    layer_names,
    marks_legend,
    mean_over,
    mean_row,
    table_row,
)
from vitascope.record import Record
from vitascope.table import TableRow


def fourier(models: Sequence[ModelRecord]) -> Figure:
    """Amplitude of high frequencies after each unit."""
    parts = []
    released = any(model.values.get("end") == "released" for model in models)
    for model in models:
        high = model.values["high"]
        parts.append(f"{model.label} {number(high[0])} to {number(high[-1])}{_falls(model, high)}")
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


def _spectra(models: Sequence[ModelRecord]) -> Iterator[Series]:
    """The curve after the last unit of each model; of one model, after units early to late."""
    only = models[0] if len(models) == 1 else None
    for model in models:
        units = model.values["units"]
        for drawn, index in enumerate(thin(len(units), 5) if only else [len(units) - 1]):
            parts = (f"{part}/{units[index]}" for part in ("frequency", "amplitude"))
            x, y = (model.record.arrays[part].tolist() for part in parts)
            label = short_names(units)[index] if only else model.label
            style = Style.numbered(drawn) if only else model.style
            yield Series(label=label, x=x, y=y, style=style)


def variance(models: Sequence[ModelRecord]) -> Figure:
    """Spatial variance of the feature map after each unit."""
    numbers = [float(v) for model in models for v in model.values["variance"]]
    log = min(numbers) > 0 and max(numbers) > 30 * min(numbers)
    parts = []
    for model in models:
        variances = model.values["variance"]
        parts.append(
            f"{model.label}'s variance goes from {number(variances[0])} to {number(variances[-1])}"
            f"{_falls(model, variances)}"
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


def _falls(model: ModelRecord, numbers: Sequence[float]) -> str:
    """After how many units of each kind a number is lower than before them, in words."""
    parts = []
    for kind, noun in (("attention", "attention unit"), ("mlp", "MLP"), ("convolution",) * 2):
        steps = [
            after < before
            for before, after, now in zip(
                numbers, numbers[1:], model.values["kind"][1:], strict=False
            )
            if now == kind
        ]
        if steps:
            parts.append(f"{sum(steps)} of {plural(len(steps), noun)}")
    if len(parts) > 1:
        parts = [", ".join(parts[:-1]), parts[-1]]
    return f", falling after {' and '.join(parts)}" if parts else ""


def cka(models: Sequence[ModelRecord]) -> Figure:
    """Similarity of the units, one matrix per model."""
    panels, parts = [], []
    for model in models:
        values = np.asarray(model.values["similarity"], float)
        rows, columns = model.values["rows"], model.values["columns"]
        panels.append(
            Heat(
                title=model.label,
                rows=tuple(short_names(rows)),
                values=values,
                low=0.0,
                high=1.0,
                columns=tuple(short_names(columns)),
                label="CKA",
            )
        )
        parts.append(
            f"{model.label}'s first and last units have a similarity of {number(values[0, -1])}"
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


def fourier_rows(record: Record) -> list[TableRow]:
    """Return the amplitude at the last frequency."""
    at = "the last frequency" if record.values.get("end") == "released" else "π"
    return mean_over("units", "high", f"Δ log amplitude at {at}, mean over units")(record)


def cka_rows(record: Record) -> list[TableRow]:
    """Return the similarity of different units."""
    values = record.values
    pairs = {
        f"{a} / {b}": similarity
        for a, line in zip(values["rows"], values["similarity"], strict=True)
        for b, similarity in zip(values["columns"], line, strict=True)
        if a != b
    }
    label = "similarity, mean over pairs of units"
    return [mean_row("cka", label, [*pairs], [*pairs.values()])] if pairs else []


def norms(models: Sequence[ModelRecord]) -> Figure:
    """Norms and the share of high ones along the units; of attention, what high patches draw."""
    parts = []
    for model in models:
        share, where = max(zip(model.values["high"], model.values["units"], strict=True))
        if model.values["appears"] is None:
            parts.append(f"{model.label} has no patch of high norm")
            continue
        sentence = (
            f"{model.label}: patches of high norm from {model.values['appears']} on, at most "
        )
        sentence += f"{number(100 * share)} % (after {where})"
        if model.values["layers"]:
            drawn, even = max(zip(model.values["drawn"], model.values["even"], strict=True))
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
    panels += [_drawn(model) for model in models if any(model.values["high"])]
    panels += [_where(model) for model in models if any(model.values["high"])]
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


def _spread(model: ModelRecord) -> list[np.ndarray]:
    return list(np.asarray(model.record.arrays["quantiles"], float))


def _drawn(model: ModelRecord) -> Lines:
    layers = model.values["layers"]
    lines = {"to patches of high norm": "drawn", "with uniform attention": "even"}
    return Lines(
        title=f"{model.label}: attention",
        x_label="attention layer",
        y_label="share of attention (%)",
        x_names=layer_names(layers),
        series=tuple(
            Series(
                label=label,
                x=list(range(len(layers))),
                y=[100 * value for value in model.values[key]],
                style=model.style if key == "drawn" else type(model.style)(6, "circle", "2 3"),
            )
            for label, key in lines.items()
        ),
        floor=0.0,
        include=(0.0,),
    )


def _where(model: ModelRecord) -> Maps:
    """Return where high patches lie after the unit that has most, and after the last."""
    units, high = model.values["units"], model.values["high"]
    chosen = list(dict.fromkeys([units[int(np.argmax(high))], units[-1]]))
    maps = [np.asarray(model.record.arrays[f"where/{unit}"], float) for unit in chosen]
    down, across = (max(each.shape[axis] for each in maps) for axis in (0, 1))
    values = np.full((1, len(maps), down, across), np.nan)
    for index, each in enumerate(maps):
        values[0, index, : each.shape[0], : each.shape[1]] = each
    title = f"{model.label}: where they lie"
    rows = ("share of images",)
    return Maps(title=title, rows=rows, columns=tuple(chosen), values=values, log=False)


def norms_rows(record: Record) -> list[TableRow]:
    """Return the share of patches of high norm, and after which unit there are some."""
    values = record.values
    percent = [100 * share for share in values["high"]]
    rows = [
        mean_row("norms", "% of patches of high norm, mean over units", values["units"], percent)
    ]
    if values["appears"] is not None:
        rows.append(table_row("norms", "they appear after", values["appears"]))
    return rows


def pca(models: Sequence[ModelRecord]) -> Figure:
    """Photographs, and below them the colours of each model's patches."""
    panels, parts = [], []
    for model in models:
        pictures = np.asarray(model.record.arrays["pictures"], float) / 255
        check_photographs(pictures, len(pictures))
        panels.append(
            Maps(
                title=f"{model.label}, {model.values['unit']}",
                rows=("patches",),
                columns=tuple(str(index + 1) for index in range(len(pictures))),
                values=np.asarray(model.record.arrays["colours"], float)[None],
                photographs=pictures,
            )
        )
        share = 100 * sum(model.values["explained"])
        parts.append(f"three components hold {number(share, 0)} % of what varies in {model.label}")
    return Figure(
        name="pca",
        title="PCA of patch features: which patches look alike",
        reading=joined(parts),
        how="Patches of one colour have similar features, also in different images. The colours "
        "have no meaning of their own.",
        panels=tuple(panels),
        definition="Red, green and blue: the first three principal components of all patches, each "
        "from its 2nd to its 98th percentile (Oquab et al. 2023).",
        wide=True,
    )


def pca_rows(record: Record) -> list[TableRow]:
    """Return the share of the variance that each component holds."""
    shares = ", ".join(number(100 * share, 0) for share in record.values["explained"])
    return [table_row("pca", f"{record.values['unit']}: variance of three components, %", shares)]
