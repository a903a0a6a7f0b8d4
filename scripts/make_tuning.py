"""Which learning rate and augmentation suit digits, by validation images alone: digits-tuning.json.

    python scripts/make_tuning.py runs/tuning docs/records

Full-length runs of `laptop`, seed 0, on four fifths of the training images; top-1 is of the other
fifth. Test images are not looked at. 18 runs, about seven minutes of one core; a run that is there
is not made again. `make demo` takes the rates.
"""

import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import torch

from vitascope.comparison.tuning import FACTORS, Tried, best_rates
from vitascope.data import Augmentation, augment, load
from vitascope.data.held_out import held_out
from vitascope.loading.opening import build
from vitascope.record import Record
from vitascope.training import Run, recipe, train

MODELS = ("vit_micro", "convit_micro", "resnet_micro")
AUGMENTATIONS: dict[str, Augmentation] = {
    "none": augment.laptop(),  # 8 x 8 images are too small to be shifted
    "shift": Augmentation(crop="pad", pad=1),
    "deit": replace(augment.cifar(), pad=1),
}
SHARE = 0.2


def run_of(model: str, augmentation: str, factor: float, out: Path) -> Run:
    """One run, trained unless it is there."""
    images = held_out(load("digits"), SHARE)
    usual = recipe("laptop")
    plan = replace(
        usual,
        lr=factor * usual.lr,
        augmentation=AUGMENTATIONS[augmentation],
        eval_every=usual.epochs,
        checkpoint_epochs=usual.epochs,
    )
    subject = build(model, images)
    folder = out / f"{model}-{augmentation}-{factor:g}"
    how = {"quiet": True, "trackers": (), "resume": True, "model_config": subject.config}
    return train(subject.model, images, plan, folder, **how)


def make(out: Path) -> Record:
    """Augmentations at the recipe's rate, then rates with the best augmentation."""
    started = perf_counter()
    rate, found = recipe("laptop").lr, []
    for name in AUGMENTATIONS:
        for model in MODELS:
            final = run_of(model, name, 1, out).final
            found.append(
                {"model": model, "augmentation": name, "lr": rate}
                | {"top1": 100 * final["top1"], "nll": final["test_nll"]}
            )
    means = {
        name: sum(each["top1"] for each in found if each["augmentation"] == name)
        for name in AUGMENTATIONS
    }
    best = max(means, key=lambda name: means[name])
    tried = []
    for model in MODELS:
        for factor in FACTORS:
            final = run_of(model, best, factor, out).final
            tried.append(Tried(model, factor * rate, 100 * final["top1"], final["test_nll"]))
    values = {
        "augmentations": found,
        "augmentation": best,
        "tried": [vars(each) for each in tried],
        "rates": best_rates(tried),
        "epochs": recipe("laptop").epochs,
        "images": "validation",
    }
    config = {"data": "digits", "validation": SHARE, "recipe": recipe("laptop").to_dict()}
    return Record(
        kind="tuning", values=values, config=config, seed=0, seconds=perf_counter() - started
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    make(Path(sys.argv[1])).save(Path(sys.argv[2]) / "digits-tuning")
