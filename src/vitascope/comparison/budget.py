"""Time budget of a comparison: what is left out, and in which order, until it fits.

Fractions go first, the smallest before the others: the answer is about most images. Then images
are made smaller, down to half of the side (:mod:`planning`, which times them). Then epochs go, down
to a tenth. Candidates stay: the dearest may be the best. So do the first seeds: below three the
spread between runs is hardly known; time that is left goes to further ones (:mod:`rounds`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vitascope.errors import UserError
from vitascope.progress import time_in_words
from vitascope.runs.spec import changed_recipe

if TYPE_CHECKING:
    from vitascope.comparison.question import Comparison

LEAST_EPOCHS = 0.1  # of those that were asked for
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Fitted:
    """A comparison within its budget."""

    question: "Comparison"
    left_out: tuple[str, ...]  # in sentences
    seconds: float


def seconds_from(text: str) -> float:
    """A time as it is typed.

    >>> seconds_from("90s"), seconds_from("20m"), seconds_from("1.5h")
    (90.0, 1200.0, 5400.0)
    """
    number, unit = text[:-1], text[-1:]
    try:
        amount = float(number) * _UNITS[unit]
    except (ValueError, KeyError):
        amount = 0.0
    if not 0 < amount < float("inf"):
        raise UserError(f"--budget takes a time such as 90s, 20m or 2h, not {text!r}")
    return amount


def in_words(seconds: float) -> str:
    """A time as a person says it.

    >>> in_words(40), in_words(400), in_words(40_000)
    ('40 seconds', '7 minutes', '11.1 hours')
    """
    return time_in_words(seconds, ("seconds", "minutes", "hours"))


def require_seeds(seeds: Sequence[int]) -> None:
    """Refuse fewer seeds than a budget keeps.

    Raises:
        UserError: For fewer than three.
    """
    if len(seeds) < 3:
        raise UserError(
            f"--budget keeps at least three seeds, and there are {len(seeds)}; give --seeds 0 1 2"
        )


def fit(question: "Comparison", budget: float, duration: "Callable[[Comparison], float]") -> Fitted:
    """Leave out as much as must be.

    Args:
        question: What was asked.
        budget: Seconds there are.
        duration: Seconds that a question takes.

    Raises:
        UserError: If even the least takes longer; it says how long.
    """
    require_seeds(question.seeds)
    left_out: list[str] = []
    fractions: list[str] = []
    while duration(question) > budget and len(question.fractions) > 1:
        fewest = min(question.fractions)
        left = tuple(fraction for fraction in question.fractions if fraction != fewest)
        question = replace(question, fractions=left)
        fractions.append(f"{100 * fewest:g} %")
    if fractions:
        left_out.append(f"the runs on {' and '.join(fractions)} of the images")
    wanted = question.recipe.epochs
    if duration(question) > budget:
        question = _fewer_epochs(question, budget, duration)
        left_out.append(f"{wanted - question.recipe.epochs} of {wanted} epochs")
    return Fitted(question, tuple(left_out), duration(question))


def _fewer_epochs(
    question: "Comparison", budget: float, duration: "Callable[[Comparison], float]"
) -> "Comparison":
    """Return the question with as many epochs as fit, found by bisection."""

    def with_epochs(epochs: int) -> "Comparison":
        return replace(question, recipe=changed_recipe(question.recipe, epochs, {}))

    low, high = max(1, round(LEAST_EPOCHS * question.recipe.epochs)), question.recipe.epochs
    least = duration(with_epochs(low))
    if least > budget:
        raise UserError(
            f"the budget of {in_words(budget)} does not suffice: {len(question.models)} models "
            f"with {len(question.seeds)} seeds take about {in_words(least)} at {low} epochs; give "
            "more time, fewer models or smaller images"
        )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if duration(with_epochs(middle)) <= budget else (low, middle)
    return with_epochs(low)
