"""The three sizes of a study: `paper` for a cluster, `laptop` for two cores, `smoke` for tests.

A study speaks of the paper's models ("ConViT-S", "ResNet-50"); a scale says which network stands
for each. Laptop networks are the micro models on small images, so their accuracies say nothing
about the paper's: the claims (who is ahead, what grows) are what can be compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from vitascope.errors import UserError, unknown
from vitascope.studies.grid.training import Training

__all__ = ["IMAGENET", "LAPTOP", "PAPER", "ROLES", "SCALES", "SMOKE", "Role", "Scale"]

T = TypeVar("T")
IMAGENET = {
    "paper": "ImageNet-1k (imagenet:PATH)",
    "laptop": "digits (embedded)",
}  # a study's images
Name = Literal["smoke", "laptop", "paper"]

_NARROW = {"embed_dim": 36, "num_heads": 4}  # 4 heads of 9: less than half the channels
_WIDE = {"embed_dim": 108, "num_heads": 9}

Spec = tuple[str, dict[str, Any]]  # a model and its arguments
Role = tuple[Spec, Spec]  # at the paper's scale, on a laptop

ROLES: dict[str, Role] = {
    "DeiT-Ti": (("deit_tiny", {}), ("vit_micro", _NARROW)),
    "DeiT-Ti+": (("deit_tiny_plus", {}), ("vit_micro", _NARROW)),
    "DeiT-S": (("deit_small", {}), ("vit_micro", {})),
    "DeiT-S+": (("deit_small_plus", {}), ("vit_micro", {})),
    "DeiT-B": (("deit_base", {}), ("vit_micro", _WIDE)),
    "DeiT-B+": (("deit_base_plus", {}), ("vit_micro", _WIDE)),
    "ConViT-Ti": (("convit_tiny", {}), ("convit_micro", _NARROW)),
    "ConViT-Ti+": (("convit_tiny_plus", {}), ("convit_micro", _NARROW)),
    "ConViT-S": (("convit_small", {}), ("convit_micro", {})),
    "ConViT-S+": (("convit_small_plus", {}), ("convit_micro", {})),
    "ConViT-B": (("convit_base", {}), ("convit_micro", _WIDE)),
    "ConViT-B+": (("convit_base_plus", {}), ("convit_micro", _WIDE)),
    "DeiT-S distilled": (("deit_small_distilled", {}), ("vit_micro_distilled", {})),
    "DeiT-B distilled": (("deit_base_distilled", {}), ("vit_micro_distilled", _WIDE)),
    "ConViT-S+ distilled": (("convit_small_plus_distilled", {}), ("convit_micro_distilled", {})),
    "CNN teacher": (("regnety_160", {}), ("resnet_micro", {})),
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large, on what, how long, how often."""

    name: Name
    data: str
    recipe: str
    epochs: int | None  # the recipe's when left out
    seeds: tuple[int, ...]
    images: int  # test images that an instrument looks at
    batches: int  # mini-batches of a Hessian spectrum
    points: int  # of a landscape along each direction
    small: float  # the share of the images that stands for "few"
    image_size: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # of every recipe
    subset_per_seed: bool = True  # a subset is drawn anew with each seed

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UserError(f"seeds must be one or more different ones, not {list(self.seeds)}")

    @property
    def is_paper(self) -> bool:
        """Whether this is the papers' own size."""
        return self.name == "paper"

    def pick(self, *, paper: T, laptop: T, smoke: T | None = None) -> T:
        """The value for this scale; smoke takes the laptop's when it has none of its own."""
        if self.is_paper:
            return paper
        return smoke if self.name == "smoke" and smoke is not None else laptop

    def training(
        self,
        role: str | Role,
        *,
        fraction: float = 1.0,
        changes: Mapping[str, Any] | None = None,
        recipe: str | None = None,
        **model_args: Any,
    ) -> Training:
        """How the model of a role is trained; ``recipe`` is the paper's where it is not DeiT's."""
        if isinstance(role, str):
            if role not in ROLES:
                raise unknown("role", role, ROLES)
            role = ROLES[role]
        model, args = role[0 if self.is_paper else 1]
        changed = {**self.changes, **(changes or {})}
        if fraction != 1.0 or self.name == "smoke":
            few = fraction * (0.2 if self.name == "smoke" else 1.0)
            changed["subset.fraction"] = few
        return Training(
            model=model,
            model_args={**args, **model_args},
            data=self.data,
            image_size=self.image_size,
            epochs=self.epochs,
            changes=changed,
            subset_per_seed=self.subset_per_seed,
            recipe=recipe if recipe is not None and self.is_paper else self.recipe,
        )

    def look(self, **options: Any) -> dict[str, Any]:
        """Options of an instrument: how many images it sees."""
        return {"num_images": self.images, **options}


PAPER = Scale(
    name="paper",
    data="imagenet",
    recipe="deit",
    epochs=None,
    seeds=(0, 1, 2),  # the papers train once; one run cannot tell a lead from a lucky seed
    images=10_000,
    batches=1000,
    points=21,
    small=0.1,
)
LAPTOP = Scale(
    name="laptop",
    data="digits",
    recipe="laptop",
    epochs=20,
    seeds=(0, 1, 2),
    images=359,
    batches=16,
    points=11,
    small=0.1,
)
SMOKE = Scale(
    name="smoke",
    data="digits",
    recipe="laptop",
    epochs=1,
    seeds=(0,),
    images=24,
    batches=1,
    points=3,
    small=0.5,
    changes={"scale_epochs": False, "batch_size": 32},
)
SCALES: dict[str, Scale] = {scale.name: scale for scale in (SMOKE, LAPTOP, PAPER)}
