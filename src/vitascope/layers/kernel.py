"""A convolution's kernel as attention heads at fixed offsets, with padding.

Output i of a convolution with kernel size k, dilation l and padding p on one axis sees the patches
``i - p + l j``, j = 0 ... k - 1. Seen from the patch in the middle of the kernel these are the
offsets ``l j - floor(l (k - 1) / 2)``: for 3 the offsets -1, 0, 1, for 4 the offsets -1, 0, 1, 2,
as ``padding="same"`` lays them. All of it holds for each axis by itself, the padding too.

Shapes: H entries of the kernel, n patches on one axis.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MODES = {
    "zeros": "constant",
    "circular": "circular",
    "replicate": "replicate",
    "reflect": "reflect",
}


def margins(conv: nn.Conv2d) -> list[tuple[int, int]]:
    """Return how far the kernel reaches before and after a patch, on each axis.

    >>> margins(nn.Conv2d(1, 1, (3, 4), dilation=(2, 1)))
    [(2, 2), (1, 2)]
    """
    reach = [d * (k - 1) for d, k in zip(conv.dilation, conv.kernel_size, strict=True)]
    return [(total // 2, total - total // 2) for total in reach]


def head_offsets(conv: nn.Conv2d) -> Tensor:
    """Return where each entry of the kernel looks, (y, x), in the order of its weights. (H, 2)

    >>> head_offsets(nn.Conv2d(1, 1, (1, 3))).tolist()
    [[0.0, -1.0], [0.0, 0.0], [0.0, 1.0]]
    """
    axes = [
        torch.arange(size, dtype=torch.float64) * dilation - before
        for size, dilation, (before, _) in zip(
            conv.kernel_size, conv.dilation, margins(conv), strict=True
        )
    ]
    return torch.cartesian_prod(*axes)


def fold(window: Tensor, size: int, margin: tuple[int, int], mode: str) -> Tensor:
    """Give weight on the padding to the patches it repeats. (H, padded, padded) -> (H, n, n)"""
    before, _ = margin
    one_hot = torch.eye(size, dtype=window.dtype, device=window.device)
    sources = F.pad(one_hot[None], margin, mode=mode)[0]  # (n, padded): which patch lies where
    return window[:, before : before + size] @ sources.mT


def trimmed(conv: nn.Conv2d) -> list[tuple[int, int]]:
    """First output that the convolution computes, and how many fewer than patches, on each axis.

    >>> trimmed(nn.Conv2d(1, 1, (3, 5), padding=1))
    [(0, 0), (1, 2)]
    """
    reach = margins(conv)
    if isinstance(conv.padding, str):
        return [(0, 0) if conv.padding == "same" else (b, b + a) for b, a in reach]
    return [(b - pad, b + a - 2 * pad) for pad, (b, a) in zip(conv.padding, reach, strict=True)]


def reason_not_convertible(conv: nn.Module) -> str | None:
    """Why a layer cannot be converted to attention; None if it can."""
    if not isinstance(conv, nn.Conv2d):
        return f"{type(conv).__name__} is no nn.Conv2d"
    own = type(conv).forward, type(conv)._conv_forward
    if own != (nn.Conv2d.forward, nn.Conv2d._conv_forward):
        return f"{type(conv).__name__} computes something else than nn.Conv2d"
    if tuple(conv.stride) != (1, 1):
        return f"stride {tuple(conv.stride)}: it has fewer outputs than patches, so use stride 1"
    if conv.padding_mode not in MODES:
        return f"padding mode {conv.padding_mode!r}; possible: {', '.join(MODES)}"
    if any(first < 0 for first, _ in trimmed(conv)):
        return f"padding {conv.padding} gives more outputs than patches, and a query is a patch"
    return None
