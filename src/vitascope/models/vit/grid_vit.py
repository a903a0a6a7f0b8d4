"""A vision transformer whose blocks are given the grid of patches.

timm's :class:`~timm.models.vision_transformer.VisionTransformer` hands its blocks tokens alone. A
block that looks at neighbours needs the grid as well, and with ``dynamic_img_size`` the grid
changes from call to call: here every block is called as ``block(x, grid)``. All else is timm's.

Shapes: B images, N patches on a grid (h, w), T = prefix tokens + N, D width.
"""

from collections.abc import Sequence
from typing import Any

from timm.models import checkpoint
from timm.models._features import feature_take_indices
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from vitascope.errors import UserError
from vitascope.models.vit.patches import PatchEmbed


class GridViT(VisionTransformer):
    """timm's ViT for blocks that take ``(x, grid)``; arguments as there."""

    def __init__(self, **kwargs: Any):
        width, heads = kwargs.get("embed_dim", 768), kwargs.get("num_heads", 12)
        if heads < 1 or width % heads:
            raise UserError(
                f"width {width} cannot be split over {heads} heads; "
                f"give a width that is a multiple of the number of heads"
            )
        if kwargs.get("patch_drop_rate"):
            raise UserError("patch_drop_rate leaves patches without neighbours here: it must be 0")
        super().__init__(**{"embed_layer": PatchEmbed, **kwargs})

    def embed(self, x: Tensor) -> tuple[Tensor, Sequence[int]]:
        """Tokens with position embeddings, and the grid of the patches. (B, T, D), (h, w)"""
        grid = self.patch_embed.dynamic_feat_size(x.shape[-2:])
        return self.norm_pre(self._pos_embed(self.patch_embed(x))), grid

    def run_block(self, index: int, x: Tensor, grid: Sequence[int]) -> Tensor:
        """One block. (B, T, D) -> (B, T, D)"""
        if self.grad_checkpointing and self.training:
            return checkpoint(self.blocks[index], x, grid)
        return self.blocks[index](x, grid)

    def prefix_after(self, index: int) -> int:
        """Return how many prefix tokens a block's output begins with."""
        return self.num_prefix_tokens

    def forward_features(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Images to normalised tokens. (B, C, height, width) -> (B, T, D)"""
        x, grid = self.embed(x)
        for index in range(len(self.blocks)):
            x = self.run_block(index, x, grid)
        return self.norm(x)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Images to logits. (B, C, height, width) -> (B, num_classes)"""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(  # type: ignore[override]
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        return_prefix_tokens: bool = False,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Outputs of chosen blocks, as timm gives them."""
        if output_fmt not in ("NCHW", "NLC"):
            raise UserError(f"output_fmt={output_fmt!r}; there are: NCHW, NLC")
        take, last = feature_take_indices(len(self.blocks), indices)
        x, grid = self.embed(x)
        features: list[Any] = []
        for index in range(last + 1 if stop_early else len(self.blocks)):
            x = self.run_block(index, x, grid)
            if index in take:
                seen = self.norm(x) if norm else x
                count = self.prefix_after(index)
                patches = seen[:, count:]
                if output_fmt == "NCHW":
                    patches = patches.mT.unflatten(-1, tuple(grid)).contiguous()
                features.append((patches, seen[:, :count]) if return_prefix_tokens else patches)
        return features if intermediates_only else (self.norm(x), features)
