"""What a comparison asks: which models, on which images, trained and chosen how."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from vitascope.atomic import file_name
from vitascope.comparison.options import CompareOptions, Metric
from vitascope.comparison.patch_sizes import at_patch_sizes
from vitascope.data.sources.load import described
from vitascope.errors import UserError
from vitascope.runs.executor import Wanted
from vitascope.runs.spec import Reading, Training, changed_recipe
from vitascope.runs.train_model import recipe_from
from vitascope.settings import changed, check, command_line
from vitascope.training import Recipe

LOOKS = Reading(name="looks")  # gates and nonlocality over training
TEST = Reading(name="test")  # the test images, of a run that was measured on others

# What must not change in a folder; more models, fractions or seeds use the same runs.
SAME = ("data", "image_size", "recipe", "subset_per_seed", "validation", "folds")


def rates_from(settings: Sequence[str], models: Sequence[str]) -> dict[str, float]:
    """Learning rates as they are typed.

    >>> rates_from(["vit_micro=1e-3"], ["vit_micro", "resnet_micro"])
    {'vit_micro': 0.001}
    """
    rates = {}
    for word in settings:
        name, _, value = word.rpartition("=")
        if name not in models:
            raise UserError(f"--rates {word!r} names none of the models {', '.join(models)}")
        try:
            rates[name] = float(value)
        except ValueError:
            rates[name] = 0.0
        if not 0 < rates[name] < float("inf"):
            raise UserError(f"--rates takes NAME=VALUE with a positive number, not {word!r}")
    return rates


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Models to choose from, images and seeds to choose by, and how it is done."""

    data: str  # with groups and class names
    models: tuple[str, ...]  # with patch sizes
    seeds: tuple[int, ...]
    recipe: Recipe  # with what is changed in it
    image_size: int | None
    margin: float
    validation: float
    folds: int | None
    metric: Metric

    def __post_init__(self) -> None:
        for name in self.several():
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise UserError(f"{name} must be one or more different ones, not {list(values)}")

    def several(self) -> tuple[str, ...]:
        """Fields that take one or more different values."""
        return ("models", "seeds")

    @property
    def config(self) -> dict[str, Any]:
        """The fields as plain types, for a record; those of rounds where there are any."""
        values = {**asdict(self), "recipe": self.recipe.to_dict()}
        rounds = {"until", "more_seeds", "redraw"}
        return {name: value for name, value in values.items() if name not in rounds or value}


