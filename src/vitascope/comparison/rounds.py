"""Seeds added in rounds, only to the models still in question, until the answer is clear.

After the first seeds, and after every further one, :func:`vitascope.stats.looks` says which models
are shown to be behind and whether the rest is decided. It depends on the finished runs alone, so
that a comparison that was interrupted comes to the same looks and continues.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vitascope import stats
from vitascope.comparison.evidence import Evidence

MOST = 10  # seeds of a model without a budget; more are hardly ever worth their time

Reason = Literal["decided", "images", "seeds", "budget"]


@dataclass(frozen=True)
class Rounds:
    """The looks at a comparison, and why they ended."""

    looks: tuple[stats.Look, ...]
    most: int  # seeds of a model, as far as there was time
    ended: Reason
    folds: bool = False  # every training image chooses already

    @property
    def recommendation(self) -> stats.Recommendation:
        """The result of the last look."""
        return self.looks[-1].recommendation

    def values(self) -> dict[str, Any]:
        """The looks as plain types, for a record."""
        looks = [
            {
                "seeds": look.seeds,
                "alpha": look.alpha,
                "verdict": look.recommendation.verdict,
                "model": look.recommendation.model,
                "behind": list(look.behind),
            }
            for look in self.looks
        ]
        return {"looks": looks, "most_seeds": self.most, "ended": self.ended}

    def notes(self) -> list[str]:
        """Say how often the results were looked at, why that ended, and what would help."""
        last, number = self.looks[-1], len(self.looks)
        looks = "1 look was" if number == 1 else f"{number} looks were"
        level = f"{100 * (1 - last.alpha):.1f} %"
        sentences = [
            f"{looks} taken at the results, of {self.most - self.looks[0].seeds + 1} at most. The "
            f"choice uses intervals of {level}, so that all looks together call a lead that is not "
            "there in at most 5 % of comparisons."
        ]
        dropped = [name for name in last.behind if name != last.recommendation.model]
        if dropped and number > 1:
            sentences.append(f"Shown to be behind, and given no more seeds: {', '.join(dropped)}.")
        needed = self.recommendation.needed
        if needed is None or self.ended == "decided":
            return sentences
        help_ = "the models are too close for any sensible number of images"
        if needed.images is not None:
            help_ = f"about {needed.images:,} more images to choose by would settle it"
        elif needed.both is not None:
            images, seeds = needed.both
            help_ = (
                f"about {images:,} more images to choose by and {seeds} more seeds would settle it"
            )
        if self.ended == "images" and not self.folds:
            help_ += " (--folds 5 chooses by every training image)"
        sentences.append(
            {
                "images": f"The number of images limits the answer, so no more seeds were added: "
                f"{help_}.",
                "seeds": f"Up to {self.most} seeds of each model would not settle it; {help_}.",
                "budget": f"The budget ended first; {help_}, or a longer --budget.",
            }[self.ended]
        )
        return sentences


def in_rounds(
    evidence: Callable[[], Evidence],
    add: Callable[[tuple[str, ...]], bool],
    cost: Mapping[str, float],
    *,
    first: int,
    most: int,
    margin: float,
    tell: Callable[[str], object],
) -> Rounds:
    """Look, and add a seed of the models in question, until that ends.

    Args:
        evidence: Gives the results of all finished runs on the images that choose.
        add: Makes the runs of one more seed of these models, unless there is no time for them;
            returns whether they were made.
        cost: Multiply-adds of each model.
        first: Seeds of the first look, whose runs are finished.
        most: Seeds of a model at most.
        margin: A deficit in points that does not matter where a model is cheaper.
        tell: Told of every look in a line.
    """
    while True:
        chosen = evidence()
        looks = stats.looks(
            chosen.correct(chosen.most), cost, first=first, most=most, margin=margin, **chosen.kinds
        )
        last = looks[-1]
        tell(_line(last))
        if not last.contenders:
            ended: Reason = last.limit or "decided"
            if ended == "seeds" and last.seeds == most < MOST:
                ended = "budget"
            return Rounds(looks, most, ended, chosen.folds is not None)
        if not add(last.contenders):
            return Rounds(looks, most, "budget", chosen.folds is not None)


def _line(look: stats.Look) -> str:
    """Describe a look in one line for the terminal."""
    recommendation = look.recommendation
    seeds = "1 seed" if look.seeds == 1 else f"{look.seeds} seeds"
    after = f"after {seeds}: {recommendation.verdict}"
    if look.decided:
        return f"{after}, {recommendation.model}"
    if look.limit:
        return f"{after}; {look.limit} limit the answer"
    return f"{after} between {', '.join(look.contenders)}; adding a seed of each"


def most_seeds(first: int, room: float, one_round: float) -> int:
    """Seeds of a model that there is time for, up to :data:`MOST`.

    >>> most_seeds(3, 100.0, 30.0), most_seeds(3, 1e9, 30.0), most_seeds(3, -5.0, 30.0)
    (6, 10, 3)
    """
    return max(first, min(MOST, first + int(max(0.0, room) // one_round)))
