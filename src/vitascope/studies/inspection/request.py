"""What `vitascope inspect` is asked: which instruments, on which images, with which options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vitascope.errors import UserError, unknown
from vitascope.measure.streaming.one_pass import STREAMING
from vitascope.requests.inspect import Inspect
from vitascope.settings import made_from
from vitascope.studies.inspection.curvature import CURVATURE, Curvature
from vitascope.studies.inspection.robustness import ROBUSTNESS
from vitascope.studies.session.models import class_pairs, open_session
from vitascope.studies.session.session import Session

MEASURES = (*STREAMING, "gates", "masking", "lesion")
ON_REQUEST = ("relevance", *ROBUSTNESS, *CURVATURE)  # taken when they are named
EXPLORER = "explorer"  # maps for a page; taken by default too, and no figure or line of its own


@dataclass(frozen=True, kw_only=True)
class InspectRequest:
    """What is measured, as records keep it; defaults are :class:`Inspect`'s."""

    subject: str  # a run's folder, a model's name, hf:NAME or package.module:function
    data: str | None
    measures: tuple[str, ...]  # when empty, all of MEASURES that make sense
    layers: tuple[str, ...]
    units: tuple[str, ...]
    num_images: int
    batch_size: int
    image_size: int | None
    map_classes: Mapping[str, str]  # images' class -> model's
    epoch: int | None
    other: str | None
    query: tuple[float, float]
    grid: tuple[int, int] | None
    num_prefix_tokens: int | None
    pretrained: bool
    seed: int
    device: str | None
    curvature: Curvature
    explorer: bool  # also the maps of every patch, for a page; or name it in measures

    @classmethod
    def of(cls, request: Inspect) -> "InspectRequest":
        """What a request asks."""
        return made_from(
            request,
            cls,
            subject=request.model,
            measures=tuple(name for word in request.measures for name in word.split(",") if name),
            num_images=request.images,
            map_classes=class_pairs(request.map_classes),
            num_prefix_tokens=request.prefix_tokens,
            curvature=Curvature.of(request, request.out and request.out / "parts"),
            explorer=request.out is not None,
        )

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
