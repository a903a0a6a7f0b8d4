"""Patch embedding that explains which image sizes it takes."""

from typing import Any

from timm.layers import PatchEmbed as TimmPatchEmbed
from torch import Tensor

from vitascope.errors import UserError


class PatchEmbed(TimmPatchEmbed):
    """timm's patch embedding; an image of another size is a user error."""

    def __init__(
        self, img_size: int | tuple[int, int] | None = 224, patch_size: int = 16, **kwargs: Any
    ):
        super().__init__(img_size, patch_size, **kwargs)
        self.in_chans = self.proj.in_channels
        if self.img_size is not None and not self.dynamic_img_pad:
            self._check_divisible(*self.img_size)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, height, width) -> (B, N, D), or (B, h, w, D) for dynamic sizes"""
        if x.ndim != 4 or x.shape[1] != self.in_chans:
            raise UserError(
                f"the model takes images of {self.in_chans} channels, (B, "
                f"{self.in_chans}, height, width), and got {tuple(x.shape)}; "
                f"create it with in_chans= for other channels"
            )
        height, width = x.shape[-2:]
        if self.strict_img_size and self.img_size is not None and (height, width) != self.img_size:
            raise UserError(
                f"the model takes images of {self.img_size[0]} x {self.img_size[1]} and got "
                f"{height} x {width}; create it with img_size=({height}, {width}), or with "
                f"dynamic_img_size=True for any size"
            )
        if not self.dynamic_img_pad:
            self._check_divisible(height, width)
        return super().forward(x)

    def _check_divisible(self, height: int, width: int) -> None:
        if height % self.patch_size[0] or width % self.patch_size[1] or not height * width:
            raise UserError(
                f"an image of {height} x {width} cannot be cut into patches of "
                f"{self.patch_size[0]} x {self.patch_size[1]}; resize or pad it to a multiple"
            )
