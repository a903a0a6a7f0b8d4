"""Pre-activation residual networks, in stages: the convolutional neighbours of our transformers.

He et al. 2016 (https://arxiv.org/abs/1603.05027): normalise and activate before each convolution,
and leave the shortcut alone. ``resnet_micro`` is about as large as ``convit_micro`` and takes small
images of any size.

Shapes: B images, stage k has channels C_k on a map 2^k times smaller than the stem's.
"""

from collections.abc import Sequence
from typing import Any

from timm.layers import DropPath, calculate_drop_path_rates
from timm.layers.classifier import ClassifierHead
from timm.models import checkpoint
from timm.models._features import feature_take_indices
from torch import Tensor, nn

from vitascope.errors import UserError

__all__ = ["BasicBlock", "PreActResNet"]


class BasicBlock(nn.Module):
    """BN - ReLU - 3x3 - BN - ReLU - 3x3, beside a shortcut that is 1x1 where the shape changes."""

    def __init__(self, width: int, out: int, stride: int = 1, drop_path: float = 0.0):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(width)
        self.conv1 = nn.Conv2d(width, out, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = DropPath(drop_path) if drop_path > 0 else nn.Identity()
        reshaped = stride != 1 or width != out
        self.downsample = nn.Conv2d(width, out, 1, stride, bias=False) if reshaped else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, out, h / stride, w / stride)"""
        y = self.act(self.norm1(x))
        shortcut = x if self.downsample is None else self.downsample(y)
        y = self.conv2(self.act(self.norm2(self.conv1(y))))
        return shortcut + self.drop_path(y)


class PreActResNet(nn.Module):
    """A pre-activation ResNet of basic blocks with a 3x3 stem.

    Args:
        depths: Blocks of each stage; every stage but the first halves the map.
        widths: Channels of each stage.
        kwargs: ``img_size`` is taken and not needed, so that all models can be built alike.
    """

    def __init__(
        self,
        *,
        depths: Sequence[int] = (2, 2, 2),
        widths: Sequence[int] = (20, 40, 80),
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.0,
        img_size: int | tuple[int, int] | None = None,
    ):
        super().__init__()
        if len(depths) != len(widths) or min(*depths, *widths) < 1:
            raise UserError(f"depths {tuple(depths)} and widths {tuple(widths)} must pair up")
        self.num_classes, self.in_chans = num_classes, in_chans
        self.grad_checkpointing = False
        self.stem = nn.Conv2d(in_chans, widths[0], 3, padding=1, bias=False)
        rates: Any = iter(calculate_drop_path_rates(drop_path_rate, sum(depths)))
        self.stages = nn.ModuleList()
        width = widths[0]
        for stage, (depth, out) in enumerate(zip(depths, widths, strict=True)):
            blocks = []
            for index in range(depth):
                stride = 2 if index == 0 and stage > 0 else 1
                blocks.append(BasicBlock(width, out, stride, next(rates)))
                width = out
            self.stages.append(nn.Sequential(*blocks))
        self.norm = nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)
        self.num_features = self.head_hidden_size = width
        self.head = ClassifierHead(width, num_classes, pool_type=global_pool, drop_rate=drop_rate)
        self.feature_info = [
            {"num_chs": out, "reduction": 2**stage, "module": f"stages.{stage}"}
            for stage, out in enumerate(widths)
        ]
        self.init_weights()

    def init_weights(self) -> None:
        """He initialisation."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def no_weight_decay(self) -> set[str]:
        """Nothing beyond biases and norms, which are vectors anyway."""
        return set()

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

    def run_stage(self, index: int, x: Tensor) -> Tensor:
        """One stage."""
        stage = self.stages[index]
        recompute = self.grad_checkpointing and self.training
        return checkpoint(stage, x) if recompute else stage(x)

    def forward_features(self, x: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, C_last, h, w)"""
        if x.ndim != 4 or x.shape[1] != self.in_chans:
            raise UserError(
                f"the model takes images of {self.in_chans} channels and got {tuple(x.shape)}; "
                "create it with in_chans= for other channels"
            )
        x = self.stem(x)
        for index in range(len(self.stages)):
            x = self.run_stage(index, x)
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
        x = self.stem(x)
        found = []
        for index in range(last + 1 if stop_early else len(self.stages)):
            x = self.run_stage(index, x)
            if index in take:
                final = index == len(self.stages) - 1
                found.append(self.act(self.norm(x)) if norm and final else x)
        return found if intermediates_only else (self.act(self.norm(x)), found)

    def prune_intermediate_layers(
        self, indices: int | list[int] = 1, prune_norm: bool = False, prune_head: bool = True
    ) -> list[int]:
        """Drop the stages after the last one asked for."""
        take, last = feature_take_indices(len(self.stages), indices)
        self.stages = self.stages[: last + 1]  # type: ignore[assignment]
        if prune_norm:
            self.norm, self.act = nn.Identity(), nn.Identity()  # type: ignore[assignment]
        if prune_head:
            self.reset_classifier(0, "")
        return take
