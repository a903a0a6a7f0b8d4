"""Compact convolutional transformer (CCT): convolutional tokens, and pooling by learned weights.

Hassani et al. 2021 (https://arxiv.org/abs/2104.05704), the small-data baseline of the field. Tokens
come from convolutions of 3 x 3, each with a ReLU and max pooling that halves the grid, and the
classifier reads a weighted mean of the tokens:

    z = softmax(X w)^T X,    X the tokens after the last norm, w learned

"CCT-2/3x2" has 2 blocks of width 128 and 2 heads, and 2 convolutions of 3 x 3: 0.284 M parameters,
89.17 % on CIFAR-10 after 200 epochs in the authors' table. As in their code, the second norm of a
block stands in the stream, before the MLP's shortcut leaves it, positions are learned, and dropout,
attention dropout and stochastic depth are 0.1 (``drop_rate`` etc.; a recipe sets ``drop_path``).

Shapes: B images, N patches on a grid (h, w), D width.
"""

from itertools import pairwise
from typing import Any

import torch
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.models.vit.patches import PatchEmbed

HIDDEN = 64  # channels between the convolutions


class ConvolutionalTokens(PatchEmbed):
    """Image to tokens by convolutions with max pooling; ``patch_size`` 2 to the number of them."""

    locality = "hard at the entrance: convolutional tokens"

    def __init__(self, *args: Any, in_chans: int = 3, embed_dim: int = 128, **kwargs: Any):
        super().__init__(*args, in_chans=in_chans, embed_dim=embed_dim, **kwargs)
        patch = max(self.patch_size)
        count = patch.bit_length() - 1
        if patch < 2 or patch != 2**count:
            raise UserError(
                f"each convolution of the tokens halves the image: patches of {patch} pixels are "
                "no power of two; give a patch_size of 2, 4, 8 or 16"
            )
        widths = [in_chans, *[HIDDEN] * (count - 1), embed_dim]
        layers: list[nn.Module] = []
        for before, after in pairwise(widths):
            convolution = nn.Conv2d(before, after, 3, padding=1, bias=False)
            nn.init.kaiming_normal_(convolution.weight)
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
        self.proj = nn.Sequential(*layers).to(self.proj.weight)  # type: ignore[assignment]


class CCTBlock(Block):
    """timm's transformer block with its second norm in the stream, as the authors have it."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """(B, N, D) -> (B, N, D)"""
        x = self.norm2(x + self.drop_path1(self.ls1(self.attn(self.norm1(x)))))
        return x + self.drop_path2(self.ls2(self.mlp(x)))


class CCT(VisionTransformer):
    """timm's ViT with convolutional tokens and pooling by learned weights; arguments as there."""

    def __init__(self, **kwargs: Any):
        usual = {
            "mlp_ratio": 1.0,
            "qkv_bias": False,
            "class_token": False,
            "global_pool": "avg",
            "fc_norm": False,
            "pos_drop_rate": 0.1,
            "proj_drop_rate": 0.1,
            "attn_drop_rate": 0.1,
            "embed_layer": ConvolutionalTokens,
            "block_fn": CCTBlock,
        }
        super().__init__(**{**usual, **kwargs})
        self.attention_pool = nn.Linear(self.embed_dim, 1)
        nn.init.trunc_normal_(self.attention_pool.weight, std=0.02)
        nn.init.zeros_(self.attention_pool.bias)
        if self.pos_embed is not None:
            nn.init.trunc_normal_(self.pos_embed, std=0.2)

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Weighted mean of the tokens; all tokens for an empty ``pool_type``. (B, N, D)"""
        if (self.global_pool if pool_type is None else pool_type) == "":
            return x
        weights = self.attention_pool(x).softmax(dim=1)  # (B, N, 1)
        return torch.matmul(weights.mT, x).squeeze(1)
