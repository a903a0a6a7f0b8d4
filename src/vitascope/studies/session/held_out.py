"""Images to choose by: held out of the training set, so that the test set decides nothing.

A choice made on the test images makes its own accuracy too good. Here a share of *each class* of
the training images takes the test set's place while a study chooses; the real test images are
measured afterwards, beside it. Pixel statistics stay those of all training images.
"""

from dataclasses import replace
from pathlib import Path

from vitascope.data import Dataset, EvalBatches, Subset, subset
from vitascope.data.subsets import split
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.studies.session.models import reopen
from vitascope.train import evaluate, load_run

__all__ = ["held_out", "on_test_images"]


def held_out(dataset: Dataset, share: float, seed: int = 0) -> Dataset:
    """The data set with ``share`` of its training images, of each class, in place of the test set.

    >>> from vitascope import data
    >>> digits = data.load("digits")
    >>> chooser = held_out(digits, 0.25)
    >>> len(chooser.train), len(chooser.test), len(digits.train)
    (1079, 359, 1438)
    """
    if not 0 < share < 1:
        raise UserError(f"a share of {share} cannot be held out; give one in (0, 1)")
    if not len(dataset.train):
        raise UserError(f"{dataset.name} has no training images; give a source that has some")
    kept, out = split(dataset.train.labels, share, seed)
    if not len(out):
        raise UserError(f"{dataset.name} has one image a class: none can be held out")
    note = f"held {100 * share:g} % of the training images out to choose by, seed {seed}"
    return replace(
        dataset,
        train=dataset.train.take(kept),
        test=dataset.train.take(out),
        label_sets=None,
        notes=(*dataset.notes, note),
    )


def on_test_images(folder: Path, dataset: Dataset) -> Record:
    """A finished run, measured on the test images of the whole data set."""
    plan = load_run(folder).recipe
    images = subset(dataset.test, Subset(first_classes=plan.subset.first_classes))
    batches = EvalBatches(images, batch_size=plan.eval_batch, mean=dataset.mean, std=dataset.std)
    found = evaluate(reopen(folder).model, batches, label_sets=dataset.label_sets)
    return found.to_record(run=str(folder), data=dataset.name, split="test")
