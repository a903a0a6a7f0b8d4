"""Batches for training and for evaluation.

Everything random depends on the seed, the epoch and the step alone: the same call gives the same
bits, an epoch may start at any step, and processes that share a batch (``batch_size`` is that of
all together) hold consecutive slices of what a single process would have.

Every epoch is a fresh permutation, cut into whole batches. With repeated augmentation (Hoffer et
al. 2020, https://arxiv.org/abs/1901.09335) a batch holds each of its images ``repeats`` times,
differently augmented, and an epoch of the usual length sees 1 / repeats of the images. DeiT's
sampler draws that part anew each epoch, and in the released ConViT code a single process keeps
meeting the same part. Here ``repeats`` consecutive epochs share one permutation and take a part
each, so that they see all the data between them.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from vitascope.data.augment import Augmentation
from vitascope.data.batches import (
    Batch,
    BatchPosition,
    Normalize,
    draw_mix,
    erase,
    erasing_boxes,
    flip_chance,
    mirror,
    mix_images,
    mix_targets,
    shifted_crop,
    smooth_targets,
)
from vitascope.data.file_batches import Decoded, TrainView, decoded, generators_restored
from vitascope.data.images import FileImages, ImageSet, resize, to_image
from vitascope.data.random_streams import Purpose, stream
from vitascope.errors import UserError


class TrainBatches:
    """Shuffled, augmented batches, epoch by epoch.

    Args:
        dataset_images: What to learn from.
        batch_size: Of all processes together.
        augmentation: How images are varied.
        num_classes: Width of soft targets.
        mean: Per channel, in [0, 1].
        std: Per channel, in [0, 1].
        flips: Whether a mirrored image keeps its class.
        seed: Of the order and the augmentation.
        rank: Which of the processes this is.
        world_size: How many there are.
        num_workers: Processes that decode files; images in memory need none.
        image_size: Side of the images given out; None: that of the set.
        one_class: Also take images that are all of one class: to measure on them, since any model
            that learns from them is right every time.

    Raises:
        UserError: If all images are of one class, there are fewer than a batch, or a batch does
            not divide among the processes (into pairs, when mixing).
    """

    def __init__(
        self,
        dataset_images: ImageSet,
        *,
        batch_size: int,
        augmentation: Augmentation,
        num_classes: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        flips: bool,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        image_size: int | None = None,
        one_class: bool = False,
    ):
        present = np.unique(dataset_images.labels)
        if len(present) == 1 and not one_class:
            name = dataset_images.classes[present[0]]
            raise UserError(
                f"all {len(dataset_images)} training images are of one class, {name!r}, and every "
                "answer would be right; add images of a second class"
            )
        self._steps = steps_per_epoch(len(dataset_images), batch_size)
        self.rows = slice_of(batch_size, rank, world_size, pairs=augmentation.mixes)
        if dataset_images.labels.max() >= num_classes:
            raise UserError(
                f"label {dataset_images.labels.max()} is out of range for {num_classes} classes; "
                f"the set has {len(dataset_images.classes)}"
            )
        self.images, self.augmentation, self.num_classes = dataset_images, augmentation, num_classes
        self.batch_size, self.seed, self.num_workers = batch_size, seed, num_workers
        self.side = image_size or dataset_images.size[-1]
        self.hflip = flip_chance(augmentation, flips)
        self.normalize = Normalize(mean, std)
        self.view = None
        if isinstance(dataset_images, FileImages) or augmentation.varies_each_image:
            fill = [round(255 * m) for m in mean]
            self.view = TrainView(augmentation, side=self.side, hflip=self.hflip, fill=fill)

    def __len__(self) -> int:
        return self._steps

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch, from step ``start`` on."""
        order = epoch_order(
            len(self.images),
            self.batch_size,
            seed=self.seed,
            epoch=epoch,
            repeats=self.augmentation.repeats,
        )
        positions = [
            BatchPosition(
                seed=self.seed, epoch=epoch, step=s, batch_size=self.batch_size, rows=self.rows
            )
            for s in range(start, len(self))
        ]
        orders = [order[position.step, self.rows] for position in positions]
        for position, pixels in zip(positions, self._pixels(orders, positions), strict=True):
            yield self._finish(pixels, position)

    def _pixels(
        self, orders: list[np.ndarray], positions: list[BatchPosition]
    ) -> Iterator[Decoded]:
        if isinstance(self.images, FileImages):
            workers = self.num_workers
            yield from decoded(self.images, orders, positions, self.view, num_workers=workers)
            return
        for indices, position in zip(orders, positions, strict=True):
            pixels = self.images.pixels(indices)
            if self.view is None:
                yield Decoded(self._shifted(pixels, position), indices)
            else:
                seeds = map(position.image_seed, range(len(indices)))
                with generators_restored():
                    views = list(map(self.view, map(to_image, pixels), seeds))
                yield Decoded(torch.stack(views), indices)

    def _shifted(self, pixels: Tensor, position: BatchPosition) -> Tensor:
        """Shift and mirror images in memory: (b, C, side, side) uint8."""
        a, count, rows = self.augmentation, position.batch_size, position.rows
        pixels = resize(pixels, self.side, self.side, a.interpolation)
        if a.crop == "pad":
            pad = a.padding(self.side)
            offset = position.stream(Purpose.CROP).integers(2 * pad + 1, size=(2, count))
            top, left = torch.from_numpy(offset[:, rows])
            pixels = shifted_crop(pixels, top, left, pad)
        if self.hflip > 0:
            which = position.stream(Purpose.FLIP).random(count)[rows] < self.hflip
            pixels = mirror(pixels, torch.from_numpy(which))
        return pixels

    def _finish(self, decoded: Decoded, position: BatchPosition) -> Batch:
        """Normalise, erase and mix a batch."""
        a, shape = self.augmentation, (self.side, self.side)
        images = self.normalize(decoded.pixels)
        if a.random_erasing > 0:
            rng = position.stream(Purpose.ERASE)
            boxes = erasing_boxes(rng, self.batch_size, *shape, a.random_erasing, a.erasing_area)
            erase(images, boxes[self.rows], rng.random(self.batch_size)[self.rows], self.seed)
        labels = torch.from_numpy(self.images.labels[decoded.indices])
        targets = labels
        if a.soft:
            targets = smooth_targets(labels, self.num_classes, a.label_smoothing)
        if a.mixes:
            mix = draw_mix(position.stream(Purpose.MIX), a, *shape)
            images, targets = mix_images(images, mix), mix_targets(targets, mix)
        return Batch(images, targets, labels, torch.from_numpy(decoded.indices))


