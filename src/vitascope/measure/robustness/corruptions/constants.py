"""How strong each corruption is, as published.

Hendrycks & Dietterich 2019 (https://arxiv.org/abs/1903.12261) made two sets with different
constants, given in ``make_cifar_c.py`` (32 x 32) and ``make_imagenet_c.py`` (224 x 224) of
https://github.com/hendrycks/robustness. All are in pixels and are used as they are at any size,
except elastic_transform's, which both scripts write as shares of the side.

Which table at which size (``constants="auto"``): a longer side of up to 64 pixels takes CIFAR-C's,
anything larger ImageNet-C's. Sizes between 32 and 224 have no published constants: CIFAR-C's grow
milder as images grow, ImageNet-C's harsher as they shrink, so say which were used.
"""

from typing import Any, Literal

from vitascope.errors import UserError

Constants = Literal["auto", "cifar", "imagenet"]
LARGEST_SMALL = 64  # pixels; ours

FAMILIES = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
CORRUPTIONS = tuple(name for names in FAMILIES.values() for name in names)
SEVERITIES = (1, 2, 3, 4, 5)

CIFAR: dict[str, tuple[Any, ...]] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),  # deviation
    "shot_noise": (500, 250, 100, 75, 50),  # photons of a white pixel
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),  # share of values hit
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),  # radius, softness
    # deviation, farthest move, rounds
    "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),  # radius, deviation
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),  # to, step
    # mean, deviation, zoom, threshold, radius and deviation of the motion, share of the image
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),  # of image, of frost
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),  # thickness, decay
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),  # added to the value of HSV
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),  # share that is left
    # shares of the side: size of the moves, their smoothness, jolt of the affine map
    "elastic_transform": (
        (0, 0, 0.08),
        (0.05, 0.2, 0.07),
        (0.08, 0.06, 0.06),
        (0.1, 0.04, 0.05),
        (0.1, 0.03, 0.03),
    ),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),  # share of the side
    "jpeg_compression": (80, 65, 58, 50, 40),  # quality
}

_ELASTIC = ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02))
IMAGENET: dict[str, tuple[Any, ...]] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": (60, 25, 12, 5, 3),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    # the script multiplies by 244 where the side is 224
    "elastic_transform": tuple(
        tuple(share * 244 / 224 for share in shares) for shares in (*_ELASTIC, (0.12, 0.01, 0.02))
    ),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": (25, 18, 15, 10, 7),
}
TABLES = {"cifar": CIFAR, "imagenet": IMAGENET}

# AlexNet's error on ImageNet-C, mean over the five severities: what mCE divides by.
ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}


def table_for(height: int, width: int, constants: str = "auto") -> str:
    """Return whose constants apply: "cifar" or "imagenet".

    >>> table_for(32, 32), table_for(224, 224), table_for(224, 224, "cifar")
    ('cifar', 'imagenet', 'cifar')
    """
    if constants == "auto":
        return "cifar" if max(height, width) <= LARGEST_SMALL else "imagenet"
    if constants not in TABLES:
        raise UserError(f"constants {constants!r} are unknown; give auto, cifar or imagenet")
    return constants


def strength(name: str, severity: int, table: str) -> Any:
    """The constants of one corruption at one severity."""
    return TABLES[table][name][severity - 1]
