"""Random number streams keyed by purpose, seed, epoch, step and sample.

Every draw in this package comes from a counter-based generator (Philox) keyed by its purpose, the
seed, the epoch, the step and the sample. No global state is read or written, so a run resumed at
any step, or split over several processes, sees the numbers of an uninterrupted single process.

    >>> float(stream(Purpose.ORDER, 0, epoch=3).random()) == float(
    ...     stream(Purpose.ORDER, 0, epoch=3).random()
    ... )
    True
"""

from enum import IntEnum

import numpy as np

from vitascope.errors import UserError


class Purpose(IntEnum):
    """Purpose of a stream: two purposes never share numbers."""

    SPLIT = 1
    SUBSET = 2
    ORDER = 3
    CROP = 4
    FLIP = 5
    COLOR = 6
    RAND_AUGMENT = 7
    ERASE = 8
    ERASE_PIXELS = 9
    MIX = 10
    IMAGE = 11
    STATISTICS = 12
    FOLDS = 13


def stream(
    purpose: Purpose, seed: int, *, epoch: int = 0, step: int = 0, sample: int = 0
) -> np.random.Generator:
    """A fresh generator for one purpose.

    Raises:
        UserError: If the seed is negative or does not fit in 32 bits.
    """
    if not 0 <= seed < 2**32:
        raise UserError(f"seed {seed} is out of range; give a whole number from 0 to 2**32 - 1")
    # Always the same number of words: SeedSequence takes (1,) and (1, 0) for the same key.
    sequence = np.random.SeedSequence((int(purpose), seed, epoch, step, sample))
    return np.random.Generator(np.random.Philox(sequence))
