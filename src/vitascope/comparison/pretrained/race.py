"""The best candidates of a probe, fine-tuned in the time there is.

Who runs: the best few by the linear probe, and the best of each kind of locality, because a probe
of frozen features need not rank what fine-tuning can move. The order is that of the probe's inner
cross-validation of the training images, so that no test image chooses who runs. Each is trained by
the recipe ``finetune`` (head fitted first, layer-wise lr, light augmentation) with every seed, in
its own preprocessing.

A step of training costs about three forward passes; the seconds of one are those of the probe. A
fine-tuning that is cut short is worse than none, so its length stays: where not all fit into the
budget, the last of the probe's order are left out, to none if need be. The frozen features are
there in any case.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

BEST = 3  # by the linear probe
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
    seconds: float = 0.0  # that one more would have taken in all, about
    unable: tuple[str, ...] = ()  # candidates that no run could build again

    @property
    def notes(self) -> tuple[str, ...]:
        """Who was not fine-tuned, and why."""
        said = []
        if self.left_out:
            said.append(
                f"No time to fine-tune {', '.join(self.left_out)}: with {self.left_out[0]} it "
                f"takes about {self.seconds / 60:.1f} minutes; give a longer --budget."
            )
        said += [
            f"{name} is probed, not fine-tuned: a run could not build it again (opening a run "
            "calls no function that its files name); give its weights as NAME@FILE, local-dir: or "
            "a run's folder."
            for name in self.unable
        ]
        return tuple(said)


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
    """The candidates that fit; the one that wins is also trained from random weights.

    Args:
        wanted: The best first.
        num_images: To train on, and about those that are tested.
        num_seeds: Runs of each.
        epochs: Of each run.
        budget: Seconds; None: as long as it takes.
        processes: Runs at a time.
    """
    chosen, left_out, longer = list(wanted), list[str](), 0.0
    while chosen and budget is not None:
        each = [one.seconds * TRAINING * num_images * num_seeds * epochs for one in chosen]
        needed = (sum(each) + max(each)) / processes
        if needed <= budget:
            break
        longer = needed
        left_out.insert(0, chosen.pop().model)
    return RacePlan(tuple(one.model for one in chosen), epochs, tuple(left_out), longer)


def order_of(shares: Mapping[str, float | None]) -> list[str]:
    """Names by falling share; those without one are left out.

    >>> order_of({"a": 0.5, "b": None, "c": 0.7})
    ['c', 'a']
    """
    known = {name: share for name, share in shares.items() if share is not None}
    return sorted(known, key=lambda name: -known[name])
