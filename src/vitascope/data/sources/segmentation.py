"""Images with a class for every pixel, in the layout of ADE20K.

``root/images/training/NAME.jpg`` next to ``root/annotations/training/NAME.png``, and the same for
``validation``: the scene-parsing release of ADE20K (Zhou et al. 2017), 150 classes. A mask is a
grey image of class numbers: 0 is "something else" and is not counted (it becomes 255), 1 ... 150
become 0 ... 149.

Training varies image and mask together: the shorter side takes a random length between 1/2 and 2
times ``side``, a random square of ``side`` is cut out (what lies outside the image has the mean
colour and no label), and half are mirrored. Published recipes also distort colours and avoid crops
of a single class: not done here. Evaluation brings the shorter side to ``side`` and keeps the whole
image, and the mask at its own size; images then differ in shape and come one by one
(:func:`vitascope.measure.miou` slides a window over them).

What happens to an image depends on the seed, the epoch and the image alone.

Shapes: b images, mask (height, width) of class numbers.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vitascope.data.decoding import MOST_PIXELS, opened, upright
from vitascope.data.file_batches import generators_restored, seed_generators
from vitascope.data.images import to_tensor
from vitascope.data.random_streams import Purpose, stream
from vitascope.data.sources.folder import EXTENSIONS, existing
from vitascope.errors import UserError, reason

__all__ = ["IGNORE", "SegmentationFolder", "labels_of", "paired"]

IGNORE = 255  # the label of pixels that do not count
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, which backbones expect


def paired(root: str | Path, part: str) -> list[tuple[Path, Path]]:
    """Every image of a part with its mask, sorted by name."""
    images = existing(Path(root) / "images" / part)
    masks = existing(Path(root) / "annotations" / part)
    files = sorted(p for p in images.iterdir() if p.suffix.lower() in EXTENSIONS)
    if not files:
        raise UserError(f"no images in {images}; put NAME.jpg there and NAME.png in {masks}")
    pairs = [(path, masks / f"{path.stem}.png") for path in files]
    alone = [image.name for image, mask in pairs if not mask.is_file()]
    if alone:
        raise UserError(
            f"{len(alone)} of {len(pairs)} images have no mask in {masks}: "
            f"{', '.join(alone[:3])}; add NAME.png for each, or remove them"
        )
    return pairs


def labels_of(mask: np.ndarray, num_classes: int, name: str) -> np.ndarray:
    """Numbers in a file to labels: 0 to 255, and 1 ... K to 0 ... K - 1.

    >>> labels_of(np.array([[0, 1, 150]]), 150, "a.png").tolist()
    [[255, 0, 149]]
    """
    if mask.ndim != 2 or mask.dtype.kind == "f":
        raise UserError(
            f"{name} is a colour image or has fractions; a mask is a grey one of class numbers"
        )
    top = int(mask.max(initial=0))
    if top > num_classes:
        raise UserError(
            f"{name} has class {top}; with {num_classes} classes masks hold 0 (not counted) to "
            f"{num_classes}"
        )
    labels = mask.astype(np.int64) - 1
    labels[labels < 0] = IGNORE
    return labels


class SegmentationFolder(torch.utils.data.Dataset):
    """Images and masks, varied together; ``dataset[i]`` is (image, mask).

    Args:
        root: Holds ``images`` and ``annotations``.
        part: ``training`` or ``validation``, or any folder that both have.
        side: Pixels of a training crop, and of the shorter side in evaluation.
        augment: Vary the images; by default in ``training`` alone.
        num_classes: 150 in ADE20K, at most 255.
        seed: Of crops, mirrors and order.
    """

    def __init__(
        self,
        root: str | Path,
        part: str = "training",
        *,
        side: int = 512,
        augment: bool | None = None,
        num_classes: int = 150,
        mean: Sequence[float] = MEAN,
        std: Sequence[float] = STD,
        seed: int = 0,
    ):
        if not 1 <= num_classes <= IGNORE or side < 1:
            raise UserError(
                f"num_classes={num_classes} must be 1 to {IGNORE}, side={side} positive"
            )
        self.pairs = paired(root, part)
        self.side, self.num_classes, self.seed = side, num_classes, seed
        self.augment = part == "training" if augment is None else augment
        self.mean, self.std = (torch.tensor(v).view(3, 1, 1) for v in (mean, std))
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.pairs)

    def read(self, index: int) -> tuple[Image.Image, np.ndarray]:
        """One image and its labels as they are on disk."""
        image_path, mask_path = self.pairs[index]
        try:
            with opened(image_path) as file:
                image = upright(file).convert("RGB")
        except (OSError, UserError) as error:
            raise UserError(f"{image_path} cannot be read: {error}") from error
        try:
            with opened(mask_path) as file:
                mask = np.asarray(file)  # class numbers, not colours: nothing is scaled
        except Exception as error:  # damaged files raise nearly anything in pillow's readers
            raise UserError(f"{mask_path} cannot be read: {reason(error)}") from error
        labels = labels_of(mask, self.num_classes, str(mask_path))
        if labels.shape != (image.height, image.width):
            raise UserError(
                f"{mask_path} is {labels.shape[1]} x {labels.shape[0]} pixels and its image "
                f"{image.width} x {image.height}; they must agree"
            )
        longest = 2 * self.side if self.augment else self.side  # of the shorter side, resized
        pixels = longest**2 * max(image.size) / min(image.size)
        if pixels > max(MOST_PIXELS, image.width * image.height):
            raise UserError(
                f"{image_path} is {image.width} x {image.height} pixels; with its shorter side at "
                f"{longest} it would have more than {MOST_PIXELS:,}: crop it, or remove it"
            )
        return image, labels

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        from torchvision import tv_tensors
        from torchvision.transforms import v2

        image, labels = self.read(index)
        pixels, mask = tv_tensors.Image(to_tensor(image)), tv_tensors.Mask(labels)
        if self.augment:
            rng = stream(Purpose.IMAGE, self.seed, epoch=self.epoch, sample=index)
            middle = (self.mean.flatten() * 255).round().tolist()
            vary = v2.Compose(
                [
                    v2.RandomResize(max(1, self.side // 2), 2 * self.side + 1),
                    v2.RandomCrop(
                        self.side,
                        pad_if_needed=True,
                        fill={tv_tensors.Image: middle, tv_tensors.Mask: IGNORE},
                    ),
                    v2.RandomHorizontalFlip(),
                ]
            )
            with generators_restored():
                seed_generators(int(rng.integers(2**32)))
                pixels, mask = vary(pixels, mask)
        else:
            pixels = v2.functional.resize(pixels, [self.side])
        plain = pixels.as_subclass(Tensor).float() / 255
        return (plain - self.mean) / self.std, mask.as_subclass(Tensor)

    def batches(
        self, batch_size: int, *, epoch: int = 0, num_workers: int = 0
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The images of one epoch: shuffled whole batches in training, one by one otherwise."""
        self.epoch = epoch
        order = np.arange(len(self))
        if self.augment:
            order = stream(Purpose.ORDER, self.seed, epoch=epoch).permutation(order)
            if batch_size > len(order):
                raise UserError(f"a batch of {batch_size} from {len(order)} images; take fewer")
        loader = torch.utils.data.DataLoader(
            self,
            batch_size=batch_size if self.augment else 1,
            sampler=order.tolist(),
            drop_last=self.augment,
            num_workers=num_workers,
            generator=torch.Generator().manual_seed(0),  # or it would draw from the global one
        )
        yield from loader
