"""Calibration: ECE, NLL and Brier score, before and after temperature scaling.

    NLL   = -1/N sum_i log p_i[y_i]
    Brier = 1/N sum_i sum_k (p_i[k] - [k = y_i])^2        (0 to 2)

and the expected calibration error (ECE) over bins of confidence, adaptive and class by class
(:mod:`vitascope.reliability`), with standard errors by the bootstrap over images.
Accuracy against confidence in each bin is the reliability diagram (Guo et al. 2017,
https://arxiv.org/abs/1706.04599).
A model that always says 1.0 and is right half the time has ECE 0.5.

Temperature scaling, p = softmax(z / T), changes a model's confidence but none of its predictions.
The T of least NLL is the zero of

    dNLL/db = 1/N sum_i (sum_k p_i[k] z_i[k] - z_i[y_i]),   b = 1/T.

The NLL is convex in b, so its slope rises, and the zero is found by bracketing, in float64: no
learning rate, no starting point. The optimum is T = 0 if all images are right, and infinite if they
are wrong more often than by chance: T is bounded to [0.01, 100]. It is fitted on a half of the
images drawn with the seed, or on images of their own, and judged on the rest: ``before`` and
``after`` are of images the fit has not seen.

Shapes: N images, K classes, M bins.
"""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from operator import length_hint
from typing import Annotated, Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax
from torch import nn

from vitascope import capture
from vitascope.errors import UserError
from vitascope.measure.result import InstrumentResult, per_image
from vitascope.measure.robustness.changed_images import classes_of, labelled_batches
from vitascope.reliability import (
    NUM_BINS,
    adaptive_sums,
    bin_sums,
    class_wise,
    reliability,
    with_intervals,
)
from vitascope.settings import Within, checked

__all__ = ["Calibration", "Scaling", "Scores", "calibration", "scores"]

RESAMPLES = 100  # of the bootstrap
LIMIT = 100.0  # largest temperature and inverse temperature
MOST_RESAMPLED = 300_000  # images times classes, above which the class-wise ECE is not resampled


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Accuracy and calibration of the probabilities of some images."""

    top1: float  # share of 1
    top5: float | None  # None for fewer than 5 classes (it would be 1)
    nll: float  # nats
    brier: float  # 0 to 2
    ece: float  # share of 1
    num_images: int
    bin_count: tuple[int, ...]  # (M,)
    bin_confidence: tuple[float, ...]  # mean in each bin, 0 where it is empty
    bin_accuracy: tuple[float, ...]
    bin_low: tuple[float, ...]  # 95 % interval of the accuracy of each bin
    bin_high: tuple[float, ...]
    ece_error: float  # standard error by the bootstrap over images
    adaptive_ece: float  # bins of equal numbers of images
    adaptive_error: float
    adaptive_bins: dict[str, tuple[float, ...]]  # as bin_confidence, bin_accuracy, ...
    class_wise_ece: float  # mean over classes
    class_wise_error: float | None  # None where images times classes are too many to resample


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """Scores with a fitted temperature, on images it was not fitted on."""

    temperature: float
    num_fitted: int  # images it was fitted on
    fitted_nll: tuple[float, float]  # of those, before and after
    before: Scores
    after: Scores


@dataclass(frozen=True, kw_only=True)
class Calibration(InstrumentResult, kind="calibration"):
    """Scores of all images, and temperature scaling if it was fitted."""

    scores: Scores
    scaling: Scaling | None
    seed: int
    # of each image: confidence above having been right; (N,)
    overconfidence: np.ndarray | None = per_image(np.float32)

    def record_values(self) -> dict[str, Any]:
        """Return the scores of all images, and those with temperature scaling."""
        return {**asdict(self.scores), "scaling": self.scaling}


def nll(logits: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log likelihood of logits (N, K) with labels (N,), in nats.

    >>> round(nll(np.zeros((3, 10)), np.array([1, 2, 3])), 3)
    2.303
    """
    log_p = log_softmax(np.asarray(logits, dtype=np.float64), axis=1)
    return float(-log_p[np.arange(len(labels)), labels].mean())


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """The temperature of least NLL, between 0.01 and 100; 1 if none is better."""
    logits = np.asarray(logits, dtype=np.float64)
    logits = logits - logits.max(1, keepdims=True)
    label = logits[np.arange(len(labels)), labels]

    def slope(log_b: float) -> float:
        p = softmax(np.exp(log_b) * logits, axis=1)
        return float(((p * logits).sum(1) - label).mean())

    low, high = -np.log(LIMIT), np.log(LIMIT)
    if slope(low) >= 0:
        log_b = low
    elif slope(high) <= 0:
        log_b = high
    else:
        log_b = brentq(slope, low, high, xtol=1e-12)
    temperature = float(np.exp(-log_b))
    return temperature if nll(logits / temperature, labels) < nll(logits, labels) else 1.0


