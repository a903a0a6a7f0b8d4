"""``pytest --rounding-noise SEED``: run the tests as if another CPU had rounded.

Sums and products of floating-point numbers differ between CPUs in their last bits, because the
order of the additions differs. With this option every such result is multiplied by 1 plus at most
two units in its last place. The factor depends on SEED, on the result and on its position in the
array, so one computation made twice gives the same bits. A test that then fails hangs on the last
bit; so would it on some machine.

Left alone because it is exact on every CPU: integers, floating-point numbers that are all whole,
and sums of at most two numbers.

Reached are numpy's sum, mean, var, std, prod (as functions and methods), dot, matmul, einsum and
tensordot (as functions of ``numpy``) and those kernels of torch that `KERNELS` names, in forward
and backward passes. Out of Python's reach are numpy's ``@``, ``np.add.reduce`` and ``np.linalg``,
what scipy and scikit-learn compute, other threads and processes, and graphs that are traced,
compiled or exported. `make portable` changes the rounding of those by settings of their libraries.

A test whose contract is equality to the last bit with one of these is marked
``@pytest.mark.bit_exact("reason")`` and runs without noise.
"""

import contextlib
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = {  # of torch
    *("sum", "mean", "var", "std", "var_mean", "prod", "norm", "linalg_vector_norm", "logsumexp"),
    *("mm", "bmm", "mv", "dot", "addmm", "addmv", "baddbmm", "_cdist_forward", "_trilinear"),
    *("convolution", "convolution_backward", "_native_multi_head_attention"),
    *("_transformer_encoder_layer_fwd", "_scaled_dot_product_flash_attention_for_cpu"),
    *("_scaled_dot_product_flash_attention_for_cpu_backward", "_softmax", "_log_softmax"),
    *("_softmax_backward_data", "_log_softmax_backward_data", "native_layer_norm"),
    *("native_layer_norm_backward", "native_group_norm", "native_batch_norm"),
    *("native_batch_norm_backward", "_native_batch_norm_legit", "mkldnn_linear"),
    *("nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits"),
    *("avg_pool2d", "_adaptive_avg_pool2d", "_fused_rms_norm"),
}
EXACT_IN_PAIRS = {"sum", "mean", "prod"}  # of two numbers
UNITS = (-2.0, -1.0, 1.0, 2.0)
TABLE_BITS = 12


