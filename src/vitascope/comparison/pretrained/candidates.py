"""Open the candidates of ``compare --pretrained``; their published ImageNet accuracies.

A reader without a probe would go by the latter. A candidate that cannot be had (no network, not in
the cache) is named and skipped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import timm

from vitascope.errors import UserError
from vitascope.loading.built_in_locality import built_in
from vitascope.loading.model import OpenedModel
from vitascope.loading.opening import open_pretrained, split_file

# Name without its tag -> top-1 on ImageNet-1k in percent, and who reports it for these weights:
# the authors (their paper or the README of their code), or timm's results-imagenet.csv.
IMAGENET: dict[str, tuple[float, str]] = {
    "resnet18": (73.2, "timm, 288 pixels"),
    "regnety_008": (76.3, "timm; Radosavovic et al. 2020"),
    "convnext_tiny": (82.1, "Liu et al. 2022"),
    "efficientnet_b0": (77.7, "timm"),
    "tf_efficientnet_lite0": (75.1, "EfficientNet-lite, tensorflow/tpu, 2020"),
    "tf_efficientnet_lite1": (76.7, "EfficientNet-lite, tensorflow/tpu, 2020"),
    "tf_efficientnet_lite2": (77.6, "EfficientNet-lite, tensorflow/tpu, 2020"),
    "swin_tiny_patch4_window7_224": (81.2, "Liu et al. 2021"),
    "maxvit_tiny_tf_224": (83.6, "Tu et al. 2022"),
    "caformer_s18": (83.6, "Yu et al. 2022"),
    "convit_tiny": (73.1, "d'Ascoli et al. 2021"),
    "deit_tiny_patch16_224": (72.2, "Touvron et al. 2021"),
    "vit_small_patch16_224": (81.4, "timm; Steiner et al. 2021"),
    "vit_small_patch14_dinov2": (81.1, "Oquab et al. 2023, linear"),
    "vit_base_patch32_clip_224": (63.2, "Radford et al. 2021, Table 17, zero-shot"),
}
KINDS = ("hard", "soft", "none")  # of locality; "mixed" counts as soft
_SIDE = {"vit_small_patch14_dinov2": 224}  # its own 518 pixels take five times as long


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """A backbone to compare, with its weights, or why there are none."""

    text: str
    opened: OpenedModel | None = None
    locality: str = ""  # in words
    problem: str = ""

    @property
    def rebuildable(self) -> bool:
        """Return whether a run's config can say how the network is made."""
        return self.opened is not None and self.opened.architecture is not None

    @property
    def kind(self) -> str:
        """hard, soft or none; unknown where the layers do not tell."""
        word = self.locality.partition(":")[0].partition(" ")[0]
        return {"mixed": "soft"}.get(word, word if word in KINDS else "unknown")


def plain_name(text: str) -> str:
    """The architecture alone.

    >>> plain_name("timm:resnet18.a1_in1k@a.pt")
    'resnet18'
    """
    return split_file(text)[0].removeprefix("timm:").partition(".")[0]


def foreign(each: Backbone) -> list[str]:
    """Say where images are prepared otherwise than the weights of this network were made for.

    Mean and standard deviation are compared with those of all of timm's weights of the network;
    a side counts as foreign if it is less than half of theirs.
    """
    name = plain_name(each.text)
    if each.opened is None or not timm.is_model(name):
        return []
    configs = [timm.get_pretrained_cfg(f"{name}.{tag}") for tag in _tags(name)]
    stated = [config for config in configs if config is not None]
    ours = each.opened.preprocessing
    differences = []
    for statistic, given in (("mean", ours.mean), ("std", ours.std)):
        values = {tuple(round(v, 2) for v in getattr(config, statistic)) for config in stated}
        if given and values and tuple(round(v, 2) for v in given) not in values:
            theirs = " or ".join(f"({', '.join(f'{v:g}' for v in value)})" for value in values)
            noun = {"mean": "mean", "std": "standard deviation"}[statistic]
            differences.append(
                f"{noun} ({', '.join(f'{v:.2g}' for v in given)}) instead of {theirs}"
            )
    sides = [config.input_size[-1] for config in stated]
    if sides and name not in _SIDE and ours.side and 2 * ours.side < min(sides):
        differences.append(f"{ours.side} pixels on a side instead of {min(sides)}")
    return differences


def _tags(name: str) -> list[str]:
    """The tags of timm's weights of a network."""
    return [each.partition(".")[2] for each in timm.list_pretrained(f"{name}.*")]


def opened(texts: Sequence[str], image_size: int | None = None) -> Iterator[Backbone]:
    """Open the candidates one after the other; one that cannot be had comes with the reason."""
    for text in texts:
        try:
            model = open_pretrained(text, image_size=image_size or _SIDE.get(plain_name(text)))
        except UserError as error:
            yield Backbone(text=text, problem=str(error))
            continue
        model.model.eval()
        model = replace(model, name=text, head="its head is not used")
        yield Backbone(text=text, opened=model, locality=built_in(model.model)[1])


def at_least_one(tried: Iterator[Backbone]) -> Iterator[Backbone]:
    """Check that at least one candidate can be opened, and return all of them.

    Raises:
        UserError: If there is none: at once, before any image is looked at.
    """
    without = list[Backbone]()
    for each in tried:
        if each.opened is not None:
            return chain(without, [each], tried)
        without.append(each)
    if len(without) == 1:
        raise UserError(without[0].problem)
    names = ", ".join(each.text for each in without)
    raise UserError(f"none of {names} is available; the first: {without[0].problem}")