def scores(logits: np.ndarray, labels: np.ndarray, num_bins: int = NUM_BINS) -> Scores:
    """Return all scores of logits (N, K) with labels (N,).

    >>> round(scores(np.log([[0.75, 0.25], [0.25, 0.75]]), np.array([0, 0])).ece, 9)
    0.25
    """
    logits = np.asarray(logits, dtype=np.float64)
    log_p = log_softmax(logits, axis=1)
    p, rows = np.exp(log_p), np.arange(len(labels))
    hit = log_p.argmax(1) == labels
    better = (log_p > log_p[rows, labels, None]).sum(1)
    square = (p**2).sum(1) - 2 * p[rows, labels] + 1
    confidence, right = np.minimum(p.max(1), 1.0), hit.astype(float)
    adaptive = with_intervals(adaptive_sums(confidence, right, num_bins))

    def resampled(statistic: Callable[[np.ndarray], float]) -> float:
        rng = np.random.default_rng(0)
        drawn = [statistic(rng.integers(len(labels), size=len(labels))) for _ in range(RESAMPLES)]
        return float(np.std(drawn, ddof=1))

    few = logits.size <= MOST_RESAMPLED
    return Scores(
        top1=float(hit.mean()),
        top5=float((better < 5).mean()) if logits.shape[1] >= 5 else None,
        nll=float(-log_p[rows, labels].mean()),
        brier=float(square.mean()),
        num_images=len(labels),
        **with_intervals(bin_sums(confidence, right, num_bins)),
        ece_error=resampled(
            lambda i: reliability(bin_sums(confidence[i], right[i], num_bins))["ece"]
        ),
        adaptive_ece=adaptive.pop("ece"),
        adaptive_error=resampled(
            lambda i: reliability(adaptive_sums(confidence[i], right[i], num_bins))["ece"]
        ),
        adaptive_bins=adaptive,
        class_wise_ece=float(class_wise(p, labels, num_bins).mean()),
        class_wise_error=resampled(lambda i: float(class_wise(p[i], labels[i], num_bins).mean()))
        if few
        else None,
    )


@checked
def calibration(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    num_bins: Annotated[int, Within(1, 10_000)] = NUM_BINS,
    fit: Iterable[Any] | None = None,
    seed: int = 0,
    on_step: Callable[[str, int], None] = lambda step, ahead: None,
) -> Calibration:
    """Measure calibration, and what temperature scaling would do.

    Args:
        model: Any classifier; it is left unchanged.
        batches: (images, labels); the logits of all of them are kept.
        num_bins: Of the reliability diagram and the ECE.
        fit: Batches to fit the temperature on; otherwise a half of ``batches`` is held out for it.
        seed: Of the choice of that half.
        on_step: Called before each batch with the measure's name and the number of batches ahead.
    """
    if num_bins < 1:
        raise UserError(f"give at least 1 bin, not {num_bins}")
    logits, labels = _answers(model, batches, on_step)
    if fit is not None:
        held, rest = _answers(model, fit, on_step), (logits, labels)
    else:
        order = np.random.default_rng(seed).permutation(len(labels))
        half = np.sort(order[: len(order) // 2]), np.sort(order[len(order) // 2 :])
        held, rest = ((logits[part], labels[part]) for part in half)
    return Calibration(
        scores=scores(logits, labels, num_bins),
        scaling=_scaling(held, rest, num_bins) if len(held[1]) else None,
        seed=seed,
        overconfidence=softmax(logits, axis=1).max(1) - (logits.argmax(1) == labels),
    )


Answers = tuple[np.ndarray, np.ndarray]  # logits (N, K), labels (N,)


def _scaling(held: Answers, rest: Answers, num_bins: int) -> Scaling:
    temperature = fit_temperature(*held)
    return Scaling(
        temperature=temperature,
        num_fitted=len(held[1]),
        fitted_nll=(nll(*held), nll(held[0].astype(np.float64) / temperature, held[1])),
        before=scores(*rest, num_bins),
        after=scores(rest[0].astype(np.float64) / temperature, rest[1], num_bins),
    )


def _answers(
    model: nn.Module, batches: Iterable[Any], on_step: Callable[[str, int], None]
) -> Answers:
    """Logits, in single precision or the model's own if finer, and labels of all images."""
    logits, labels = [], []
    length = length_hint(batches, 0)
    with capture.evaluating(model):
        for done, batch in enumerate(labelled_batches(batches, model)):
            on_step("calibration", max(length - done, 1))
            answer = capture.logits_of(model(batch.images))
            classes_of(answer, batch.labels)
            logits.append(answer.cpu().numpy())
            labels.append(batch.labels.cpu().numpy())
    values = np.concatenate(logits)
    if not np.isfinite(values).all():
        raise UserError("calibration needs finite logits; the model puts out infinite ones")
    return values, np.concatenate(labels)
