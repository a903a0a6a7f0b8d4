"""Residual networks in stages of declared blocks, of convolutions or attention.

:class:`PreActResNet` (He et al. 2016, https://arxiv.org/abs/1603.05027) normalises and activates
before each convolution and leaves the shortcut alone; :class:`PostActResNet` is the ResNet of He et
al. 2015 (https://arxiv.org/abs/1512.03385), and with groups ResNeXt. ``kinds`` says which blocks
are attention instead, see :mod:`vitascope.models.resnet.stages`. ``resnet_micro`` is about as large
as ``convit_micro`` and takes small images of any size. The maps have their channels last in memory:
1.4 times as fast in training and inference on a CPU; convolutions keep the order of their input.

Shapes: B images, stage k has channels C_k on a map 2^k times smaller than the stem's.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import torch
from timm.layers.classifier import ClassifierHead
from timm.models import checkpoint
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitascope.errors import UserError, unknown
from vitascope.models.resnet.stages import BLOCKS, check_sizes, residual_stages, stage_kinds

_STEMS = {"cifar": (3, 1, 4), "imagenet": (7, 2, 7)}  # kernel, stride, attention window


class PreActResNet(nn.Module):
    """A pre-activation ResNet; :class:`PostActResNet` is the same in the other order.

    Args:
        depths: Blocks of each stage; every stage but the first halves the map.
        widths: Channels that each stage puts out.
        kinds: One word per stage, one letter per block, ``c`` or ``a``; all ``c`` by default.
        block: Its convolution blocks: ``basic``, or ``bottleneck`` with a quarter of the width.
        stem: ``cifar`` (3x3), or ``imagenet`` (7x7 of stride 2 and max pooling: maps 4 times
            smaller).
        stem_stride: Stride of the ``cifar`` stem, for larger images; its kernel is then
            2 stride - 1, so that neighbouring windows overlap (Wang et al. 2022, PVT v2).
        heads: Attention heads of each stage; 3, 6, 12, ... as in the paper.
        head_dim: Channels of a head; 64 as in the released definition.
        window: Side of the attention windows; 7 behind the ``imagenet`` stem and 4 otherwise.
        bias_per_head: Position biases of each head, or one table per block as released.
        blur: Side of a box blur at the end of each stage (Park and Kim, Fig. 3a: 2); none at 1.
        blur_kind: ``box``, or ``released``: behind a tanh and a ReLU, as in the authors' code.
        blur_stages: Numbers of the stages that end with a blur, from 1; all when left out. The
            authors' have 1, 2 and 3.
        img_size: Ignored; accepted so that all models can be built alike.
        blocks: What the blocks of one order alone take.
    """

    order = "pre"  # of activation and convolution

    def __init__(
        self,
        *,
        depths: Sequence[int] = (2, 2, 2),
        widths: Sequence[int] = (20, 40, 80),
        kinds: Sequence[str] | None = None,
        block: str = "basic",
        stem: str = "cifar",
        stem_stride: int = 1,
        heads: Sequence[int] | None = None,
        head_dim: int = 64,
        window: int | None = None,
        bias_per_head: bool = False,
        blur: int = 1,
        blur_kind: str = "box",
        blur_stages: Sequence[int] | None = None,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        img_size: int | tuple[int, int] | None = None,
        **blocks: Any,
    ):
        super().__init__()
        heads = check_sizes(depths, widths, heads, block)
        if stem not in _STEMS:
            raise unknown("stem", stem, _STEMS)
        self.kinds = stage_kinds(kinds, depths)
        self.num_classes, self.in_chans = num_classes, in_chans
        self.grad_checkpointing = False
        kernel, stride, near = _STEMS[stem]
        pooling = stride  # the stem that halves the map pools it, too
        if stem_stride != 1:
            if stem != "cifar" or stem_stride < 1:
                raise UserError(
                    f"stem_stride={stem_stride} with the {stem} stem; give 1 or more, and cifar"
                )
            kernel, stride = max(kernel, 2 * stem_stride - 1), stem_stride
        first, width = widths[0] // BLOCKS[block].expansion, widths[-1]
        stem_layers: list[nn.Module] = [
            nn.Conv2d(in_chans, first, kernel, stride, padding=kernel // 2, bias=False)
        ]
        if self.order == "post":
            stem_layers += [nn.BatchNorm2d(first), nn.ReLU(inplace=True)]
        self.stem = stem_layers[0] if self.order == "pre" else nn.Sequential(*stem_layers)
        # channels last are faster; but with AVX2 oneDNN writes past the gradient of a strided 1 x 1
        # convolution that has fewer than eight channels in that order
        few = min(first, *widths) < 8
        self.memory_format = torch.contiguous_format if few else torch.channels_last
        self.pool = nn.MaxPool2d(3, 2, padding=1) if pooling == 2 else nn.Identity()
        self.stages = residual_stages(
            self.kinds,
            widths,
            heads,
            block=block,
            drop_path_rate=drop_path_rate,
            head_dim=head_dim,
            window=near if window is None else window,
            bias_per_head=bias_per_head,
            blur=blur,
            blur_kind=blur_kind,
            blur_stages=blur_stages,
            order=self.order,
            **blocks,
        )
        last = self.order == "pre"  # blocks of the other order end normalised and activated
        self.norm: nn.Module = nn.BatchNorm2d(width) if last else nn.Identity()
        self.act: nn.Module = nn.ReLU(inplace=True) if last else nn.Identity()
        self.num_features = self.head_hidden_size = width
        self.head = ClassifierHead(width, num_classes, pool_type=global_pool, drop_rate=drop_rate)
        self.feature_info = [
            {"num_chs": out, "reduction": stride * pooling * 2**stage, "module": f"stages.{stage}"}
            for stage, out in enumerate(widths)
        ]
        self.init_weights()

    def init_weights(self) -> None:
        """He initialisation."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def no_weight_decay(self) -> set[str]:
        """The position biases; other biases and norms are vectors anyway."""
        return {name for name, _ in self.named_parameters() if name.endswith("position_bias")}

    def group_matcher(self, coarse: bool = False) -> dict[str, Any]:
        """For timm's layer-wise learning rates."""
        blocks = r"^stages\.(\d+)" if coarse else r"^stages\.(\d+)\.(\d+)"
        return {"stem": r"^stem", "blocks": [(blocks, None), (r"^norm", (99999,))]}

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Recompute the stages in the backward pass instead of keeping them."""
        self.grad_checkpointing = enable

    def get_classifier(self) -> nn.Module:
        """The last linear map."""
        return self.head.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """A new head for other classes."""
        self.num_classes = num_classes
        self.head.reset(num_classes, global_pool)

    def embed(self, x: Tensor) -> Tensor:
        """The first map. (B, C, height, width) -> (B, C_0, h, w)"""
        if x.ndim != 4 or x.shape[1] != self.in_chans:
            raise UserError(
                f"the model takes images of {self.in_chans} channels and got {tuple(x.shape)}; "
                "create it with in_chans= for other channels"
            )
        if any("a" in word for word in self.kinds):
            index(x.shape[2]), index(x.shape[3])  # compilers stall over windows of symbolic sizes
        return self.pool(self.stem(x).contiguous(memory_format=self.memory_format))

    def run_stage(self, stage: int, x: Tensor) -> Tensor:
        """One stage."""
        blocks = self.stages[stage]
        recompute = self.grad_checkpointing and self.training
        return checkpoint(blocks, x) if recompute else blocks(x)

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, C_last, h, w)"""
        x = self.embed(x)
        for stage in range(len(self.stages)):
            x = self.run_stage(stage, x)
        return self.act(self.norm(x))

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """(B, C_last, h, w) -> (B, num_classes)"""
        return self.head(x, pre_logits=pre_logits)

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
        """Outputs of chosen stages, as timm gives them."""
        if output_fmt != "NCHW":
            raise UserError(f"output_fmt={output_fmt!r}; a ResNet has maps: NCHW")
        take, last = feature_take_indices(len(self.stages), indices)
        x = self.embed(x)
        features = []
        for stage in range(last + 1 if stop_early else len(self.stages)):
            x = self.run_stage(stage, x)
            if stage in take:
                final = stage == len(self.stages) - 1
                features.append(self.act(self.norm(x)) if norm and final else x)
        return features if intermediates_only else (self.act(self.norm(x)), features)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last one asked for."""
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]  # type: ignore[assignment]
        if prune_norm:
            self.norm, self.act = nn.Identity(), nn.Identity()
        if prune_head:
            self.reset_classifier(0, "")
        return take


class PostActResNet(PreActResNet):
    """A ResNet in its first form, which activates after each convolution and after each sum.

    Args:
        groups: Of the 3x3 convolution of a bottleneck; 32 in ResNeXt.
        group_width: Channels of a group in a stage that puts out 256; 4 in ResNeXt.
        kwargs: As for :class:`PreActResNet`.
    """

    order = "post"

    def __init__(self, *, groups: int = 1, group_width: int = 64, **kwargs: Any):
        if (groups, group_width) != (1, 64):
            self._check_groups(groups, group_width, **kwargs)
        super().__init__(groups=groups, group_width=group_width, **kwargs)

    @staticmethod
    def _check_groups(
        groups: int, group_width: int, *, block: str = "basic", widths: Sequence[int] = (), **_: Any
    ) -> None:
        if block != "bottleneck":
            raise UserError(f"groups={groups} needs block=bottleneck, whose 3x3 it divides")
        if any(out // 4 * group_width < 64 for out in widths) or groups < 1:
            raise UserError(
                f"groups={groups} of group_width={group_width} leave no channel at widths "
                f"{tuple(widths)}; widths x group_width must be at least 256"
            )
