"""Temperature scaling: one number that calibrates a softmax.

    p = softmax(z / T)

changes a model's confidence but none of its predictions (Guo et al. 2017,
https://arxiv.org/abs/1706.04599). The T of least NLL is the zero of

    dNLL/db = 1/N sum_i (sum_k p_i[k] z_i[k] - z_i[y_i]),   b = 1/T.

The NLL is convex in b, so its slope rises, and the zero is found by bracketing, in float64: no
learning rate, no starting point. The optimum is T = 0 if all images are right, and infinite if they
are wrong more often than by chance: T is bounded to [0.01, 100].

Shapes: N images, K classes.
"""

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

LIMIT = 100.0  # largest temperature and inverse temperature


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
