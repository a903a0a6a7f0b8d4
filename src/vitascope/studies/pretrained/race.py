"""The best candidates of a probe, fine-tuned in the time there is.

Who runs: the best few by the linear probe, and the best of each kind of locality, because a probe
of frozen features need not rank what fine-tuning can move. The order is that of the probe's inner
cross-validation of the training images, so that no test image chooses who runs. Each is trained by the recipe
``finetune`` (layer-wise lr, light augmentation) with every seed, in its own preprocessing.

A step of training costs about three forward passes. With the seconds that an image took in the
probe, epochs are as many as fit into the budget, up to the recipe's; where one epoch does not fit,
the last of the probe's order are left out, down to two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vitascope.errors import UserError

__all__ = ["RacePlan", "Runner", "planned", "runners"]

BEST = 2  # by the linear probe
LEAST = 2  # candidates that a race has
TRAINING = 3.0  # forward passes that a step of training costs


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A candidate as the race sees it."""

    model: str
    kind: str  # of locality
    linear: float  # share in the probe's inner cross-validation
    seconds: float  # of one image, forward


@dataclass(frozen=True)
class RacePlan:
    """Who runs, for how long."""

    models: tuple[str, ...]
    epochs: int
    left_out: tuple[str, ...]


def runners(probed: Sequence[Runner], best: int = BEST) -> list[Runner]:
    """The best few and the best of each kind, the best first.

    >>> def one(model, kind, linear):
    ...     return Runner(model=model, kind=kind, linear=linear, seconds=1.0)
    >>> found = [one("a", "hard", 0.9), one("b", "hard", 0.8), one("c", "none", 0.5)]
    >>> [each.model for each in runners(found, best=1)]
    ['a', 'c']
    """
    order = sorted(probed, key=lambda each: -each.linear)
    chosen = list(order[:best])
    for each in order:
        if each.kind not in {other.kind for other in chosen}:
            chosen.append(each)
    return sorted(chosen, key=lambda each: -each.linear)


def planned(
    wanted: Sequence[Runner],
    *,
    num_images: int,
    num_seeds: int,
    epochs: int,
    budget: float | None,
    processes: int = 1,
) -> RacePlan:
    """Epochs and candidates that fit.

    Args:
        wanted: The best first.
        num_images: To train on, and about those that are tested.
        num_seeds: Runs of each.
        epochs: The most there are.
        budget: Seconds; None: as long as it takes.
        processes: Runs at a time.

    Raises:
        UserError: If two candidates do not get through one epoch; it says what they need.
    """
    chosen, left_out = list(wanted), list[str]()
    if budget is None:
        return RacePlan(tuple(each.model for each in chosen), epochs, ())
    while True:
        each = sum(one.seconds for one in chosen) * TRAINING * num_images * num_seeds / processes
        fits = int(budget / each) if each else epochs
        if fits >= 1:
            return RacePlan(tuple(o.model for o in chosen), min(epochs, fits), tuple(left_out))
        if len(chosen) <= LEAST:
            raise UserError(
                f"the race needs about {each:.0f} s for one epoch of {len(chosen)} candidates with "
                f"{num_seeds} seeds; give a longer --budget, fewer --seeds, a smaller --image-size "
                "or --probe-only"
            )
        left_out.append(chosen.pop().model)


def order_of(shares: Mapping[str, float | None]) -> list[str]:
    """Names by falling share; those without one are left out.

    >>> order_of({"a": 0.5, "b": None, "c": 0.7})
    ['c', 'a']
    """
    known = {name: share for name, share in shares.items() if share is not None}
    return sorted(known, key=lambda name: -known[name])
