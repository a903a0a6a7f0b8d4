"""ConViT: a vision transformer whose first blocks start as convolutions.

d'Ascoli et al. 2021, https://arxiv.org/abs/2103.10697, section 3 and Fig. 4. A ViT of 12 blocks:
the first 10 use GPSA, the last 2 plain self-attention. The class token is not on the grid, so
it joins the patches after the last GPSA block, without a position embedding. When every block is
GPSA no block is left in which a class token could read the patches: the model then has none and
averages them.

Everything that a ViT has (patches, heads, pooling, classifier) is timm's
:class:`~timm.models.vision_transformer.VisionTransformer`; here are only the differences.
Parameter names are those of timm's and the released ConViT, so their checkpoints load.

Shapes: B images, N patches on a grid (h, w), T = tokens + N, D width.

The distilled ConViT learns from a teacher (appendix B, after DeiT): a distillation token joins the
patches next to the class token, after the last GPSA block and without a position embedding, and has
a head of its own.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, cast

import torch
from timm.layers import DropPath, Mlp, resample_abs_pos_embed
from timm.models import checkpoint
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.layers.context_broadcasting.broadcast import ContextBroadcast
from vitascope.layers.freezing import freeze_gates, freeze_gpsa, gpsa_layers
from vitascope.layers.gpsa import GPSA, TokenGPSA
from vitascope.layers.pruned import PrunedGPSA
from vitascope.layers.psa import PSA
from vitascope.models.vit.grid_vit import GridViT


@dataclass(frozen=True)
class GatePruning:
    """Branches that :meth:`ConViT.prune_gates` left out."""

    tolerance: float
    bound: float  # the most a row of attention changed, summed over the row
    num_heads: int  # in all GPSA layers
    num_without_position: int
    num_without_content: int


class GPSABlock(nn.Module):
    """A transformer block whose attention needs to know the grid."""

    def __init__(
        self, attn: PSA, *, mlp_ratio: float, proj_drop: float, drop_path: float, **kw: Any
    ):
        super().__init__()
        factory: dict[str, Any] = {"device": kw.get("device"), "dtype": kw.get("dtype")}
        norm, hidden = kw["norm_layer"], int(attn.dim * mlp_ratio)
        self.norm1 = norm(attn.dim, **factory)
        self.attn = attn
        self.drop_path1 = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        self.norm2 = norm(attn.dim, **factory)
        self.mlp = Mlp(attn.dim, hidden, act_layer=kw["act_layer"], drop=proj_drop, **factory)
        self.drop_path2 = DropPath(drop_path) if drop_path > 0 else nn.Identity()

    def forward(self, x: Tensor, grid: Sequence[int]) -> Tensor:
        """(B, N, D) -> (B, N, D)"""
        x = x + self.drop_path1(self.attn(self.norm1(x), grid))
        return x + self.drop_path2(self.mlp(self.norm2(x)))


class ConViT(GridViT):
    """A vision transformer with a soft convolutional bias.

    Args:
        num_gpsa_blocks: How many of the first blocks are GPSA, 0 to ``depth``.
        locality_strength: alpha; larger is closer to a convolution at the start (Fig. 8).
        attention: ``"gpsa"``, or ``"psa"`` for the version without gates (Fig. 9).
        conv_init: Start the GPSA layers as convolutions (Table 3, c and d: False).
        content_std: Of their queries' and keys' first weights; 0 as in equation 5 stays 0.
        gate_init: The gates' lambda at the start (Table 3, b and d: 0, with ``train_gates=False``).
        train_gates: Whether the gates learn.
        train_gpsa: Whether the GPSA layers learn (Table 3, f and g: False).
        use_pos_embed: Add absolute position embeddings to the patches.
        token_first: The class token is an extra patch from the first block on (footnote 1), instead
            of joining after the GPSA blocks.
        global_pool: ``"token"``, ``"avg"`` or ``""``; by default the class token if there is one.
        kwargs: As timm's ``VisionTransformer``: ``img_size``, ``dynamic_img_size``, ...
    """

    def __init__(
        self,
        *,
        embed_dim: int = 192,
        depth: int = 12,
        num_heads: int = 4,
        num_gpsa_blocks: int = 10,
        locality_strength: float = 1.0,
        attention: Literal["gpsa", "psa"] = "gpsa",
        conv_init: bool = True,
        content_std: float = 0.02,
        gate_init: float = 1.0,
        train_gates: bool = True,
        train_gpsa: bool = True,
        use_pos_embed: bool = True,
        token_first: bool = False,
        global_pool: str | None = None,
        qkv_bias: bool = False,
        **kwargs: Any,
    ):
        if not 0 <= num_gpsa_blocks <= depth:
            raise UserError(f"num_gpsa_blocks={num_gpsa_blocks}, but the model has {depth} blocks")
        kinds: dict[str, type[PSA]] = {"gpsa": TokenGPSA if token_first else GPSA, "psa": PSA}
        if attention not in kinds:
            raise UserError(f"attention={attention!r}; there are: {', '.join(kinds)}")
        if token_first and attention != "gpsa":
            raise UserError("token_first is for GPSA layers; leave attention out")
        readable = token_first or num_gpsa_blocks < depth
        global_pool, class_token = _pooling(global_pool, readable, kwargs)
        if token_first and not class_token:
            raise UserError("token_first is about the class token; leave class_token out")

        def block(depth: int, **kw: Any) -> nn.Module:
            if depth >= num_gpsa_blocks:
                return Block(depth=depth, **kw)
            names = ("dim", "num_heads", "qkv_bias", "attn_drop", "proj_drop", "device", "dtype")
            attn_args: dict[str, Any] = {name: kw.get(name) for name in names}
            attn_args |= {"locality_strength": locality_strength, "conv_init": conv_init}
            attn_args["content_std"] = content_std
            if attention == "gpsa":
                attn_args["gate_init"] = gate_init
            return GPSABlock(kinds[attention](**attn_args), **kw)

        super().__init__(
            embed_dim=embed_dim,
            depth=depth,
            num_heads=num_heads,
            qkv_bias=qkv_bias,
            class_token=class_token,
            no_embed_class=True,
            pos_embed="learn" if use_pos_embed else "none",
            global_pool=global_pool,  # type: ignore[arg-type]
            fc_norm=False,
            block_fn=block,  # type: ignore[arg-type]
            weight_init="skip",
            **kwargs,
        )
        self.num_gpsa_blocks = num_gpsa_blocks
        self.token_first = token_first
        self.pruning: GatePruning | None = None
        self.weight_init_mode = ""
        self.init_weights(needs_reset=False)
        if not train_gates:
            freeze_gates(self)
        if not train_gpsa:
            freeze_gpsa(self)

    def init_weights(self, mode: str = "", needs_reset: bool = True) -> None:
        """timm's, then the convolutional start of the GPSA layers over it."""
        super().init_weights(mode, needs_reset)
        for token in self.prefix_tokens():
            nn.init.trunc_normal_(token, std=0.02)
        for layer in self.modules():
            if isinstance(layer, PSA):
                layer.reset_parameters()

    def prefix_tokens(self) -> list[nn.Parameter]:
        """The tokens that join the patches. [(1, 1, D)]"""
        return [self.cls_token] if self.cls_token is not None else []

    def embed(self, x: Tensor) -> tuple[Tensor, Sequence[int]]:
        """Patches with position embeddings, and their grid. (B, N, D), (h, w)"""
        x = self.patch_embed(x)
        grid = x.shape[1:3] if self.dynamic_img_size else self.patch_embed.grid_size
        x = x.flatten(1, 2) if self.dynamic_img_size else x
        x = x.contiguous()  # a convolution's output is channel-major: every later norm would copy
        if self.pos_embed is not None:
            table = self.pos_embed
            if self.dynamic_img_size:
                old = self.patch_embed.grid_size
                table = resample_abs_pos_embed(table, list(grid), old, num_prefix_tokens=0)
            x = x + table
        return self.norm_pre(self.patch_drop(self.pos_drop(x))), grid

    def run_block(self, index: int, x: Tensor, grid: Sequence[int]) -> Tensor:
        """One block; the prefix tokens join before the first that is not GPSA."""
        joins = 0 if self.token_first else self.num_gpsa_blocks
        if index == joins and self.num_prefix_tokens:
            tokens = [token.expand(x.shape[0], -1, -1) for token in self.prefix_tokens()]
            x = torch.cat([*tokens, x], dim=1)
        arguments = (grid,) if index < self.num_gpsa_blocks else ()
        if self.grad_checkpointing and self.training:
            return checkpoint(self.blocks[index], x, *arguments)
        return self.blocks[index](x, *arguments)

    def prefix_after(self, index: int) -> int:
        """None inside the GPSA blocks, unless the token comes first: the tokens join after them."""
        joined = self.token_first or index >= self.num_gpsa_blocks
        return self.num_prefix_tokens if joined else 0

    def prune_gates(self, tolerance: float = 0.01) -> "ConViT":
        """A copy for inference without the branches whose gates are near 0 or 1.

        Heads with a gate up to ``tolerance`` lose their positional branch, heads with one from
        ``1 - tolerance`` lose queries, keys and the content softmax. ``pruning`` of the copy says
        what went, and bounds the change of every attention row.
        """
        gpsa_layers(self)  # a model without gates is an error
        if self.token_first:
            raise UserError("gates cannot be pruned with a class token among the patches")
        pruned = deepcopy(self).eval()
        layers = []
        for block in list(pruned.blocks)[: self.num_gpsa_blocks]:
            if any(isinstance(layer, ContextBroadcast) for layer in block.attn.modules()):
                raise UserError("gates cannot be pruned with context broadcasting in the attention")
            lean = PrunedGPSA(cast(GPSA, block.attn), tolerance)
            layers.append(lean)
            if lean.num_position or lean.num_content:
                block.attn = lean
        pruned.pruning = GatePruning(
            tolerance=tolerance,
            bound=max(layer.bound for layer in layers),
            num_heads=sum(layer.num_heads for layer in layers),
            num_without_position=sum(layer.num_content for layer in layers),
            num_without_content=sum(layer.num_position for layer in layers),
        )
        return pruned


