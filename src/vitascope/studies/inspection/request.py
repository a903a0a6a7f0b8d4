"""What `vitascope inspect` is asked: which instruments, on which images, with which options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vitascope.errors import UserError, unknown
from vitascope.measure.streaming.one_pass import STREAMING
from vitascope.requests.inspect import Inspect
from vitascope.studies.inspection.curvature import CURVATURE, Curvature
from vitascope.studies.inspection.robustness import ROBUSTNESS
from vitascope.studies.session.models import open_session
from vitascope.studies.session.session import Session

MEASURES = (*STREAMING, "gates", "masking", "lesion")
ON_REQUEST = ("relevance", *ROBUSTNESS, *CURVATURE)  # taken when they are named
EXPLORER = "explorer"  # maps for a page; taken by default too, and no figure or line of its own


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """Which model, images, instruments and options."""

    subject: str  # a run's folder, a model's name, hf:NAME or package.module:function
    data: str | None = None  # a run's own when left out
    measures: tuple[str, ...] = ()  # when left out, all of MEASURES that make sense
    layers: tuple[str, ...] = Inspect.layers  # wildcards for attention layers
    units: tuple[str, ...] = Inspect.units  # wildcards for units
    num_images: int = Inspect.images  # test images, drawn with the seed
    batch_size: int = Inspect.batch_size
    image_size: int | None = None  # side; the model's own when left out
    map_classes: Mapping[str, str] = field(default_factory=dict)  # images' class -> model's
    epoch: int | None = None  # of a run: the weights kept then
    other: str | None = None  # a second model, for CKA between the two
    query: tuple[float, float] = Inspect.query  # of the maps: down and across, 0 to 1
    grid: tuple[int, int] | None = None  # patches, where they cannot be found out
    num_prefix_tokens: int | None = None  # tokens before the patches there
    pretrained: bool = False  # timm's weights for a model given by name
    seed: int = Inspect.seed  # of random weights and of the choice of images
    device: str | None = None
    curvature: Curvature = field(default_factory=Curvature)
    explorer: bool = False  # also the maps of every patch, for a page; or name it in measures

    def __post_init__(self) -> None:
        for name in self.measures:
            if name not in (*MEASURES, *ON_REQUEST, EXPLORER):
                raise unknown("measure", name, (*MEASURES, *ON_REQUEST, EXPLORER))
        if self.other is not None and self.measures and "cka" not in self.measures:
            raise UserError("--other is for CKA: add cka to --measures, or leave --measures out")
        if self.num_images < 1 or self.batch_size < 1:
            raise UserError("give at least 1 for --images and --batch-size")
        if self.grid is not None and min(self.grid) < 1:
            raise UserError(f"a grid has at least one patch each way, not {self.grid}")

    def open_session(self) -> Session:
        """Open the model."""
        return open_session(**self.session_options)

    @property
    def session_options(self) -> dict[str, Any]:
        """How the model is opened, here or in another process."""
        return {
            "text": self.subject,
            "data": self.data,
            "epoch": self.epoch,
            "seed": self.seed,
            "pretrained": self.pretrained,
            "image_size": self.image_size,
            "device": self.device,
            "map_classes": dict(self.map_classes),
        }

    @property
    def token_grid(self) -> dict[str, Any]:
        """The user's word on where patches lie, for tokens that cannot be followed."""
        return {"grid": self.grid, "num_prefix_tokens": self.num_prefix_tokens}