class RoundingNoise:
    """Factors near one for the values of arrays, the same for the same value and position."""

    def __init__(self, seed: int):
        drawn = np.random.default_rng(seed).choice(UNITS, size=2**TABLE_BITS)
        self.tables = {
            dtype: (1 + drawn * np.finfo(dtype).eps).astype(dtype)
            for dtype in (np.float32, np.float64)
        }
        self.torch_tables = {
            torch.float32: torch.from_numpy(self.tables[np.float32]),
            torch.float64: torch.from_numpy(self.tables[np.float64]),
        }

    def on_array(self, result):
        """A numpy array or scalar with noise in its last bits."""
        dtype = getattr(result, "dtype", None)
        if dtype not in (np.float32, np.float64):
            return result
        values = np.atleast_1d(np.ascontiguousarray(result))
        bits = values.view(f"u{values.itemsize}").astype(np.uint64)
        position = np.arange(values[0].size, dtype=np.uint64).reshape(values[0].shape)
        with np.errstate(over="ignore"):
            mixed = (bits + position * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(
                0xD1B54A32D192ED03
            )
        noisy = values * self.tables[dtype.type][mixed >> np.uint64(64 - TABLE_BITS)]
        return noisy.reshape(np.shape(result)) if np.ndim(result) else dtype.type(noisy[0])

    def on_tensor(self, result, largest=math.inf):
        """Change the last bits of a tensor in place."""
        table = self.torch_tables.get(result.dtype)
        if table is None or result.numel() == 0:
            return
        integer = torch.int32 if result.dtype == torch.float32 else torch.int64
        position = torch.arange(result[0].numel() if result.ndim else 1)
        position = position.reshape(result.shape[1:]) if result.ndim else position[0]
        bits = result.view(integer).long()
        mixed = (bits + position * 0x1E3779B97F4A7C15) * -0x2E4AB5CD2E6D12FD
        result *= table[(mixed >> (64 - TABLE_BITS)) & (2**TABLE_BITS - 1)]
        if math.isfinite(largest):
            result.clamp_(max=largest)


def whole(values) -> bool:
    """Whether all numbers are whole, so that their sums and products are exact."""
    if isinstance(values, torch.Tensor):
        return not values.is_floating_point() or bool((values == values.round()).all())
    values = np.asarray(values)
    return values.dtype.kind != "f" or bool((values == np.rint(values)).all())


def plain(value) -> bool:
    """Whether this is a tensor of numbers, not one that is traced or faked."""
    tensor = type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu"
    return tensor and not (torch.jit.is_tracing() or torch.compiler.is_compiling())


class NoisyTorch(TorchDispatchMode):
    """Adds noise to what torch's kernels of reductions and products return, also backwards."""

    def __init__(self, noise: RoundingNoise):
        super().__init__()
        self.noise = noise

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in KERNELS and func._schema.is_mutable is False:
            result = results[0] if isinstance(results, tuple) else results
            if not self._exact(name, result, args):
                self.noise.on_tensor(result, 1.0 if name == "_softmax" else math.inf)
        return results

    @staticmethod
    def _exact(name, result, args):
        if not plain(result):
            return True
        given = [each for each in args if plain(each)]
        pairs = bool(given) and given[0].numel() <= 2 * max(result.numel(), 1)
        if name in EXACT_IN_PAIRS and pairs:
            return True
        return name != "_softmax" and bool(given) and all(whole(each) for each in given)


def noisy_numpy(noise: RoundingNoise, patch: pytest.MonkeyPatch) -> None:
    """Replace numpy's reductions and products by noisy ones."""
    methods, functions = np._core._methods, np._core.fromnumeric

    def reduction(function, first=0):
        def noisy(*args, **kwargs):
            result = function(*args, **kwargs)
            given = np.asarray(args[first])
            if given.size <= 2 * max(np.size(result), 1) or whole(given):
                return result
            return noise.on_array(result) if kwargs.get("out") is None else result

        return noisy

    def product(function):
        def noisy(*args, **kwargs):
            result = function(*args, **kwargs)
            arrays = [each for each in args if not isinstance(each, str)]
            exact = kwargs.get("out") is not None or all(whole(each) for each in arrays)
            return result if exact else noise.on_array(result)

        return noisy

    patch.setattr(methods, "umr_sum", reduction(methods.umr_sum))
    patch.setattr(methods, "umr_prod", reduction(methods.umr_prod))
    original = functions._wrapreduction
    with_noise = reduction(original)

    def wrapreduction(values, ufunc, *args, **kwargs):
        noisy = ufunc in (np.add, np.multiply) and type(values) is np.ndarray
        return (with_noise if noisy else original)(values, ufunc, *args, **kwargs)

    patch.setattr(functions, "_wrapreduction", wrapreduction)
    for name in ("dot", "matmul", "einsum", "tensordot"):
        patch.setattr(np, name, product(getattr(np, name)))


def pytest_addoption(parser):
    parser.addoption("--rounding-noise", type=int, metavar="SEED", help="round as another CPU")


def pytest_configure(config):
    config.addinivalue_line("markers", "bit_exact(reason): equal to the last bit, without noise")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """The noise is there for fixtures, too."""
    seed = item.config.getoption("--rounding-noise")
    if seed is None or item.get_closest_marker("bit_exact"):
        return (yield)
    noise = RoundingNoise(seed)
    with contextlib.ExitStack() as stack:
        stack.enter_context(NoisyTorch(noise))
        noisy_numpy(noise, stack.enter_context(pytest.MonkeyPatch.context()))
        return (yield)