class EvalBatches:
    """All images once, in order and unvaried; the last batch may be smaller.

    Several processes take consecutive parts of the set, with nothing seen twice. A file that turns
    out to be broken is reported and left out.
    """

    def __init__(
        self,
        dataset_images: ImageSet,
        *,
        batch_size: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        rank: int = 0,
        world_size: int = 1,
        num_workers: int = 0,
        image_size: int | None = None,
    ):
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is out of range; give 1 or more")
        self.side = image_size or dataset_images.size[-1]
        if isinstance(dataset_images, FileImages):
            dataset_images = dataset_images.of_size(dataset_images.size[0], self.side, self.side)
        self.images, self.batch_size, self.num_workers = dataset_images, batch_size, num_workers
        self.normalize = Normalize(mean, std)
        bounds = np.linspace(0, len(dataset_images), world_size + 1).astype(np.int64)
        self.indices = np.arange(bounds[rank], bounds[rank + 1])

    def __len__(self) -> int:
        return -(-len(self.indices) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        size = self.batch_size
        orders = [self.indices[i : i + size] for i in range(0, len(self.indices), size)]
        for batch in self._pixels(orders):
            labels = torch.from_numpy(self.images.labels[batch.indices])
            images = self.normalize(batch.pixels)
            yield Batch(images, labels, labels, torch.from_numpy(batch.indices))

    def _pixels(self, orders: list[np.ndarray]) -> Iterator[Decoded]:
        if isinstance(self.images, FileImages):
            yield from decoded(self.images, orders, None, None, num_workers=self.num_workers)
            return
        for indices in orders:
            yield Decoded(resize(self.images.pixels(indices), self.side, self.side), indices)


def slice_of(batch_size: int, rank: int, world_size: int, *, pairs: bool) -> slice:
    """The rows of a batch that belong to one process."""
    unit = world_size * (2 if pairs else 1)
    if batch_size % unit:
        why = f"{world_size} processes" + (" with mixup or CutMix, in pairs" if pairs else "")
        lower = batch_size // unit * unit or unit
        raise UserError(
            f"a batch of {batch_size} does not divide among {why}; "
            f"give a multiple of {unit}, for instance {lower}"
        )
    share = batch_size // world_size
    return slice(rank * share, (rank + 1) * share)


def steps_per_epoch(num_images: int, batch_size: int) -> int:
    """Whole batches in an epoch.

    Raises:
        UserError: If there are fewer images than one batch.
    """
    if batch_size < 1:
        raise UserError(f"batch size {batch_size} is out of range; give 1 or more")
    if num_images < batch_size:
        raise UserError(
            f"{num_images} training images are fewer than one batch of {batch_size}; "
            f"give a batch size of at most {num_images}, or more images"
        )
    return num_images // batch_size


def epoch_order(
    num_images: int, batch_size: int, *, seed: int, epoch: int, repeats: int = 1
) -> np.ndarray:
    """Positions of the images of every batch of an epoch. (steps, batch_size)

    The copies of an image never stand side by side, where they would be mixed with each other.
    """
    steps = steps_per_epoch(num_images, batch_size)
    order = stream(Purpose.ORDER, seed, epoch=epoch // repeats).permutation(num_images)
    if repeats == 1:
        return order[: steps * batch_size].reshape(steps, batch_size)
    slots = np.arange(steps * batch_size)
    # the parts of the cycle's epochs tile the permutation, wrapping at its end
    begin = (epoch % repeats) * num_images // repeats
    batches = order[(begin + slots // repeats) % num_images].reshape(steps, batch_size)
    by_copy = np.argsort(np.arange(batch_size) % repeats, kind="stable")
    return batches[:, by_copy]
