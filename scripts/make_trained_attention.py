"""The numbers of docs/what-sam2-looks-at.md: two trained attention networks and random weights.

    python scripts/make_trained_attention.py SAM2 TINYVIT IMAGES

SAM2 and TINYVIT are files of weights of timm's `sam2_hiera_tiny` and `tiny_vit_5m_224` (the page
says where they come from), IMAGES the ImageNet validation images in a folder for each class. The
record goes to docs/records/trained/attention.json. At 224 pixels the first image of 48 classes is
measured, at SAM 2's own 1024 pixels of 8 classes, one image at a time, so that every number has an
interval over photographs. It takes about half an hour on one core.
"""

import sys
from collections.abc import Iterator
from math import log
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy.stats import t as student
from torch import Tensor, nn

from vitascope import capture, measure
from vitascope.loading.opening import open_model, with_random_weights
from vitascope.measure.attention.entropy import row_entropy
from vitascope.measure.attention.nonlocality import attention_distance, distances_of
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.record import Record, plain

OUT = Path(__file__).parents[1] / "docs" / "records" / "trained"
NAMES = ("sam2_hiera_tiny", "tiny_vit_5m_224")
COUNTS = {224: 48, 1024: 8}  # photographs at each size
SEED = 0  # of random weights


def photographs(folder: Path, count: int) -> list[Path]:
    """The first image of ``count`` classes, spread evenly over all of them."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    chosen = np.linspace(0, len(classes) - 1, count).round().astype(int)
    return [sorted(classes[index].iterdir())[0] for index in chosen]


def square(path: Path, size: int) -> Tensor:
    """The middle of a photograph, 0 to 1. (1, 3, size, size)"""
    image = Image.open(path).convert("RGB")
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    cut = image.crop((left, top, left + side, top + side))
    pixels = np.asarray(cut.resize((size, size), Image.Resampling.BICUBIC), np.float32) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def networks(files: dict[str, Path], size: int) -> Iterator[tuple[str, nn.Module, Any]]:
    """Each network with trained and with random weights: its label, itself, its preprocessing."""
    for name, file in files.items():
        opened = open_model(f"{name}@{file}", image_size=size)
        yield name, opened.model, opened.preprocessing
        random = with_random_weights(opened, SEED)
        yield f"{name}, random weights", random.model.eval(), opened.preprocessing


def looks(model: nn.Module, images: list[Tensor]) -> dict[str, Any]:
    """How far each layer looks on each photograph, and how evenly; means over its heads. (N, L)"""
    structure = ModelStructure(model, images[0])
    tokens = structure.coordinates
    distances = {name: distances_of(each) for name, each in tokens.items()}

    def both(name: str, weights: Tensor) -> tuple[float, float]:
        far = attention_distance(weights, distances[name]).mean()
        return float(far), float(row_entropy(weights).mean()) / log(tokens[name].key.shape[1])

    rows = []
    for image in images:
        with capture.evaluating(model), capture.attention(model, reduce=both) as seen:
            model(image)
        rows.append([seen[name] for name in tokens])
    numbers = np.array(rows).round(5)
    return {
        "layers": list(tokens),
        "grid": [each.grid for each in tokens.values()],
        "windows": [len(each.query) for each in tokens.values()],
        "even": [float(distance.nanmean()) for distance in distances.values()],
        "nonlocality": numbers[..., 0],
        "entropy": numbers[..., 1],
    }


def over_images(model: nn.Module, images: list[Tensor]) -> dict[str, Any]:
    """Token norms, frequencies and CKA of all photographs together."""
    batches = [torch.cat(images[start : start + 16]) for start in range(0, len(images), 16)]
    found = measure.together(model, batches, ["norms", "fourier", "cka"]).results
    norms, fourier, cka = (found[name].to_record().values for name in ("norms", "fourier", "cka"))
    return {
        "norms": {key: norms[key] for key in ("units", "kind", "median", "high")},
        "fourier": {key: fourier[key] for key in ("units", "kind", "stage", "high")},
        "cka": {"units": cka["rows"], "similarity": np.round(cka["similarity"], 3)},
    }


def interval(per_image: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means over photographs, and half the width of their 95 % intervals. (L,), (L,)"""
    values = np.asarray(per_image, float)
    error = values.std(0, ddof=1) / np.sqrt(len(values))
    return values.mean(0), error * student.ppf(0.975, len(values) - 1)


def main(words: list[str]) -> None:
    """Measure both networks at both sizes; only SAM 2's at its own 1024 pixels."""
    files = dict(zip(NAMES, map(Path, words[:2]), strict=True))
    begun = perf_counter()
    values: dict[str, Any] = {}
    for size, count in COUNTS.items():
        paths = photographs(Path(words[2]), count)
        values[str(size)] = {"images": ["/".join(path.parts[-2:]) for path in paths], "models": {}}
        chosen = files if size == 224 else {NAMES[0]: files[NAMES[0]]}
        for label, model, prepared in networks(chosen, size):
            mean, std = (torch.tensor(s)[:, None, None] for s in (prepared.mean, prepared.std))
            images = [(square(path, size) - mean) / std for path in paths]
            found = looks(model, images)
            if size == 224:
                found |= over_images(model, images)
            values[str(size)]["models"][label] = found
            print(size, label, f"{perf_counter() - begun:.0f} s", flush=True)
            record = Record(
                kind="trained attention",
                values=plain(values),
                config={"seed": SEED, "weights": {n: f.name for n, f in files.items()}},
                seed=SEED,
                seconds=perf_counter() - begun,
            )
            record.save(OUT / "attention")


if __name__ == "__main__":
    main(sys.argv[1:])
