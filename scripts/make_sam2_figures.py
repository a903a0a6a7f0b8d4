"""The pictures of docs/what-sam2-looks-at.md.

    python scripts/make_sam2_figures.py                              draw them from their records
    python scripts/make_sam2_figures.py sam2_hiera_tiny.safetensors  measure the maps anew

Maps of attention are those of six free photographs (scikit-image's and scikit-learn's) at 1024
pixels. The numbers come from docs/records/trained/attention.json, which
scripts/make_trained_attention.py writes. Two minutes on one core.
"""

import sys
from io import BytesIO
from pathlib import Path

import matplotlib
import numpy as np
import torch
from make_figures import write
from make_photographs import squares
from make_trained_attention import OUT, interval
from matplotlib.figure import Figure
from PIL import Image

from vitascope import capture
from vitascope.loading.opening import open_model
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.record import Record, load
from vitascope.report.figures.paper_renderer import STYLE

FIGURES = OUT.parents[1] / "figures"
NAME, SIDE, SHOWN = "sam2_hiera_tiny", 1024, 160
GLOBAL = ("blocks.5.attn", "blocks.7.attn", "blocks.9.attn")  # those that see the whole image
QUERIES = (  # of each photograph: down, across, 0 to 1
    (0.42, 0.28),
    (0.35, 0.5),
    (0.55, 0.5),
    (0.22, 0.42),
    (0.45, 0.5),
    (0.5, 0.3),
)


def measured(weights: Path) -> Record:
    """Where one patch of each photograph looks, mean over heads."""
    opened = open_model(f"{NAME}@{weights}", image_size=SIDE)
    mean, std = (
        torch.tensor(part)[:, None, None]
        for part in (opened.preprocessing.mean, opened.preprocessing.std)
    )
    images = (squares(SIDE) / 255 - mean) / std
    tokens = ModelStructure(opened.model, images[:1]).coordinates["blocks.5.attn"]
    places = tokens.query[0]
    maps = np.zeros((len(images), len(GLOBAL), 64, 64), np.float16)
    for number, (image, query) in enumerate(zip(images, QUERIES, strict=True)):
        wanted = torch.tensor(query, dtype=places.dtype) * SIDE
        index = int((places - wanted).norm(dim=1).argmin())

        def row(name: str, weights: torch.Tensor, index: int = index) -> torch.Tensor:
            return weights[0, :, index].mean(0)

        with capture.evaluating(opened.model), capture.attention(opened.model, GLOBAL, row) as seen:
            opened.model(image[None])
        for layer, name in enumerate(GLOBAL):
            at = (places / 16).long()
            maps[number, layer, at[:, 0], at[:, 1]] = seen[name].numpy()
    pictures = torch.nn.functional.adaptive_avg_pool2d(squares(SIDE).float(), SHOWN)
    return Record(
        kind="attention of photographs",
        values={"layers": list(GLOBAL), "queries": [list(query) for query in QUERIES]},
        arrays={"maps": maps, "pictures": pictures.round().byte().numpy()},
        config={"name": NAME, "weights": weights.name, "image_size": SIDE},
    )


def maps_figure(record: Record) -> Figure:
    """Photographs with a query patch; below, the same lit by what the patch attends to."""
    maps = np.asarray(record.arrays["maps"], float)
    pictures = np.asarray(record.arrays["pictures"]).transpose(0, 2, 3, 1) / 255
    figure = Figure(figsize=(9, 6.1), layout="constrained")
    axes = figure.subplots(1 + len(GLOBAL), len(maps))
    for column, (picture, query) in enumerate(zip(pictures, record.values["queries"], strict=True)):
        axes[0, column].imshow(picture)
        down, across = (SHOWN * part for part in query)
        axes[0, column].plot(across, down, "o", ms=7, mfc="none", mec="#4cc9f0", mew=2)
        for layer, name in enumerate(GLOBAL):
            values = maps[column, layer]
            light = np.clip(values / np.quantile(values, 0.998), 0, 1) ** 0.5
            large = Image.fromarray(light.astype(np.float32)).resize((SHOWN, SHOWN), 3)
            bright = 0.15 + 0.85 * np.clip(large, 0, 1)[..., None]
            axes[1 + layer, column].imshow(picture * bright)
            axes[1 + layer, 0].set_ylabel(f"block {name.split('.')[1]}", fontsize=9)
    axes[0, 0].set_ylabel("query patch", fontsize=9)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.grid(visible=False)
        for spine in axis.spines.values():
            spine.set_visible(False)
    return figure


def far_figure(record: Record) -> Figure:
    """How far each layer looks at 224 and at 1024 pixels, with random weights dashed."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = (("224", NAME), ("224", "tiny_vit_5m_224"), ("1024", NAME))
    titles = ("SAM 2's Hiera, 224 pixels", "MobileSAM's TinyViT, 224 pixels", "Hiera, 1024 pixels")
    for axis, (size, name), title in zip(figure.subplots(1, 3), panels, titles, strict=True):
        models = record.values[size]["models"]
        for label, style in ((name, "o-"), (f"{name}, random weights", "s--")):
            means, halves = interval(models[label]["nonlocality"])
            at = np.arange(len(means))
            words = "random weights" if "random" in label else "trained"
            axis.errorbar(at, means, halves, fmt=style, ms=4, lw=1.2, capsize=2, label=words)
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("attention layer", fontsize=8)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
    figure.axes[0].set_ylabel("nonlocality (patches)", fontsize=8)
    figure.axes[0].legend(fontsize=7, frameon=False)
    return figure


def far_table(record: Record, size: str, name: str) -> str:
    """Nonlocality and entropy of each layer, as the page has them."""
    models = record.values[size]["models"]
    trained, random = models[name], models[f"{name}, random weights"]
    columns = [
        *interval(trained["nonlocality"]),
        interval(random["nonlocality"])[0],
        *interval(trained["entropy"]),
    ]
    lines = ["| layer | nonlocality | random weights | entropy |", "|---|---|---|---|"]
    for layer, far, half, even, spread, error in zip(trained["layers"], *columns, strict=True):
        short = layer.removesuffix(".attn")
        cells = (short, f"{far:.1f} ± {half:.1f}", f"{even:.1f}", f"{spread:.2f} ± {error:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def steps_table(record: Record) -> str:
    """How often a unit raises the share of high frequencies within a stage."""
    lines = ["| network | attention raises | MLP raises |", "|---|---|---|"]
    for name, one in record.values["224"]["models"].items():
        found = one["fourier"]
        cells = []
        for kind in ("attention", "mlp"):
            changes = [
                after - before
                for before, after, stage, other, each in zip(
                    found["high"],
                    found["high"][1:],
                    found["stage"],
                    found["stage"][1:],
                    found["kind"][1:],
                    strict=False,
                )
                if each == kind and stage == other and after != before
            ]
            cells.append(f"{sum(change > 0 for change in changes)} of {len(changes)}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    """Measure if weights are given, draw, and print the tables of the page."""
    if words:
        measured(Path(words[0])).save(OUT / "maps")
    numbers = load(OUT / "attention")
    with matplotlib.rc_context(STYLE):
        drawn = BytesIO()
        maps_figure(load(OUT / "maps")).savefig(drawn, format="png", dpi=100)
        Image.open(drawn).convert("RGB").save(FIGURES / "sam2-attention.jpg", quality=75)
        write(FIGURES / "sam2-nonlocality.png", far_figure(numbers))
    print(far_table(numbers, "1024", NAME), steps_table(numbers), sep="\n\n")


if __name__ == "__main__":
    main(sys.argv[1:])
