"""Make the example figures of the instruments' pages again.

    python scripts/make_figures.py                   draw them from their records
    python scripts/make_figures.py RUNS [NAME ...]   measure them anew, all or those that are named

RUNS is the folder of a finished ``vitascope compare`` of vit_micro, convit_micro and resnet_micro
(``make demo`` leaves one of digits in ``demo``); the records in the repository are of the CIFAR-10
comparison of docs/results. From each model the run with seed 0 and the most images is taken.
Writes ``docs/figures/instruments/NAME.png``, of few colours, and ``records/NAME.json``.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.figure import Figure
from PIL import Image

from vitascope.errors import UserError
from vitascope.figure import Style
from vitascope.inspection.inspect import inspect_subject
from vitascope.inspection.options import InspectOptions
from vitascope.measure import miou
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS
from vitascope.models.segmentation.segmenter import segmenter
from vitascope.record import Record, atomic_write, load, load_config
from vitascope.report.figures.paper_renderer import STYLE, draw_figure
from vitascope.training.trainer.segmentation import pixel_loss

OUT = Path(__file__).parents[1] / "docs" / "figures" / "instruments"
WIDTH, COLOURS = 900, 128  # of a figure: pixels across, colours kept


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One look into one model: the figures it gives, each with its instrument."""

    model: str
    figures: Mapping[str, str]
    layers: tuple[str, ...] = ("*",)
    images: int = 1000
    batches: int = 2  # of 16 augmented images, for curvature


def alike(*names: str) -> dict[str, str]:
    """Figures that are called after their instruments."""
    return {name: name for name in names}


SIGHTS = (
    Sight(
        model="convit_micro", figures=alike("nonlocality", "gates", "windows", "masking", "lesion")
    ),
    Sight(
        model="convit_micro", figures=alike("maps"), layers=("blocks.0.*", "blocks.3.*"), images=500
    ),
    Sight(model="vit_micro", figures=alike("entropy", "fourier"), images=512),
    Sight(model="resnet_micro", figures=alike("variance", "cka"), images=512),
    Sight(model="vit_micro", figures=alike("occlusion", "fgsm", "pgd", "corruption"), images=500),
    Sight(model="vit_micro", figures={"frequency-vit": "frequency"}),
    Sight(model="resnet_micro", figures={"frequency-resnet": "frequency"}),
    Sight(model="resnet_micro", figures=alike("calibration"), images=2000),
    Sight(model="vit_micro", figures=alike("relevance", "norms"), images=256),
    Sight(model="vit_micro", figures=alike("lens", "patching"), images=359),
    Sight(model="vit_micro", figures=alike("hessian", "trajectory"), batches=16),
    Sight(model="vit_micro", figures=alike("blocks")),
    Sight(model="vit_micro", figures=alike("landscape", "density")),
)


def run_of(runs: Path, model: str) -> Path:
    """The run with seed 0 on the largest share of the images."""
    found = list((runs / "runs").glob(f"{model}-*/seed-0"))
    if not found:
        raise UserError(f"{runs} has no run of {model} with seed 0; make one by vitascope compare")
    return max(found, key=lambda run: load_config(run)["recipe"]["subset"]["fraction"])


def measured(runs: Path, sight: Sight) -> Iterator[tuple[str, Record]]:
    """Each figure's record, its subject named by the run's folder."""
    folder = run_of(runs, sight.model)
    look = InspectOptions(
        model=str(folder),
        measures=tuple(sight.figures.values()),
        layers=sight.layers,
        images=sight.images,
        batches=sight.batches,
    )
    records = inspect_subject(look).records
    name = "/".join(folder.parts[-2:])
    for figure, measure in sight.figures.items():
        record = records[measure]
        yield figure, replace(record, config={**record.config, "subject": name, "run": name})


def kept(sight: Sight) -> Iterator[tuple[str, Record]]:
    """Each figure's record as it was kept."""
    for name in sight.figures:
        yield name, load(OUT / "records" / name)


def write(path: Path, figure: Figure, width: int = WIDTH) -> None:
    """Save the figure, at most so many pixels across and of few colours."""
    drawn = BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=min(200, width / figure.get_figwidth()))
    image = Image.open(drawn).convert("RGB")
    with atomic_write(path) as stream:
        image.quantize(COLOURS, dither=Image.Dither.NONE).save(stream, "png", optimize=True)


def scenes(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Made-up scenes: a disc (1) and a square (2) of noisy colour on a noisy ground (0)."""
    generator = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(32), torch.arange(32), indexing="ij")
    images = torch.randn(count, 3, 32, 32, generator=generator)
    masks = torch.zeros(count, 32, 32, dtype=torch.long)
    for image, mask in zip(images, masks, strict=True):
        for label in (1, 2):
            down, across, size = torch.randint(6, 26, (3,), generator=generator).tolist()
            far = torch.stack([(y - down).abs(), (x - across).abs()]).float()
            near = (far.norm(dim=0) if label == 1 else far.amax(0)) <= 3 + size / 5
            mask[near] = label
            image[label, near] += 2
    return images, masks


def segmented() -> tuple[Record, Figure]:
    """A small segmenter after some seconds of training, on scenes it has not seen."""
    torch.manual_seed(0)
    model = segmenter("resnet_micro", 3, width=32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(30):
        images, masks = scenes(8, 1 + step)
        optimizer.zero_grad()
        pixel_loss(model(images), masks).backward()
        optimizer.step()
    images, masks = scenes(64, 0)
    found = miou(model, [(images, masks)])
    with torch.no_grad():
        guess = model.eval()(images[:1])[0].argmax(0)
    figure = Figure(figsize=(6.5, 2.2), layout="constrained")
    pixels = (images[0].permute(1, 2, 0) / 5 + 0.4).clamp(0, 1)
    titles = ("image", "labels", f"prediction, mIoU {found.mean:.3f} of {len(images)} scenes")
    for axis, shown, title in zip(
        figure.subplots(1, 3), (pixels, masks[0], guess), titles, strict=True
    ):
        options: dict[str, Any] = {} if shown.ndim == 3 else {"vmin": 0, "vmax": 2}
        axis.imshow(shown.numpy(), interpolation="nearest", **options)
        axis.set_title(title, fontsize=8)
        axis.set_axis_off()
    return found.to_record(), figure


def main(words: Sequence[str]) -> None:
    """Draw all figures, or measure all or those that are named."""
    named = set(words[1:])
    for each in SIGHTS:
        figures = {name: of for name, of in each.figures.items() if not named or name in named}
        if not figures:
            continue
        sight = replace(each, figures=figures)
        found = measured(Path(words[0]), sight) if words else kept(sight)
        for name, record in found:
            if words:
                record.save(OUT / "records" / name)
            one = ModelRecord(label=sight.model, style=Style(), record=record)
            write(OUT / f"{name}.png", draw_figure(INSTRUMENTS[record.kind].figure([one])))
    if not named or "miou" in named:
        record, figure = segmented()
        if words:
            record.save(OUT / "records" / "miou")
        write(OUT / "miou.png", figure)


if __name__ == "__main__":
    main(sys.argv[1:])
