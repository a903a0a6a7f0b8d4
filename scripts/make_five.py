"""Does built-in locality help a pretrained network on other classes? Five and five of CIFAR-10.

    python scripts/make_five.py CIFAR10 OUT

CIFAR10 is a folder of class folders in train/ and test/. A ViT, a ConViT and a ResNet of ours are
trained on the first five classes by name; `vitascope compare --pretrained` then probes the three
runs on few images of the other five, fine-tunes them, and answers with paired intervals. The record
goes to docs/records/pretrained-five.json, which scripts/make_pretrained.py shows.
"""

import csv
import sys
from pathlib import Path

from make_pretrained import keep

from vitascope.comparison.options import CompareOptions
from vitascope.comparison.pretrained.answer import choose_pretrained
from vitascope.runs.train_model import train_once

MODELS = ("vit_micro", "convit_micro", "resnet_micro")
FIRST, FEW, TESTS = 250, 40, 100  # images of a class: to pretrain on, to learn from, to test on
EPOCHS = 6  # of the pretraining


def write_table(path: Path, images: Path, classes: list[str], train: int, test: int) -> str:
    """A table of the first files of some classes, as a data source."""
    rows = [
        (file.resolve(), name, part)
        for part, count in (("train", train), ("test", test))
        for name in classes
        for file in sorted((images / part / name).iterdir())[:count]
    ]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("path", "label", "split"), *rows])
    return f"csv:{path}"


def five_and_five(images: Path, out: Path) -> tuple[str, str]:
    """The source to pretrain on and the one to learn from; they share no class."""
    out.mkdir(parents=True, exist_ok=True)
    names = sorted(folder.name for folder in (images / "train").iterdir() if folder.is_dir())
    first, others = names[:5], names[5:10]
    return (
        write_table(out / "first.csv", images, first, FIRST, TESTS),
        write_table(out / "others.csv", images, others, FEW, TESTS),
    )


def main(images: Path, out: Path) -> None:
    """Pretrain, compare and keep the record."""
    first, others = five_and_five(images, out)
    for model in MODELS:
        how = {"recipe": "laptop", "epochs": EPOCHS, "trackers": (), "resume": True, "quiet": True}
        train_once(model=model, data=first, out=out / model, **how)
    runs = tuple(str(out / model) for model in MODELS)
    options = CompareOptions(data=others, models=runs, pretrained=True)
    answer = choose_pretrained(options, out / "answer", tell=print)
    keep(answer, "five")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
