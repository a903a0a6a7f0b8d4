"""What a Hessian spectrum costs: our block Lanczos, PyHessian's power iteration, SciPy's eigsh.

The five eigenvalues of largest magnitude of a ViT-Ti in small (6 blocks, width 96, 3 heads, 683k
weights, 32 x 32 images, fresh weights), 16 random images, no weight decay, float32, attention on
the math path for all, since PyHessian fails on fused kernels. They take turns in one process at
two accuracies: that of PyHessian's own default, about 1 %, and 0.01 %. ``eigsh`` (Lanczos from one
start vector) runs on our products; since it can lose copies of a repeated eigenvalue, a second run
looks for the largest of what its five leave over. What each reached is kept
beside its time: the worst of the five relative errors of magnitude against a float64 reference with
residuals below 1e-6. Times are the process's own seconds, which a busy machine does not stretch.
Then a few batches one after the other, with and without a warm start.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from time import perf_counter, process_time
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError
from vitascope.measure import hessian
from vitascope.measure.curvature.objective import deterministic
from vitascope.measure.curvature.products import HessianProducts
from vitascope.measure.timing import Benchmark, Row, TimedComparison
from vitascope.threads import running_on

Found = tuple[np.ndarray, int]  # eigenvalues by magnitude, products
LEVELS = (  # the error aimed at, tolerance of ours and eigsh, PyHessian's
    ("1 %", 3e-2, 1e-3),
    ("0.01 %", 3e-3, 1e-5),
)


@dataclass(frozen=True)
class HessianBenchmark(Benchmark, subject="hessian"):
    """Speed above 1 is faster than the peer; errors and products say what the time bought."""

    speed: tuple[Row, ...]
    reached: tuple[tuple[str, float, float, float, float], ...]
    """Who, median and largest error over the rounds, median products, median seconds."""
    products: dict[str, list[int]]  # of one batch after the other, by kind of start


def by_magnitude(values: Any) -> np.ndarray:
    """Eigenvalues, largest magnitude first.

    >>> by_magnitude([1.0, -3.0, 2.0]).tolist()
    [-3.0, 2.0, 1.0]
    """
    return np.array(sorted(map(float, values), key=lambda value: -abs(value)))


def worst_error(found: np.ndarray, reference: np.ndarray) -> float:
    """Largest relative error of a magnitude."""
    size = np.abs(reference)
    return float((np.abs(np.abs(found) - size) / size).max())


def ours(model: nn.Module, batch: tuple[Tensor, Tensor], tolerance: float) -> Found:
    """Our instrument on one batch."""
    found = hessian(model, [batch], weight_decay=0.0, tolerance=tolerance)
    return found.eigenvalues[0], int(found.products[0])


def pyhessians(model: nn.Module, batch: tuple[Tensor, Tensor], tolerance: float) -> Found:
    """PyHessian on the same batch; its products are counted."""
    try:
        import_module("pyhessian")
        module = sys.modules["pyhessian.hessian"]  # the package's own name for it is a class
    except ImportError:
        raise UserError("the peer is missing: pip install 'vitascope[test]'") from None
    with _counted(module, "hessian_vector_product") as calls, catch_warnings():
        simplefilter("ignore")  # on the reference cycle that it makes, and that we undo
        with deterministic(model):
            peer = module.hessian(model, F.cross_entropy, data=batch, cuda=False)
            values, _ = peer.eigenvalues(maxIter=1000, tol=tolerance, top_n=5)
    model.zero_grad(set_to_none=True)
    return by_magnitude(values), len(calls)


def eigshs(model: nn.Module, batch: tuple[Tensor, Tensor], tolerance: float) -> Found:
    """SciPy's solver on our products, with a look for copies that it lost."""
    product, count = HessianProducts(model, [batch]), 0
    known = np.zeros(0), np.zeros((product.size, 0))

    def left_over(vector: np.ndarray) -> np.ndarray:
        nonlocal count
        count += 1
        values, vectors = known
        image = product(torch.from_numpy(vector.ravel().astype(np.float32))).numpy()
        return image - vectors @ (values * (vectors.T @ vector.ravel()))

    matrix = LinearOperator((product.size, product.size), left_over, dtype=np.float32)
    start = torch.randn(2, product.size).numpy()
    known = eigsh(matrix, 5, which="LM", tol=tolerance, v0=start[0])
    further = eigsh(matrix, 1, which="LM", tol=tolerance, v0=start[1])[0]
    return by_magnitude([*known[0], *further])[:5], count


