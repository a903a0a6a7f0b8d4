"""Augmentation settings: one dataclass, and its named presets.

The order is timm's: crop, mirror, RandAugment or colour jitter, normalise, erase, and then mix
pairs of the batch. As in timm, RandAugment takes the place of colour jitter.

    >>> cifar().crop, cifar().rand_augment
    ('pad', 'rand-m9-n2-mstd1.0')
"""

from dataclasses import dataclass, replace
from typing import Literal

from vitascope.errors import UserError

__all__ = ["Augmentation", "cifar", "deit", "imagenet_park", "laptop", "light", "none"]


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmentation of training images. The defaults change nothing.

    ``mixup_prob`` and ``mixup_switch`` are timm's and DeiT's defaults; ``ratio``, the erased area
    and its shape are those of torchvision and timm, which DeiT uses.
    """

    crop: Literal["none", "pad", "resized"] = "none"
    pad: int | None = None  # pixels on each side; None: an eighth of the side, from 16 pixels on
    scale: tuple[float, float] = (0.08, 1.0)  # area of a resized crop (Inception; torchvision)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # its width to height
    hflip: float | None = None  # chance of a mirror; None: 0.5 where that keeps the class, else 0
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"  # DeiT
    rand_augment: str | None = None  # timm's string, as in "rand-m9-mstd0.5-inc1"
    color_jitter: float = 0.0  # brightness, contrast, saturation; only without rand_augment
    random_erasing: float = 0.0  # chance; noise of the normalised image's statistics ("pixel")
    erasing_area: tuple[float, float] = (0.02, 1 / 3)  # timm
    mixup: float = 0.0  # alpha of its beta distribution
    cutmix: float = 0.0
    mixup_prob: float = 1.0  # chance that a batch is mixed at all
    mixup_switch: float = 0.5  # chance of CutMix where both are on
    label_smoothing: float = 0.0
    repeats: int = 1  # copies of an image in a batch (Hoffer et al. 2020); DeiT: 3

    def padding(self, side: int) -> int:
        """Pixels of padding for images of this side: 4 at 32 x 32, none for thumbnails of 8 x 8."""
        return (side // 8 if side >= 16 else 0) if self.pad is None else self.pad

    def __post_init__(self) -> None:
        if self.crop not in ("none", "pad", "resized"):
            raise UserError(f"unknown crop {self.crop!r:.80}; there are: none, pad, resized")
        if self.interpolation not in ("bilinear", "bicubic"):
            raise UserError(
                f"unknown interpolation {self.interpolation!r:.80}; there are: bicubic, bilinear"
            )
        for name in ("hflip", "random_erasing", "mixup_prob", "mixup_switch", "label_smoothing"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise UserError(f"{name} {value} is out of range; give a number from 0 to 1")
        for name in ("color_jitter", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} {getattr(self, name)} is negative; 0 switches it off")
        for name in ("scale", "ratio", "erasing_area"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise UserError(f"{name} ({low}, {high}) must be two positive numbers, low first")
        if self.repeats < 1:
            raise UserError(f"repeats {self.repeats} is out of range; give 1 or more")

    @property
    def varies_each_image(self) -> bool:
        """Return whether images are changed one by one, not shifted and mirrored as a batch."""
        jitters = self.rand_augment is not None or self.color_jitter > 0
        return self.crop == "resized" or jitters

    @property
    def mixes(self) -> bool:
        """Return whether pairs of images may be mixed."""
        return self.mixup_prob > 0 and (self.mixup > 0 or self.cutmix > 0)

    @property
    def soft(self) -> bool:
        """Return whether the targets are distributions rather than labels."""
        return self.mixes or self.label_smoothing > 0


def none() -> Augmentation:
    """Return settings that change nothing."""
    return Augmentation(hflip=0.0)


def laptop() -> Augmentation:
    """Shifted crops and mirrors, the classic of small images (He et al. 2016, section 4.2)."""
    return Augmentation(crop="pad")


def light() -> Augmentation:
    """Crops of at least 60 % of the image, and mirrors: for pretrained weights."""
    return Augmentation(crop="resized", scale=(0.6, 1.0))


def deit(*, repeats: int = 3) -> Augmentation:
    """DeiT's and ConViT's (https://arxiv.org/abs/2012.12877, Table 9)."""
    return Augmentation(
        crop="resized",
        rand_augment="rand-m9-mstd0.5-inc1",
        random_erasing=0.25,
        mixup=0.8,
        cutmix=1.0,
        label_smoothing=0.1,
        repeats=repeats,
    )


def cifar() -> Augmentation:
    """For 32 x 32 images, as Park and Kim 2022 released it (https://arxiv.org/abs/2202.06709).

    Appendix A of the paper refers to the source code for the strengths: ``cifar100_vit.yaml`` of
    https://github.com/xxxnell/how-do-vits-work. Crops are shifted by 4 pixels.
    """
    return Augmentation(
        crop="pad",
        rand_augment="rand-m9-n2-mstd1.0",
        mixup=1.0,
        cutmix=0.8,
        label_smoothing=0.1,
    )


def imagenet_park() -> Augmentation:
    """Park and Kim's on ImageNet: ``imagenet_vit.yaml`` of the same source."""
    return replace(cifar(), crop="resized", rand_augment="rand-m9-n2-mstd0.5", random_erasing=0.25)
