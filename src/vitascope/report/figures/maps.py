"""Many small maps as one picture inside a drawing: one row per layer, one column per head."""

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from vitascope.figure import Maps, thin
from vitascope.report.figures import svg
from vitascope.report.figures.heat import drawn, image, photograph

DECADES = 1e-3  # of the largest weight; what is below has the darkest colour, as in ConViT's Fig. 7
MOST_ROWS, MOST_COLUMNS = 16, 12  # of maps
SMALLEST = 80  # pixels across a photograph
LETTERS = 22  # of a row: "layer 12, register 4"


def map_levels(panel: Maps) -> np.ndarray:
    """(R, C, h, w) from 0 to 1; on a log scale over three decades below the largest."""
    values = np.asarray(panel.values, float)
    top = float(np.nanmax(values)) if np.isfinite(values).any() else 1.0
    if panel.log:
        floor = max(top * DECADES, 1e-30)
        at = np.log(np.maximum(values, floor) / floor) / -math.log(DECADES)
    else:
        low = float(np.nanmin(values)) if np.isfinite(values).any() else 0.0
        at = (values - low) / max(top - low, 1e-30)
    return np.where(np.isfinite(values), np.clip(at, 0, 1), np.nan)


def lit(panel: Maps) -> np.ndarray:
    """The photographs, then each row's maps as light on them. (1 + R, C, H, W, 3) uint8

    Light is a map from 0 to its largest value, smoothed between its places; what has none keeps a
    tenth of its brightness. Maps that are colours are shown as they are.
    """
    from PIL import Image

    photographs = np.asarray(panel.photographs, float)
    size = (photographs.shape[2], photographs.shape[1])
    rows = [photographs]
    for row in np.nan_to_num(np.asarray(panel.values, float)):
        if row.ndim == 4:
            rows.append(np.stack([_enlarged(one, size) for one in row]))
            continue
        tops = np.maximum(row.max((1, 2), keepdims=True), 1e-30)
        light = [
            np.asarray(
                Image.fromarray(one.astype(np.float32)).resize(size, Image.Resampling.BICUBIC)
            )
            for one in np.clip(row / tops, 0, 1)
        ]
        rows.append(photographs * (0.1 + 0.9 * np.clip(np.stack(light), 0, 1))[..., None])
    return (255 * np.clip(np.stack(rows), 0, 1)).round().astype(np.uint8)