def time_hessian(
    *,
    batch_size: int = 16,
    rounds: int = 3,
    threads: int = 1,
    depth: int = 6,
    width: int = 96,
    warm_batches: int = 3,
    progress: Callable[[str], object] = lambda stage: None,
) -> HessianBenchmark:
    """Let the three take turns at both accuracies."""
    start = perf_counter()
    with running_on(threads):
        torch.manual_seed(0)
        model = VisionTransformer(
            img_size=32,
            patch_size=4,
            embed_dim=width,
            depth=depth,
            num_heads=3,
            num_classes=10,
        ).eval()
        batches = [
            (torch.randn(batch_size, 3, 32, 32), torch.randint(0, 10, (batch_size,)))
            for _ in range(max(1, warm_batches))
        ]
        progress("reference")
        tight = hessian(
            model, batches[:1], weight_decay=0.0, tolerance=1e-6, dtype=torch.float64
        ).eigenvalues[0]
        speed, reached = [], []
        for level, our_tolerance, peers in LEVELS:
            candidates = {
                "ours": partial(ours, model, batches[0], our_tolerance),
                "PyHessian": partial(pyhessians, model, batches[0], peers),
                "eigsh": partial(eigshs, model, batches[0], our_tolerance),
            }
            progress(f"to {level}")
            times, found = _turns(candidates, rounds)
            for peer in ("PyHessian", "eigsh"):
                pair = f"five eigenvalues to {level} / {peer}"
                speed.append((pair, *times.speed("ours", peer)))
            for who, runs in found.items():
                errors = [worst_error(values, tight) for values, _ in runs]
                products = float(np.median([count for _, count in runs]))
                middle = float(np.median(errors)), max(errors), products, times.median(who)
                reached.append((f"{who}, {level}", *middle))
        counts = {}
        for name, warm in (("from the batch before", True), ("from the gradient", False)):
            progress(f"batches {name}")
            row = hessian(model, batches, weight_decay=0.0, warm_start=warm).products
            counts[name] = [int(count) for count in row]
    config = {"batch_size": batch_size, "rounds": rounds, "threads": threads, "depth": depth}
    config |= {"width": width, "img_size": 32, "patch_size": 4}
    config |= {"weights": sum(weight.numel() for weight in model.parameters())}
    return HessianBenchmark(
        tuple(speed), tuple(reached), counts, config=config, seconds=perf_counter() - start
    )


def _turns(
    candidates: Mapping[str, Callable[[], Found]], rounds: int
) -> tuple[TimedComparison, dict[str, list[Found]]]:
    """Seconds of each in every round, and what it found; long runs need no warm-up."""
    seconds: dict[str, list[float]] = {who: [] for who in candidates}
    found: dict[str, list[Found]] = {who: [] for who in candidates}
    for turn in range(rounds):
        for who in candidates if turn % 2 == 0 else reversed(list(candidates)):
            torch.manual_seed(turn)  # PyHessian starts at random
            start = process_time()
            found[who].append(candidates[who]())
            seconds[who].append(process_time() - start)
    return TimedComparison({who: tuple(values) for who, values in seconds.items()}), found


@contextmanager
def _counted(module: Any, name: str) -> Iterator[list[None]]:
    """A list that grows with every call of a function of a module."""
    calls: list[None] = []
    function = getattr(module, name)

    def counting(*args: Any) -> Any:
        calls.append(None)
        return function(*args)

    setattr(module, name, counting)
    try:
        yield calls
    finally:
        setattr(module, name, function)
