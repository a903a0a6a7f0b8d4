"""Statistics of runs: intervals of differences, verdicts on claims, which model to take.

- `differences`: accuracies of models that met the same test images, with their intervals
- `numbers`: contrasts of other numbers, of spectra, and correlations
- `claims`: verdicts on what a paper says, minimum detectable effects
- `recommendation`: which model to take
- `repeated`: the same after every new seed, until it is decided
- `variance`: an interval from a variance of two parts

Needs numpy and scipy alone. Pure functions; nothing here reads a file.
"""

from vitascope.stats.claims import Judgement, Verdict, judge
from vitascope.stats.differences import Images, accuracy, contrast, difference
from vitascope.stats.numbers import (
    Correlation,
    contrast_of_batches,
    contrast_of_numbers,
    correlation,
)
from vitascope.stats.recommendation import Needed, Recommendation, recommend
from vitascope.stats.repeated import Look, levels, looks
from vitascope.stats.variance import ErrorVariance, Estimate

__all__ = [
    "Correlation",
    "ErrorVariance",
    "Estimate",
    "Images",
    "Judgement",
    "Look",
    "Needed",
    "Recommendation",
    "Verdict",
    "accuracy",
    "contrast",
    "contrast_of_batches",
    "contrast_of_numbers",
    "correlation",
    "difference",
    "judge",
    "levels",
    "looks",
    "recommend",
]
