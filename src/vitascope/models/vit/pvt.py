"""PVT: a vision transformer in stages, with fewer keys where there are many patches.

Wang et al. 2021 (https://arxiv.org/abs/2102.12122). Each stage cuts the map into patches (4 x 4
pixels, then 2 x 2), adds position embeddings and runs transformer blocks whose queries are all
patches and whose keys are the patches of a map R times smaller (spatial-reduction attention):

    SRA(Q, K, V) = softmax(Q SR(K)^T / sqrt(d)) SR(V),   SR(x) = LayerNorm(W_s Reshape(x, R))

with R = 8, 4, 2, 1. A class token joins in the last stage. The attention is that of timm's PVTv2
without its later changes; patches, feed-forward parts and drop path are timm's too. PVT-Tiny has
13.2M parameters, PVT-Small 24.5M.

Shapes: B images, stage k has N_k patches on a grid (h_k, w_k), width D_k, T_k tokens.

Shapes: B images, N patches on a grid (h, w), T = prefix tokens + N, D width.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import lcm
from operator import mul
from typing import Any

import torch
from timm.layers import DropPath, Mlp, calculate_drop_path_rates, resample_abs_pos_embed
from timm.models import checkpoint
from timm.models._features import feature_take_indices
from timm.models.pvt_v2 import Attention as SpatialReductionAttention
from timm.models.vision_transformer import global_pool_nlc
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.models.vit.patches import PatchEmbed


class PVTBlock(nn.Module):
    """A transformer block with spatial-reduction attention."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        reduction: int,
        mlp_ratio: float,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        drop_path: float = 0.0,
    ):
        super().__init__()
        drops: Any = {"attn_drop": attn_drop, "proj_drop": proj_drop}
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = SpatialReductionAttention(dim, num_heads, sr_ratio=reduction, **drops)
        self.drop_path1 = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim, int(dim * mlp_ratio), drop=proj_drop)
        self.drop_path2 = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class PVTStage(nn.Module):
    """Patches, position embeddings, a class token where one joins, blocks.

    Args:
        in_chans: Channels of the map before.
        side: Its height and width; for other sizes position embeddings are interpolated, unless
            ``strict``.
        dim: Width of the tokens.
        patch_size: Of a patch, on the map before.
        drop_paths: One rate per block.
        class_token: Whether a class token joins here.
        block: Arguments of :class:`PVTBlock`.
    """

    def __init__(
        self,
        in_chans: int,
        side: tuple[int, int],
        dim: int,
        patch_size: int,
        *,
        drop_paths: Sequence[float],
        class_token: bool = False,
        pos_drop: float = 0.0,
        strict: bool = True,
        **block: Any,
    ):
        super().__init__()
        self.patch_embed = PatchEmbed(
            side,
            patch_size,
            in_chans=in_chans,
            embed_dim=dim,
            norm_layer=nn.LayerNorm,
            strict_img_size=strict,
        )
        self.num_prefix_tokens = int(class_token)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        num_positions = self.patch_embed.num_patches + self.num_prefix_tokens
        self.pos_embed = nn.Parameter(torch.empty(1, num_positions, dim))
        self.pos_drop = nn.Dropout(pos_drop)
        self.blocks = nn.ModuleList(PVTBlock(dim, drop_path=p, **block) for p in drop_paths)
        self.grad_checkpointing = False

    def forward(self, x: Tensor) -> tuple[Tensor, Sequence[int]]:
        """A map to tokens and their grid. (B, C, height, width) -> (B, T, D), (h, w)"""
        grid = self.patch_embed.dynamic_feat_size((x.shape[-2], x.shape[-1]))
        x = self.patch_embed(x)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], dim=1)
        pos_embed = resample_abs_pos_embed(
            self.pos_embed,
            list(grid),
            list(self.patch_embed.grid_size),
            num_prefix_tokens=self.num_prefix_tokens,
            interpolation="bilinear",  # the paper's
        )
        x = self.pos_drop(x + pos_embed)
        for block in self.blocks:
            recompute = self.grad_checkpointing and self.training
            x = checkpoint(block, x, grid) if recompute else block(x, grid)
        return x, grid


