"""One network of a build-up: trained with every seed, side by side, and measured.

A trial is a set of ordinary runs in folders of their own, named after the network's kinds, so none
is trained twice, however often the search is broken off and asked for again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from inspect import signature
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated, Any, NamedTuple

import torch
from torch import nn

from vitascope import record
from vitascope.data import Dataset, load
from vitascope.errors import UserError
from vitascope.models.registry import OURS
from vitascope.settings import Count, Seed, Side, Within, check
from vitascope.studies.grid.processes import side_by_side
from vitascope.studies.session.held_out import held_out, on_test_images
from vitascope.studies.session.model_sizes import count
from vitascope.studies.session.models import build
from vitascope.train import Recipe, check_trainable, load_run, train
from vitascope.train.run_folder.run import differences

__all__ = [
    "BuildUp",
    "Images",
    "Kinds",
    "first_kinds",
    "images_of",
    "run",
    "run_trial",
    "scored",
    "with_base",
]

Kinds = tuple[str, ...]  # a word a stage, a letter a block: "c" conv, "a" MSA
SIZED = {"resnet": ("resnet_micro", "resnet_preact_50")}  # for small and for large images
SMALL = 64  # pixels a side


@dataclass(frozen=True, kw_only=True)
class BuildUp:
    """The question in full."""

    data: str
    recipe: Recipe
    base: str = "resnet"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[Seed, ...] = (0, 1)
    # points of top-1 that a block must bring
    margin: Annotated[float, Within(0, 100, open_high=True)] = 0.0
    # share of each class's training images that decides
    validation: Annotated[float, Within(0, 1, open_low=True, open_high=True)] = 0.2
    max_candidates: Count | None = None
    image_size: Side | None = None

    def __post_init__(self) -> None:
        check(self)
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UserError(f"seeds must be one or more different ones, not {list(self.seeds)}")

    @property
    def config(self) -> dict[str, Any]:
        """In plain types."""
        return dict(record.plain({**asdict(self), "recipe": self.recipe.to_dict()}))

    def folder(self, out: Path, kinds: Kinds, seed: int) -> Path:
        """Where a network's run is: under its kinds."""
        return out / "runs" / "-".join(kinds) / f"seed-{seed}"


class Images(NamedTuple):
    """All images, and those to choose by: a part of the training images is their test set."""

    whole: Dataset
    chooser: Dataset


@lru_cache(maxsize=1)
def _images(data: str, image_size: int | None, validation: float) -> Images:
    """Loaded once in each process."""
    whole = load(data, image_size=image_size)
    return Images(whole, held_out(whole, validation))


def images_of(question: BuildUp) -> Images:
    """The images that a question is about."""
    return _images(question.data, question.image_size, question.validation)


def with_base(question: BuildUp, images: Images) -> BuildUp:
    """The question about a model: ``resnet`` alone means one of the images' size."""
    if question.base not in SIZED:
        return question
    small, large = SIZED[question.base]
    fitting = small if max(images.whole.train.size[1:]) <= SMALL else large
    return replace(question, base=fitting)


def first_kinds(question: BuildUp, images: Images) -> Kinds:
    """The kinds of the base's blocks; also the first test of whether it can be trained."""
    recipe = question.recipe
    model = build(
        question.base, images.chooser, drop_path=recipe.drop_path, **question.model_args
    ).model
    check_trainable(model, images.chooser, recipe)
    kinds: Any = getattr(model, "kinds", None)
    if not kinds:
        able = [name for name, (made, _) in OURS.items() if "kinds" in signature(made).parameters]
        raise UserError(
            f"{question.base} does not declare the blocks of its stages (kinds); these do: "
            f"{', '.join(sorted(able))}"
        )
    return tuple(kinds)


def run_trial(*, question: BuildUp, kinds: Kinds, seed: int, out: Path) -> None:
    """Train one network with one seed and measure it on the test images; a finished one is free."""
    torch.set_num_threads(1)
    images, plan = images_of(question), question.recipe
    given = {**question.model_args, "kinds": kinds}
    subject = build(question.base, images.chooser, seed=seed, drop_path=plan.drop_path, **given)
    how: dict[str, Any] = {"resume": True, "quiet": True, "trackers": ()}
    train(subject.model, images.chooser, plan, out, seed=seed, model_config=subject.config, **how)
    if not (out / "test.json").exists():
        on_test_images(out, images.whole).save(out / "test")


def run(
    question: BuildUp, networks: Sequence[Kinds], out: Path, *, processes: int, quiet: bool
) -> None:
    """Every network with every seed, side by side; nothing if all are finished."""
    jobs: list[dict[str, Any]] = [
        {
            "question": question,
            "kinds": kinds,
            "seed": seed,
            "out": question.folder(out, kinds, seed),
        }
        for kinds in networks
        for seed in question.seeds
    ]
    if not all((job["out"] / "test.json").exists() for job in jobs):
        epochs = [question.recipe.total_epochs] * len(jobs)
        side_by_side(run_trial, jobs, processes=processes, epochs=epochs, quiet=quiet)


def scored(question: BuildUp, kinds: Kinds, out: Path, images: Images) -> dict[str, Any]:
    """What a trained network costs and reaches."""
    model = build(question.base, images.chooser, **{**question.model_args, "kinds": kinds}).model
    parameters, multiply_adds = count(model, images.whole.train.size)
    folders = [question.folder(out, kinds, seed) for seed in question.seeds]
    runs = [load_run(folder) for folder in folders]
    asked = {"name": question.base, "recipe": question.recipe.to_dict()}
    for run in runs:  # a finished run is taken as it is, so it must be of this question
        found = {"name": run.config["model"].get("name"), "recipe": run.config["recipe"]}
        if found != asked:
            words = "; ".join(differences(found, asked, tuple(asked)))
            raise UserError(f"{run.folder} holds a run of another build-up: {words}")
    tests = [record.load(folder / "test") for folder in folders]
    return {
        "num_msa": "".join(kinds).count("a"),
        "heads": [_heads(stage) for stage in model.stages],
        "parameters": parameters,
        "multiply_adds": multiply_adds,
        **_over_seeds("top1", [100 * run.final["top1"] for run in runs]),
        **_over_seeds("test_top1", [100 * test.values["top1"] for test in tests]),
        "seconds": sum(run.seconds for run in runs),
        "folders": [str(folder.relative_to(out)) for folder in folders],
    }


def _heads(stage: nn.Module) -> int | None:
    """Heads of a stage's attention; None where it has none."""
    found: Any = (getattr(module, "num_heads", None) for module in stage.modules())
    return next((heads for heads in found if heads is not None), None)


def _over_seeds(name: str, values: Sequence[float]) -> dict[str, Any]:
    std = stdev(values) if len(values) > 1 else None
    return {name: fmean(values), f"{name}_std": std, f"{name}_seeds": list(values)}
