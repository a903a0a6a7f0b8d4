"""A class for every pixel: any backbone under a segmentation head.

The context-broadcasting paper trains its backbones on ADE20K under UPerNet (Xiao et al. 2018,
https://arxiv.org/abs/1807.10221). The heads are those of segmentation-models-pytorch, which refuses
plain transformers and knows none of our models; so its decoders are used directly, on the maps of
:mod:`vitascope.models.segmentation.pyramid`.

``upernet`` takes any number of maps from three on and images of any size; ``fpn`` (Kirillov et al.
2019) takes four, each exactly half of the one before. Logits are those of the finest map,
interpolated bilinearly to the image.

Shapes: B images, K classes.
"""

from itertools import pairwise
from typing import Any, Literal

from torch import Tensor, nn
from torch.nn import functional as F

from vitascope.errors import UserError, unknown
from vitascope.models.segmentation.pyramid import FeaturePyramid, feature_pyramid

Head = Literal["upernet", "fpn"]


def decoder_of(head: str, channels: list[int], width: int) -> tuple[nn.Module, int]:
    """A decoder of segmentation-models-pytorch for maps of these channels, and its width."""
    try:
        from segmentation_models_pytorch.base import initialization
        from segmentation_models_pytorch.decoders.fpn.decoder import FPNDecoder
        from segmentation_models_pytorch.decoders.upernet.decoder import UPerNetDecoder
    except ImportError as error:
        raise UserError(
            "segmentation heads need segmentation-models-pytorch: pip install 'vitascope[dense]'"
        ) from error
    if head == "upernet":
        # It leaves out the first two entries: the image and a map of stride 2.
        decoder: Any = UPerNetDecoder([0, 0, *channels], decoder_channels=width)
        out = width
    elif head == "fpn":
        if len(channels) != 4:
            raise UserError(
                f"head='fpn' needs 4 maps and this backbone has {len(channels)}; take 'upernet'"
            )
        decoder = FPNDecoder(channels, encoder_depth=4, pyramid_channels=width)
        out = decoder.out_channels
    else:
        raise unknown("segmentation head", head, ("upernet", "fpn"))
    initialization.initialize_decoder(decoder)
    return decoder, out


class Segmenter(nn.Module):
    """Backbone, decoder, and a 1 x 1 convolution to the classes."""

    def __init__(self, pyramid: FeaturePyramid, num_classes: int, *, head: str, width: int):
        super().__init__()
        self.num_classes, self.head_name = num_classes, head
        self.pyramid = pyramid
        self.decoder, out = decoder_of(head, pyramid.channels, width)
        self.classifier = nn.Conv2d(out, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images to logits for every pixel. (B, 3, height, width) -> (B, K, height, width)"""
        if self.training and len(x) == 1:
            raise UserError("train a segmentation head on two images or more: it has batch norms")
        maps = self.pyramid(x)
        if self.head_name == "fpn":
            _check_halving(maps)
        logits = self.classifier(self.decoder([x, x, *maps]))
        return F.interpolate(logits, x.shape[2:], mode="bilinear", align_corners=False)


def _check_halving(maps: list[Tensor]) -> None:
    sizes = [tuple(each.shape[2:]) for each in maps]
    for (h, w), (below_h, below_w) in pairwise(sizes):
        if (h, w) != (2 * below_h, 2 * below_w):
            raise UserError(
                f"head='fpn' needs maps that halve exactly, got {sizes}; "
                "pad the images to a multiple of the largest stride, or take 'upernet'"
            )


def segmenter(
    backbone: str | nn.Module,
    num_classes: int = 150,
    *,
    head: Head = "upernet",
    width: int = 256,
    **kwargs: Any,
) -> Segmenter:
    """A segmentation model on any backbone.

    Args:
        backbone: A name for :func:`vitascope.create_model`, or a model (it is copied): a trained
            classifier, one with context broadcasting, a converted ResNet.
        num_classes: 150 in ADE20K.
        head: ``upernet`` or ``fpn``.
        width: Channels of the decoder, and of the neck of a plain backbone.
        kwargs: For ``create_model``, such as ``img_size=512`` or ``pretrained=True``.

    >>> import torch
    >>> model = segmenter("resnet_micro", 5, width=16).eval()
    >>> model(torch.zeros(1, 3, 24, 40)).shape
    torch.Size([1, 5, 24, 40])
    """
    pyramid = feature_pyramid(backbone, out_channels=width, **kwargs)
    return Segmenter(pyramid, num_classes, head=head, width=width)
