"""Grad-CAM (Selvaraju et al. 2017, https://arxiv.org/abs/1610.02391) on any model's feature maps.

    M = max(0, sum_c alpha_c A_c),        alpha_c = 1/(hw) sum_yx dy/dA_cyx

for the score y of a class and feature maps A. The maps are the last ones on the image's grid that
the score depends on and that have at least ``FEWEST`` places: the last stage of a ResNet, the block
before the last of a transformer whose head reads the class token (behind the last one its patches
are not used any more). Prefix tokens are dropped.

captum and grad-cam compute the same from a layer (and a reshaping function) that the user states;
the tests compare with captum.

Shapes: B images, C channels, h x w places.
"""

from collections.abc import Mapping, Sequence

from torch import Tensor

from vitascope.capture import ImageOutput
from vitascope.errors import UserError

FEWEST = 16  # places a map must have to say where


def grad_cam(features: Tensor, gradient: Tensor) -> Tensor:
    """The map of each image. (B, C, h, w) twice -> (B, h, w)"""
    alpha = gradient.mean((2, 3), keepdim=True)
    return (alpha * features).sum(1).clamp(min=0)


def last_used(
    outputs: Sequence[ImageOutput], gradients: Mapping[str, Tensor | None]
) -> ImageOutput:
    """The last output whose patches the score depends on; the finest where all are coarse.

    Raises:
        UserError: If there is none.
    """
    used = []
    for output in outputs:
        gradient = gradients.get(output.name)
        if gradient is not None and bool(output.layout.as_image(gradient).any()):
            used.append(output)
    if not used:
        raise UserError("Grad-CAM needs feature maps on a grid, and the answer rests on none")
    fine = [output for output in used if _num_cells(output) >= FEWEST]
    return fine[-1] if fine else max(used, key=_num_cells)


def _num_cells(output: ImageOutput) -> int:
    return output.layout.grid[0] * output.layout.grid[1]
