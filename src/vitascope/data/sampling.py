"""Which images make up each batch.

Every epoch is a fresh permutation, cut into whole batches. With repeated augmentation (Hoffer et
al. 2020, https://arxiv.org/abs/1901.09335) a batch holds each of its images ``repeats`` times,
differently augmented, and an epoch of the usual length sees 1 / repeats of the images. DeiT's
sampler draws that part anew each epoch, and in the released ConViT code a single process keeps
meeting the same part. Here ``repeats`` consecutive epochs share one permutation and take a part
each, so that they see all the data between them.
"""

import numpy as np

from vitascope.data.random_streams import Purpose, stream
from vitascope.errors import UserError


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
