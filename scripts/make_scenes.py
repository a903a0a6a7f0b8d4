"""A folder of class folders that anyone can draw again: one shape on a cluttered background.

    python scripts/make_scenes.py FOLDER [IMAGES]

Four classes (circle, square, star, triangle), IMAGES (60) of each to train on and as many to test
on, 96 x 96 JPEGs. Shape, place, size, angle and colours are random; the background is a gradient
with noise and stripes, and two small crosses distract. Unlike photographs, and unlike ImageNet's
classes: a test of what pretrained features are worth on images of another kind.
"""

import sys
from math import cos, pi, sin
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SIDE, LARGE = 96, 4  # pixels; drawn four times as large, for smooth edges
CORNERS = {"circle": 60, "square": 4, "star": 10, "triangle": 3}


def outline(shape: str, centre: np.ndarray, radius: float, angle: float) -> list[tuple[float, ...]]:
    """Corners of a regular polygon; every second one of a star lies further in."""
    count = CORNERS[shape]
    radii = [radius * (0.45 if shape == "star" and k % 2 else 1.0) for k in range(count)]
    turns = [angle + 2 * pi * k / count for k in range(count)]
    return [
        (float(centre[0] + r * cos(t)), float(centre[1] + r * sin(t)))
        for r, t in zip(radii, turns, strict=True)
    ]


def scene(shape: str, rng: np.random.Generator) -> Image.Image:
    """One image."""
    side = SIDE * LARGE
    x, y = np.meshgrid(np.linspace(-1, 1, side), np.linspace(-1, 1, side))
    slope, stripes = rng.normal(size=2), rng.uniform(5, 30, 2)
    waves = 25 * np.sin(stripes[0] * x * slope[0] + stripes[1] * y * slope[1])
    colours = rng.uniform(40, 215, (2, 3))
    mix = 1 / (1 + np.exp(-2 * (slope[0] * x + slope[1] * y)))[..., None]
    back = colours[0] * mix + colours[1] * (1 - mix) + waves[..., None]
    image = Image.fromarray(np.clip(back, 0, 255).astype(np.uint8))
    pen = ImageDraw.Draw(image)
    for _ in range(2):
        place, arm = rng.uniform(0.1, 0.9, 2) * side, rng.uniform(0.03, 0.07) * side
        colour = tuple(rng.integers(0, 256, 3).tolist())
        for step in (np.array([arm, 0]), np.array([0, arm])):
            pen.line([*(place - step), *(place + step)], fill=colour, width=3 * LARGE)
    radius = rng.uniform(0.14, 0.3) * side
    centre = rng.uniform(radius, side - radius, 2)
    colour = tuple(rng.integers(0, 256, 3).tolist())
    pen.polygon(outline(shape, centre, radius, rng.uniform(0, 2 * pi)), fill=colour)
    small = image.filter(ImageFilter.GaussianBlur(LARGE / 2)).resize((SIDE, SIDE))
    noisy = np.asarray(small) + rng.normal(0, 12, (SIDE, SIDE, 3))
    return Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8))


def make(folder: Path, count: int) -> None:
    """All images, the same every time."""
    for part, first in (("train", 0), ("test", count)):
        for label, shape in enumerate(CORNERS):
            (folder / part / shape).mkdir(parents=True, exist_ok=True)
            for number in range(first, first + count):
                image = scene(shape, np.random.default_rng([label, number]))
                image.save(folder / part / shape / f"{number:04d}.jpg", quality=90)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 60)
