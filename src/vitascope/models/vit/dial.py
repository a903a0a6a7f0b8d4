"""The locality dial: suffixes that each add some locality to a plain ViT.

| suffix | what it changes | where |
|---|---|---|
| ``+mimetic`` | initial attention weights | :mod:`vitascope.models.vit.mimetic` |
| ``+sincos`` | initial position embeddings alone, those of ``+mimetic`` | the same |
| ``+impulse`` | initial attention weights | :mod:`vitascope.models.vit.impulse` |
| ``+lsa`` | attention, with a masked diagonal | :mod:`vitascope.layers.locality_self_attention` |
| ``+spt`` | patches, overlapping by half | :mod:`vitascope.models.vit.shifted_patches` |
| ``+stem`` | a convolutional stem for patches | :mod:`vitascope.models.vit.convolutional_stem` |
| ``+rope`` | rotary in place of absolute positions | :mod:`vitascope.layers.rotary` |
| ``+mixture`` | attention with learned shares of content, position, mean and windows, from \
ConViT's start | :mod:`vitascope.layers.mixture` |
| ``+mixture_equal`` | the same from equal shares | the same |

They combine, unless two contradict each other (:data:`REFUSED`). ``+rope`` removes the absolute
position embeddings: the paper's RoPE-Mixed replaces them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import Any

from timm.layers import Attention
from timm.models.vision_transformer import VisionTransformer

from vitascope.errors import UserError
from vitascope.layers.locality_self_attention import LocalitySelfAttention
from vitascope.layers.mixture import MixtureAttention
from vitascope.layers.rotary import add_rotary
from vitascope.models.vit.convolutional_stem import StemEmbed
from vitascope.models.vit.impulse import start_impulse
from vitascope.models.vit.mimetic import start_mimetic, start_sincos
from vitascope.models.vit.shifted_patches import ShiftedPatchEmbed


@dataclass(frozen=True)
class Change:
    """Change of a ViT by a suffix."""

    arguments: dict[str, Any] = field(default_factory=dict)  # to build it with
    blocks: int = 0  # more or fewer than it has
    finish: Callable[[VisionTransformer], None] | None = None  # once it is built


def use_rotary(model: VisionTransformer) -> None:
    """Give every attention layer rotary positions."""
    for layer in model.modules():
        if isinstance(layer, Attention):
            add_rotary(layer, model.patch_embed.grid_size, model.num_prefix_tokens)


def start_mixture(model: VisionTransformer, shares: str) -> None:
    """Tell every mixture layer its grid, and set its start."""
    for layer in model.modules():
        if isinstance(layer, MixtureAttention):
            layer.grid = model.patch_embed.grid_size
            layer.num_prefix_tokens = model.num_prefix_tokens
            layer.start(shares)


# Without a class token: of the last block's gates, it would read those of content and mean alone.
_MIXTURE = {"attn_layer": MixtureAttention, "class_token": False, "global_pool": "avg"}
DIAL = {
    "mimetic": Change(finish=start_mimetic),
    "sincos": Change(finish=start_sincos),
    "impulse": Change(finish=start_impulse),
    "lsa": Change({"attn_layer": LocalitySelfAttention}),
    "spt": Change({"embed_layer": ShiftedPatchEmbed}),
    "stem": Change({"embed_layer": StemEmbed}, blocks=-1),
    "rope": Change({"pos_embed": "none"}, finish=use_rotary),
    "mixture": Change(_MIXTURE, finish=partial(start_mixture, shares="convit")),
    "mixture_equal": Change(_MIXTURE, finish=partial(start_mixture, shares="equal")),
}

_NO_TABLE = "the start needs the table of positions that rotary replaces"
REFUSED = {
    frozenset(("mimetic", "impulse")): "both start the same weights",
    frozenset(("mimetic", "lsa")): "one wants the diagonal of attention, the other masks it",
    frozenset(("spt", "stem")): "both take the place of the patches",
    frozenset(("mimetic", "sincos")): "one begins with the table that the other is",
    frozenset(("impulse", "sincos")): "both start the table of positions",
    frozenset(("rope", "mimetic")): _NO_TABLE,
    frozenset(("rope", "impulse")): _NO_TABLE,
    frozenset(("rope", "sincos")): _NO_TABLE,
    frozenset(("mixture", "mixture_equal")): "one is the other with another start",
    **{
        frozenset((mixture, other)): "both replace the attention or start its weights"
        for mixture in ("mixture", "mixture_equal")
        for other in ("lsa", "mimetic", "impulse")
    },
}


def check_changes(changes: Sequence[str]) -> None:
    """Refuse suffixes that are given twice or contradict each other."""
    for first, second in combinations(changes, 2):
        if first == second:
            raise UserError(f"+{first} is given twice; give it once")
        why = REFUSED.get(frozenset((first, second)))
        if why is not None:
            raise UserError(f"+{first}+{second} do not go together: {why}; give one of them")
