"""ConViT with a distillation token, which learns from a teacher.

d'Ascoli et al. 2021, appendix B, after DeiT: a distillation token joins the patches beside the
class token, after the last GPSA block and without a position embedding, and has a head of its own.
"""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.models.convit.convit import ConViT

__all__ = ["ConViTDistilled"]


class ConViTDistilled(ConViT):
    """ConViT with a distillation token and a second head (appendix B).

    In training, after ``set_distilled_training(True)``, it returns both heads' logits; otherwise
    their mean.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
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
        """Whether training gives a pair of logits."""
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
