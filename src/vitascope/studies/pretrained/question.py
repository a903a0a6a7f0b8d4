"""What `vitascope compare --pretrained` asks."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from vitascope.errors import UserError
from vitascope.requests.compare import Compare
from vitascope.settings import Seed, Side, Within, check
from vitascope.studies.comparison.advice import Metric
from vitascope.studies.comparison.question import Comparison
from vitascope.studies.grid.training import changed_recipe
from vitascope.studies.pretrained.candidates import DEFAULT
from vitascope.train import Recipe, recipe


@dataclass(frozen=True, kw_only=True)
class PretrainedQuestion:
    """The question in full."""

    data: str
    models: tuple[str, ...] = DEFAULT
    seeds: tuple[Seed, ...] = Compare.seeds
    image_size: Side | None = None  # the candidates' own when left out
    margin: Annotated[float, Within(0, 100)] = (
        Compare.margin
    )  # points a cheaper model may be behind
    # share of the training images that choose the model; 0: the test images do
    validation: Annotated[float, Within(0, 1, open_high=True)] = Compare.validation
    folds: Annotated[int, Within(2, 100)] | None = None  # every image chooses, once a seed
    metric: Metric = Compare.metric
    probe_only: bool = False
    budget: float | None = None  # seconds of the whole
    recipe: Recipe = field(default_factory=lambda: recipe("finetune"))

    def __post_init__(self) -> None:
        check(self)
        for name in ("models", "seeds"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise UserError(f"{name} must be one or more different ones, not {list(values)}")

    @property
    def config(self) -> dict[str, Any]:
        """In plain types."""
        return {**asdict(self), "recipe": self.recipe.to_dict()}

    def race(
        self, models: tuple[str, ...], epochs: int | None, start: Literal["pretrained", "random"]
    ) -> Comparison:
        """The comparison of some candidates, all of whose weights are trained on.

        Args:
            models: The candidates.
            epochs: Of each; None: none, a head on frozen features.
            start: From their weights, or from random ones, of which nothing is spared.
        """
        names = ("data", "seeds", "image_size", "margin", "validation", "folds", "metric")
        shared = {name: getattr(self, name) for name in names}
        spared = {} if start == "pretrained" else {"freeze": (), "head": "random", "layer_decay": 1}
        plan = recipe("linear") if epochs is None else changed_recipe(self.recipe, epochs, spared)
        return Comparison(models=models, fractions=(1.0,), recipe=plan, start=start, **shared)