@dataclass(frozen=True, kw_only=True)
class Comparison(Choice):
    """A comparison of models trained from scratch; :func:`comparison_of` makes it from options."""

    fractions: tuple[float, ...]
    reference: str | None = None  # gains are relative to it; by default the first model
    overrides: tuple[str, ...]  # what was changed in the recipe, to say the command again
    subset_per_seed: bool = True  # a fraction is drawn anew with each seed
    until: Literal["decided"] | None
    rates: Mapping[str, float]  # learning rates of models, given or tuned
    model_args: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # widths, matched
    start: Literal["", "pretrained", "random"] = ""  # of pretrained networks, see `Training`
    redraw: bool = False  # folds are dealt anew with each seed: repeated cross-validation
    # all seeds of models that were given more than ``seeds``, on the most images
    more_seeds: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def several(self) -> tuple[str, ...]:
        """Fields that take one or more different values."""
        return ("models", "fractions", "seeds")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.several():
            values = getattr(self, name)
            short = [f"{v:g}" if isinstance(v, float) else file_name(str(v)) for v in values]
            if len(set(short)) != len(values):
                raise UserError(
                    f"{name} {', '.join(map(str, values))} are too much alike: their results would "
                    f"share the names {', '.join(short)}"
                )
        if not all(0 < fraction <= 1 for fraction in self.fractions):
            raise UserError(f"fractions lie in (0, 1], not {list(self.fractions)}")
        if self.until and len(self.seeds) < 2:
            raise UserError(
                "--until decided needs two or more seeds for its first look; give --seeds 0 1 2"
            )
        if self.reference is not None and self.reference not in self.models:
            raise UserError(f"the reference {self.reference} is not among the models")

    @property
    def readings(self) -> tuple[Reading, ...]:
        """Measurements of a run; with validation images also those of the test images."""
        inside = () if self.start else (LOOKS,)
        return (*inside, TEST) if self.validation or self.folds else inside

    def seeds_of(self, model: str, fraction: float) -> tuple[int, ...]:
        """Return the seeds of a model's runs on a fraction of the images."""
        most = fraction == max(self.fractions)
        return self.more_seeds.get(model, self.seeds) if most else self.seeds

    def with_another_seed(self, models: Sequence[str]) -> "Comparison":
        """Return the question with one more seed of some models, on the most images."""
        more = dict(self.more_seeds)
        for name in models:
            seeds = more.get(name, self.seeds)
            more[name] = (*seeds, max(seeds) + 1)
        return replace(self, more_seeds=more)

    def trainings(self) -> dict[tuple[str, float], Training]:
        """All trainings by model and fraction, the largest fractions first."""
        return {
            (model, fraction): self.training(model, fraction)
            for fraction in sorted(self.fractions, reverse=True)
            for model in self.models
        }

    def training(self, model: str, fraction: float, **changes: Any) -> Training:
        """Return the training of one model on a fraction of the images (in the first fold)."""
        rate = {"lr": self.rates[model]} if model in self.rates else {}
        return Training(
            model=model,
            model_args=self.model_args.get(model, {}),
            data=self.data,
            image_size=self.image_size,
            validation=None if self.folds else self.validation or None,
            fold=(0, self.folds) if self.folds else None,
            recipe=self.recipe,
            changes={"subset.fraction": fraction, **rate, **changes},
            subset_per_seed=self.subset_per_seed,
            start=self.start,
        )

    def on_every_fold(self, training: Training, seed: int = 0) -> list[Training]:
        """The training with this seed once for each fold; itself where there are none."""
        if self.folds is None:
            return [training]
        draw = (seed,) if self.redraw and seed else ()
        return [training.but(fold=(which, self.folds, *draw)) for which in range(self.folds)]

    def runs(self, *, has_test: bool = True) -> list[Wanted]:
        """Every training with every seed and fold; gates are followed on the first fold."""
        wanted: list[Wanted] = []
        tests = tuple(reading for reading in self.readings if has_test or reading != TEST)
        for (model, fraction), training in self.trainings().items():
            by_seed = [
                [(part, seed) for part in self.on_every_fold(training, seed)]
                for seed in self.seeds_of(model, fraction)
            ]
            for number, parts in enumerate(zip(*by_seed, strict=True)):
                read = tests if number == 0 else tuple(r for r in tests if r != LOOKS)
                wanted += [(part, read, seed) for part, seed in parts]
        return wanted

    def for_all_images(self, model: str) -> dict[str, Any]:
        """Return the options of ``vitascope train`` that train a model on all training images."""
        rate = {"lr": self.rates[model]} if model in self.rates else {}
        recipe = changed_recipe(self.recipe, None, rate)
        usual = changed_recipe(recipe.name, recipe.epochs, {})
        # there are no validation images to choose the epoch
        finish = ("finish=last",) if usual.finish != "last" else ()
        return {
            "model": model,
            "model_args": changed(self.model_args.get(model, {})),
            "data": self.data,
            "image_size": self.image_size,
            "recipe": recipe.name,
            "epochs": recipe.epochs,
            "set": (*changed(recipe.to_dict(), usual.to_dict()), *finish),
        }

    @property
    def command(self) -> str:
        """The command that asks this question again."""
        usual = CompareOptions  # its defaults
        options = [
            ("--data", self.data),
            ("--recipe", self.recipe.name),
            ("--epochs", self.recipe.epochs),
            ("--models", self.models),
            ("--fractions", tuple(f"{fraction:g}" for fraction in self.fractions)),
            ("--seeds", self.seeds),
            ("--image-size", self.image_size),
            ("--set", self.overrides),
            ("--margin", None if self.margin == usual.margin else self.margin),
            ("--validation", None if self.validation == usual.validation else self.validation),
            ("--folds", self.folds),
            ("--metric", None if self.metric == usual.metric else self.metric),
            ("--rates", tuple(f"{name}={rate:g}" for name, rate in self.rates.items())),
            ("--match", "compute" if self.model_args else None),
            ("--until", self.until),
        ]
        return command_line(["vitascope", "compare"], options)


def source_of(options: CompareOptions) -> str:
    """Return the images, with their groups and class names."""
    names = None if options.class_names is None else str(options.class_names)
    return described(options.data, options.groups, names)


def comparison_of(options: CompareOptions) -> Comparison:
    """Return the question that the options ask.

    >>> comparison_of(CompareOptions(data="digits", set=("lr=0.01",))).recipe.lr
    0.01

    Raises:
        UserError: If an option is out of its range or cannot be read, or options do not fit
            together.
    """
    check(options)
    models = at_patch_sizes(options.models, options.patch_sizes)
    return Comparison(
        recipe=recipe_from(options.recipe, options.epochs, options.set),
        overrides=options.set,
        data=source_of(options),
        rates=rates_from(options.rates, models),
        models=models,
        fractions=options.fractions,
        seeds=options.seeds,
        image_size=options.image_size,
        margin=options.margin,
        validation=options.validation,
        folds=options.folds,
        metric=options.metric,
        until=options.until,
    )