class PVT(nn.Module):
    """A pyramid vision transformer.

    Args:
        img_size: Side, or height and width: multiples of 32 with the paper's patches.
        patch_sizes: Of each stage, on the map before it.
        embed_dims: Widths of the stages.
        depths: Blocks of each stage.
        num_heads: Heads of each stage.
        mlp_ratios: How much wider the feed-forward parts are inside.
        sr_ratios: R of each stage: its keys lie on a grid R times coarser.
        global_pool: ``"token"`` as in the paper; ``"avg"`` has no class token.
        dynamic_img_size: Take images of any size that fits the patches.
    """

    def __init__(
        self,
        *,
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        patch_sizes: Sequence[int] = (4, 2, 2, 2),
        embed_dims: Sequence[int] = (64, 128, 320, 512),
        depths: Sequence[int] = (2, 2, 2, 2),
        num_heads: Sequence[int] = (1, 2, 5, 8),
        mlp_ratios: Sequence[float] = (8, 8, 4, 4),
        sr_ratios: Sequence[int] = (8, 4, 2, 1),
        global_pool: str = "token",
        dynamic_img_size: bool = False,
        drop_rate: float = 0.0,
        pos_drop_rate: float = 0.0,
        proj_drop_rate: float = 0.0,
        attn_drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
    ):
        super().__init__()
        parts = (patch_sizes, embed_dims, depths, num_heads, mlp_ratios, sr_ratios)
        if len({len(part) for part in parts}) > 1:
            raise UserError(
                "patch_sizes, embed_dims, depths, num_heads, mlp_ratios and sr_ratios need one "
                f"number a stage each, and have {', '.join(str(len(part)) for part in parts)}"
            )
        if any(dim % heads for dim, heads in zip(embed_dims, num_heads, strict=True)):
            raise UserError(
                f"widths {tuple(embed_dims)} must be multiples of their heads {tuple(num_heads)}"
            )
        _check_pool(global_pool, tokens=True)
        self.num_classes, self.in_chans, self.global_pool = num_classes, in_chans, global_pool
        self.num_prefix_tokens = int(global_pool == "token")
        self.num_features = self.head_hidden_size = self.embed_dim = embed_dims[-1]
        strides = list(accumulate(patch_sizes, mul))
        self.multiple = lcm(*(s * r for s, r in zip(strides, sr_ratios, strict=True)))
        height, width = (img_size, img_size) if isinstance(img_size, int) else img_size
        self._check_size(height, width)
        rates: Any = calculate_drop_path_rates(drop_path_rate, list(depths), stagewise=True)
        befores = zip((1, *strides), (in_chans, *embed_dims), strict=True)
        self.stages = nn.ModuleList(
            PVTStage(
                channels,
                (height // stride, width // stride),
                embed_dims[k],
                patch_sizes[k],
                drop_paths=rates[k],
                class_token=bool(self.num_prefix_tokens) and k == len(depths) - 1,
                pos_drop=pos_drop_rate,
                strict=not dynamic_img_size,
                num_heads=num_heads[k],
                reduction=sr_ratios[k],
                mlp_ratio=mlp_ratios[k],
                attn_drop=attn_drop_rate,
                proj_drop=proj_drop_rate,
            )
            for k, (stride, channels) in enumerate(list(befores)[:-1])
        )
        self.norm = nn.LayerNorm(self.num_features, eps=1e-6)
        self.head_drop = nn.Dropout(drop_rate)
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.feature_info = [
            {"num_chs": dim, "reduction": strides[k], "module": f"stages.{k}"}
            for k, dim in enumerate(embed_dims)
        ]
        self.init_weights()

    def init_weights(self) -> None:
        """Truncated normals of 0.02, as a ViT's."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for name, parameter in self.named_parameters():
            if name.endswith(("pos_embed", "cls_token")):
                nn.init.trunc_normal_(parameter, std=0.02)

    def no_weight_decay(self) -> set[str]:
        """Position embeddings and the class token."""
        names = (name for name, _ in self.named_parameters())
        return {name for name in names if name.endswith(("pos_embed", "cls_token"))}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """For timm's layer-wise learning rates."""
        fine = [(r"^stages\.(\d+)\.blocks\.(\d+)", None), (r"^stages\.(\d+)\.", (0,))]
        blocks: list[Any] = [(r"^stages\.(\d+)", None)] if coarse else fine
        return {"stem": r"^stages\.0\.p", "blocks": [*blocks, (r"^norm", (99999,))]}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the blocks in the backward pass instead of keeping them."""
        for stage in self.stages:
            stage.grad_checkpointing = enable  # type: ignore[assignment]

    def get_classifier(self) -> nn.Module:
        """The last linear map."""
        return self.head

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for other classes."""
        if global_pool is not None:
            _check_pool(global_pool, tokens=bool(self.num_prefix_tokens))
            self.global_pool = global_pool
        self.num_classes = num_classes
        self.head = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()
        self.head.to(self.norm.weight)

    def run_stages(self, x: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Return tokens (B, T, D) of the first stages, and the patches as a map (B, D, h, w)"""
        self._check_size(*x.shape[-2:])
        for stage in list(self.stages)[:count]:
            tokens, grid = stage(x)
            x = tokens[:, stage.num_prefix_tokens :].mT.unflatten(-1, tuple(grid))
            yield tokens, x

    def forward_features(self, x: Tensor) -> Tensor:
        """Images to normalised tokens of the last stage. (B, C, height, width) -> (B, T, D)"""
        *_, (tokens, _) = self.run_stages(x, len(self.stages))
        return self.norm(tokens)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, T, D) -> (B, num_classes)"""
        prefix = self.num_prefix_tokens
        x = self.head_drop(global_pool_nlc(x, self.global_pool, num_prefix_tokens=prefix))
        return x if pre_logits else self.head(x)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits. (B, C, height, width) -> (B, num_classes)"""
        return self.forward_head(self.forward_features(x))

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """Maps of chosen stages, as timm gives them."""
        if output_fmt != "NCHW":
            raise UserError(f"output_fmt={output_fmt!r}; a pyramid has maps: NCHW")
        take, last = feature_take_indices(len(self.stages), indices)
        ran = list(self.run_stages(x, last + 1 if stop_early else len(self.stages)))
        features = [image.contiguous() for index, (_, image) in enumerate(ran) if index in take]
        if norm and len(self.stages) - 1 in take:
            features[-1] = self.norm(features[-1].movedim(1, -1)).movedim(-1, 1).contiguous()
        return features if intermediates_only else (self.norm(ran[-1][0]), features)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last one asked for."""
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]  # type: ignore[assignment]
        if prune_norm:
            self.norm = nn.Identity()  # type: ignore[assignment]
        if prune_head:
            self.head = nn.Identity()
        return take

    def _check_size(self, height: int, width: int) -> None:
        if height % self.multiple or width % self.multiple or not height * width:
            raise UserError(
                f"an image of {height} x {width} does not fit the stages' patches and reduced "
                f"keys; its sides must be multiples of {self.multiple}"
            )


def _check_pool(pool: str, *, tokens: bool) -> None:
    possible = ("token", "avg", "") if tokens else ("avg", "")
    if pool not in possible:
        raise UserError(f"global_pool={pool!r}; possible here: {', '.join(map(repr, possible))}")