def _pooling(pool: str | None, readable: bool, kwargs: dict[str, Any]) -> tuple[str, bool]:
    """The pooling and whether there is a class token, given whether a block can read one."""
    class_token = kwargs.pop("class_token", readable)
    if class_token and not readable:
        raise UserError("with GPSA in every block nothing can read a class token; leave it out")
    pool = pool if pool is not None else ("token" if class_token else "avg")
    if pool not in ("", "avg", "token") or (pool == "token" and not class_token):
        possible = "'token', 'avg' or ''" if class_token else "'avg' or '' without a class token"
        raise UserError(f"global_pool={pool!r}; possible here: {possible}")
    return pool, class_token


class ConViTDistilled(ConViT):
    """ConViT with a distillation token and a second head (appendix B).

    In training, after ``set_distilled_training(True)``, it returns both heads' logits; otherwise
    their mean.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.token_first:
            raise UserError("a distilled ConViT has two tokens; leave token_first out")
        if self.global_pool != "token":
            raise UserError("a distilled ConViT reads its two tokens: global_pool must be 'token'")
        self.dist_token = nn.Parameter(torch.empty_like(self.prefix_tokens()[0]))
        self.num_prefix_tokens = 2
        self.head_dist = deepcopy(self.head)
        self.distilled_training = False
        nn.init.trunc_normal_(self.dist_token, std=0.02)
        if isinstance(self.head_dist, nn.Linear):
            nn.init.trunc_normal_(self.head_dist.weight, std=0.02)

    def prefix_tokens(self) -> list[nn.Parameter]:
        """Class token, then distillation token."""
        return [
            *super().prefix_tokens(),
            *([self.dist_token] if hasattr(self, "dist_token") else []),
        ]

    def set_distilled_training(self, enable: bool = True) -> None:
        """Return whether training gives a pair of logits."""
        self.distilled_training = enable

    def get_classifier(self) -> Any:
        """Both heads."""
        return self.head, self.head_dist

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """New heads for other classes."""
        super().reset_classifier(num_classes, global_pool)
        self.head_dist = deepcopy(self.head)
        if isinstance(self.head_dist, nn.Linear):
            self.head_dist.reset_parameters()

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Any:
        """(B, T, D) -> (B, num_classes), or a pair of them"""
        cls, dist = self.head_drop(x[:, 0]), self.head_drop(x[:, 1])
        if pre_logits:
            return (cls + dist) / 2
        logits = self.head(cls), self.head_dist(dist)
        return logits if self.distilled_training and self.training else sum(logits) / 2
