"""What `vitascope compare --pretrained` asks."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from vitascope.comparison.question import Choice, Comparison
from vitascope.runs.spec import changed_recipe
from vitascope.training import Recipe, recipe


@dataclass(frozen=True, kw_only=True)
class PretrainedQuestion(Choice):
    """The question in full."""

    probe_only: bool = False
    budget: float | None = None  # seconds of the whole
    recipe: Recipe = field(default_factory=lambda: recipe("finetune"))

    def race(
        self, models: tuple[str, ...], epochs: int | None, start: Literal["pretrained", "random"]
    ) -> Comparison:
        """The comparison of some candidates, all of whose weights are trained on.

        Args:
            models: The candidates.
            epochs: Of each; None: none, a head on frozen features.
            start: From their weights, or from random ones, of which nothing is spared.
        """
        names = {each.name for each in fields(Choice)} - {"models", "recipe"}
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        spared = {} if start == "pretrained" else {"freeze": (), "head": "random", "layer_decay": 1}
        plan = recipe("linear") if epochs is None else changed_recipe(self.recipe, epochs, spared)
        return Comparison(models=models, fractions=(1.0,), recipe=plan, start=start, **shared)
