"""How much locality a network has built in, found from its layers, not its name.

Layers and initialisations of the dial (:mod:`vitascope.models.vit.dial`) declare it as
``locality``.
"""

from torch import nn

from vitascope.layers.neighborhood import NeighborhoodAttention


def built_in(model: nn.Module) -> tuple[str, str]:
    """The kind of a network and its locality in words.

    >>> built_in(nn.Conv2d(1, 1, 3))
    ('cnn', 'hard: convolutions')
    """
    names = {name for name, _ in model.named_parameters()}
    attends = any("attn" in name or "attention" in name for name in names)
    if any(name.endswith("gating_param") for name in names):
        return "convit", "soft: gated positional attention, free to leave it"
    if any(isinstance(layer, NeighborhoodAttention) for layer in model.modules()):
        return "other", "hard: attention within a neighbourhood of each patch"
    declared = [getattr(layer, "locality", None) for layer in model.modules()]
    kinds = list(dict.fromkeys(kind for kind in declared if isinstance(kind, str)))
    if attends and kinds:
        return "vit", "; ".join(kinds)
    if attends and _mixing(model):
        return "other", "mixed: convolutions next to attention"
    windows = _windows(model)
    if any(_knows_offsets(layer) for layer in windows):
        return "other", "mixed: attention within windows of patches, biased by their offset"
    if any(_attends(layer) for layer in windows):
        return "other", "mixed: attention within windows of patches"
    if _units_of_patches(model):
        return "other", "mixed: attention within windows of patches in the first stages"
    if attends:
        return "vit", "none built in: plain attention"
    if any(p.ndim == 4 and p.shape[-1] > 1 for p in model.parameters()):
        return "cnn", "hard: convolutions"
    return "other", "unknown"


def _windows(model: nn.Module) -> list[nn.Module]:
    """Layers that keep within windows of patches.

    A window as large as the whole grid (BEiT) keeps nothing local; zero (SAM) means no windows.
    """
    whole = tuple(getattr(getattr(model, "patch_embed", None), "grid_size", None) or ())
    layers = []
    for layer in model.modules():
        window = getattr(layer, "window_size", None)
        if isinstance(window, int):
            window = (window, window)
        if isinstance(window, (tuple, list)) and any(window) and tuple(window) != whole:
            layers.append(layer)
    return layers


def _knows_offsets(layer: nn.Module) -> bool:
    """Return whether attention has a term for the offset of two patches."""
    tensors = [*layer.named_parameters(), *layer.named_buffers()]
    return any("relative" in name or "rel_pos" in name for name, _ in tensors)


def _attends(layer: nn.Module) -> bool:
    names = [name for name, _ in layer.named_parameters()]
    return any("attn" in name or "attention" in name or "qkv" in name for name in names)


def _units_of_patches(model: nn.Module) -> bool:
    """Return whether layers attend within the squares of patches that Hiera calls mask units."""
    return any(getattr(layer, "use_mask_unit_attn", False) for layer in model.modules())


def _mixing(model: nn.Module) -> bool:
    """Return whether it has convolutions whose windows overlap, next to its patch embedding."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    return sum(layer.kernel_size[0] > layer.stride[0] for layer in layers) > 1
