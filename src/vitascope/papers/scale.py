"""Sizes of a study: `paper` for a cluster, `desk` and `laptop` for two cores, `smoke` for tests.

A study speaks of the paper's models ("ConViT-S", "ResNet-50"); a scale says which network stands
for each. On a laptop these are the micro models on the embedded digits, minutes in all; at a desk
the mini models on real images of about 32 x 32 pixels, hours. Their accuracies say nothing about
the paper's: the claims (who is ahead, what grows) are what can be compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from vitascope.errors import UserError, unknown
from vitascope.papers.plan import Plan
from vitascope.runs.spec import Reading, Training

T = TypeVar("T")
REAL = "real images: CIFAR-10 (cifar10:PATH), Fashion-MNIST (PATH of its idx files), or a folder"
IMAGENET = {
    "paper": "ImageNet-1k (imagenet:PATH)",
    "desk": REAL,
    "laptop": "digits (embedded)",
}  # a study's images
# seconds of one slow core on digits, by measurement; "final" stands for the training itself
LAPTOP_SECONDS = {"final": 25.0, "hessian": 8.0, "corruption": 5.0, "landscape": 4.0}
OTHER_SECONDS = 0.5
Name = Literal["smoke", "laptop", "desk", "paper"]

_NARROW = {"embed_dim": 36, "num_heads": 4}  # 4 heads of 9: less than half the channels
_WIDE = {"embed_dim": 108, "num_heads": 9}

Spec = tuple[str, dict[str, Any]]  # a model and its arguments
# At the paper's scale, on a laptop, and at a desk where it is not the laptop's at the size of mini.
Role = tuple[Spec, Spec] | tuple[Spec, Spec, Spec]

_MINI = {  # what is micro on a laptop
    name: name.replace("_micro", "_mini")
    for name in (
        "vit_micro",
        "vit_micro_gap",
        "vit_micro_distilled",
        "convit_micro",
        "convit_micro_distilled",
        "convolutional_vit_micro",
        "resnet_micro",
        "resnet_postact_micro",
        "alternet_micro",
    )
}
_WIDTHS = (72 / 20, 96 / 40, 128 / 80)  # of a mini ResNet to a micro one's

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


def percent(fraction: float) -> str:
    """A share of the images as tables say it.

    >>> percent(0.05)
    '5 %'
    """
    return f"{100 * fraction:g} %"


def at_a_desk(spec: Spec) -> Spec:
    """The mini model, with its arguments, for a micro one; others stay.

    >>> at_a_desk(("convit_micro", {"embed_dim": 36, "num_heads": 4}))
    ('convit_mini', {'embed_dim': 72, 'num_heads': 4})
    """
    base, plus, suffixes = spec[0].partition("+")
    if base not in _MINI:
        return spec
    args = dict(spec[1])
    if "embed_dim" in args:
        args["embed_dim"] *= 2
    if "widths" in args:
        pairs = zip(args["widths"], _WIDTHS, strict=True)
        args["widths"] = tuple(round(width * factor) for width, factor in pairs)
    return _MINI[base] + plus + suffixes, args


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Size of a study: its images, epochs, seeds and recipe."""

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
        """Return whether this is the papers' own size."""
        return self.name == "paper"

    def pick(
        self, *, paper: T, laptop: T | None = None, desk: T | None = None, smoke: T | None = None
    ) -> T:
        """The value for this scale: a laptop's where desk or smoke has none, else the paper's."""
        order = {"paper": (), "laptop": (laptop,), "desk": (desk, laptop), "smoke": (smoke, laptop)}
        return next((value for value in order[self.name] if value is not None), paper)

    def training(
        self,
        role: str | Role,
        *,
        fraction: float = 1.0,
        changes: Mapping[str, Any] | None = None,
        recipe: str | None = None,
        **model_args: Any,
    ) -> Training:
        """Return the training of a role's model; ``recipe`` is the paper's, if not DeiT's."""
        if isinstance(role, str):
            if role not in ROLES:
                raise unknown("role", role, ROLES)
            role = ROLES[role]
        model, args = role[0 if self.is_paper else 1]
        if self.name == "desk":
            model, args = role[2] if len(role) == 3 else at_a_desk(role[1])
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

    def few(
        self, role: str | Role, *, fraction: float = 1.0, seen: float = 1 / 8, **options: Any
    ) -> Training:
        """Return a shorter :meth:`training`: at a desk the fraction ``seen`` of the images is seen.

        An eighth of 8 epochs of CIFAR-10 are 50,000 images, whichever part of it they are from.
        """
        made = self.training(role, fraction=fraction, **options)
        if self.name != "desk":
            return made
        plan = made.full_recipe
        share = seen if plan.scale_epochs else seen / fraction
        return made.but(epochs=max(1, round(share * plan.epochs)))

    def affordable(
        self, role: str, *, fraction: float = 1.0, seen: float = 1 / 8, **options: Any
    ) -> Training:
        """Return a training for studies of many runs.

        At a desk it is the laptop's network on an 8 x 8 grid, which sees 50,000 images unless
        ``seen`` is another part of 400,000.
        """
        if self.name != "desk":
            return self.training(role, fraction=fraction, **options)
        model, args = ROLES[role][1]
        spec = model, {**args, "patch_size": 4}
        return self.few((spec, spec, spec), fraction=fraction, seen=seen, **options)

    def reading(self, instrument: str, **options: Any) -> Reading:
        """Return an instrument's measurement on as many test images as the scale allows."""
        return Reading(name=instrument, options={"num_images": self.images, **options})


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
DESK = Scale(
    name="desk",
    data="cifar10",
    recipe="laptop",
    epochs=8,
    seeds=(0, 1, 2, 3, 4),
    images=2000,
    batches=8,  # a mini-batch takes about 50 products with the Hessian, seconds
    points=11,
    small=0.1,
    changes={"lr": 1e-3},
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
SCALES: dict[str, Scale] = {scale.name: scale for scale in (SMOKE, LAPTOP, DESK, PAPER)}


def laptop_minutes(plan: Plan, num_seeds: int, cores: int = 2) -> float:
    """Return how long a plan takes on a laptop from scratch, from seconds measured on digits."""
    names = [
        reading.name for _, readings in plan.wanted().values() for reading in readings.values()
    ]
    return num_seeds * sum(LAPTOP_SECONDS.get(name, OTHER_SECONDS) for name in names) / cores / 60