def _enlarged(colours: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Colours (h, w, 3), 0 to 1, at (across, down) by their nearest places."""
    down, across = (
        (np.arange(pixels) * places // pixels)
        for pixels, places in zip(size[::-1], colours.shape[:2], strict=True)
    )
    return colours[down[:, None], across]


def draw_maps(panel: Maps, *, width: float = 420, **_: float) -> Markup:
    """One row per layer, one column per head; of very many an even choice. The query is ringed."""
    if panel.photographs is not None:
        return _draw_lit(panel, width)
    at = map_levels(panel)
    if at.ndim != 4 or not at.size:
        return Markup('<p class="none">No map to draw.</p>')
    rows, columns = thin(at.shape[0], MOST_ROWS), thin(at.shape[1], MOST_COLUMNS)
    at = at[np.ix_(rows, columns)]
    at = at[:, :, :: math.ceil(at.shape[2] / 32), :: math.ceil(at.shape[3] / 32)]
    high, wide = at.shape[2:]
    fine = max(1, round(9 / wide))  # pixels a key, so that a gap of one is a thin one
    gap = max(1, round(0.1 * wide * fine))
    step = (high * fine + gap, wide * fine + gap)
    sheet = np.full((step[0] * len(rows) - gap, step[1] * len(columns) - gap), np.nan)
    for (row, column), _ in np.ndenumerate(at[:, :, 0, 0]):
        one = np.repeat(np.repeat(at[row, column], fine, 0), fine, 1)
        top, side = row * step[0], column * step[1]
        sheet[top : top + high * fine, side : side + wide * fine] = one
    left = 10 + max((svg.width(svg.shorten(panel.rows[r], LETTERS), 10.5) for r in rows), default=0)
    unit = min((width - left) / len(columns), 62.0) / step[1]
    parts = [image(sheet, left, 18, sheet.shape[1] * unit, sheet.shape[0] * unit, "magma")]
    names = _fitting([panel.columns[c] for c in columns], step[1] * unit)
    for index, name in enumerate(names):
        x = left + (index * step[1] + wide * fine / 2) * unit
        parts.append(svg.text(x, 12, name, anchor="middle"))
    for index, row in enumerate(rows):
        y = 18 + (index * step[0] + high * fine / 2) * unit + 4
        parts.append(svg.text(left - 8, y, panel.rows[row], anchor="end", most=LETTERS))
    for (row, column), label in _labels(panel, rows, columns):
        x, y = left + column * step[1] * unit + 2, 18 + row * step[0] * unit + 9
        parts.append(svg.text(x, y, label, "on-map"))
    if panel.query is not None:
        others = [index for index, row in enumerate(rows) if panel.rows[row] in panel.unringed]
        asked = at.copy()
        asked[others] = np.nan
        parts += _queries(
            panel.query, np.asarray(panel.values).shape[2:], asked, left, unit, step, fine
        )
    summary = (
        f"{panel.title or 'Maps'}: {len(rows)} rows ({', '.join(panel.rows[r] for r in rows)}) "
    )
    summary += f"of {len(columns)} maps."
    return drawn(parts, width, 22 + sheet.shape[0] * unit, summary)


def _labels(
    panel: Maps, rows: Sequence[int], columns: Sequence[int]
) -> list[tuple[tuple[int, int], str]]:
    """The words on the maps that are drawn, with the place of each."""
    if not panel.labels:
        return []
    return [
        ((i, j), panel.labels[row][column])
        for i, row in enumerate(rows)
        for j, column in enumerate(columns)
        if column < len(panel.labels[row]) and panel.labels[row][column]
    ]


def _draw_lit(panel: Maps, width: float) -> Markup:
    """A row of photographs, and a row of them lit by each row of maps."""
    tiles = lit(panel)
    columns = thin(tiles.shape[1], min(MOST_COLUMNS, int(width / SMALLEST)))
    names = ("image", *panel.rows)
    left = 10 + max(svg.width(svg.shorten(name, LETTERS), 10.5) for name in names)
    wide = min((width - left) / len(columns), 108.0)
    high = wide * tiles.shape[2] / tiles.shape[3]
    parts = []
    for row, name in enumerate(names):
        y = 18 + row * high
        parts.append(svg.text(left - 8, y + high / 2 + 4, name, anchor="end", most=LETTERS))
        for index, column in enumerate(columns):
            box = (left + index * wide, y, wide - 4, high - 4)
            parts.append(photograph(tiles[row, column], *box))
    for index, column in enumerate(columns):
        x = left + (index + 0.5) * wide - 2
        parts.append(svg.text(x, 12, panel.columns[column], anchor="middle"))
    summary = (
        f"{panel.title or 'Maps'}: {len(columns)} images, and below them {', '.join(panel.rows)}."
    )
    return drawn(parts, width, 18 + len(names) * high, summary)


def _queries(
    query: tuple[float, float],
    grid: tuple[int, ...],
    at: np.ndarray,
    left: float,
    unit: float,
    step: tuple[int, int],
    fine: int,
) -> list[Markup]:
    """A ring on every map, where the patch that looks is."""
    down, across = ((query[i] + 0.5) / grid[i] * at.shape[2 + i] * fine for i in (0, 1))
    return [
        svg.tag(
            "circle",
            cx=left + (column * step[1] + across) * unit,
            cy=18 + (row * step[0] + down) * unit,
            r=3,
            class_="query",
        )
        for row, column in np.argwhere(np.isfinite(at).any((2, 3)))
    ]


def _fitting(names: Sequence[str], room: float) -> list[str]:
    """Names as wide as there is room: without what all of them begin with, then shortened.

    >>> _fitting(["head 1", "head 2"], 100)
    ['head 1', 'head 2']
    >>> _fitting(["head 1", "head 2"], 20)
    ['1', '2']
    """
    if max(svg.width(name, 10.5) for name in names) <= room:
        return list(names)
    parts = [name.split(" ") for name in names]
    while min(map(len, parts)) > 1 and len({part[0] for part in parts}) == 1:
        parts = [part[1:] for part in parts]
    return [svg.shorten(" ".join(part), max(2, int(room / 6.7))) for part in parts]
