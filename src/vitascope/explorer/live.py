"""The live explorer's models: attention maps of images that are uploaded one after the other.

Only PNG, JPEG and WebP are taken, recognised by their bytes, not by their names; size and number of
pixels are checked before anything is decoded. One image goes through at a time, with the models'
final weights, and nothing is written to disk.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError

from vitascope.atomic import file_name
from vitascope.data.decoding import TooLarge, fit, image_bytes, opened, upright
from vitascope.data.images import MODES, to_tensor
from vitascope.errors import UserError
from vitascope.explorer.explore import explore
from vitascope.explorer.maps import (
    GridLayout,
    attention_maps,
    explainer_of,
    layouts_of,
    relevance_maps,
    stack_epochs,
    top_answers,
)
from vitascope.loading.session import Session, open_session
from vitascope.measure.attribution.relevance import Explainer
from vitascope.measure.streaming.model_structure import ModelStructure
from vitascope.record import Record

MOST_BYTES = 8 * 2**20  # of a file
MOST_PIXELS = 40_000_000  # of an image: a large photo; 160 MB decoded
FORMATS = ("PNG", "JPEG", "WEBP")
MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"RIFF")  # how their files begin


class Refusal(UserError):
    """An uploaded image is refused; ``status`` is the HTTP status code for the reason."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


def decode(raw: bytes) -> Image.Image:
    """The image in a file's bytes, as training would see it.

    Raises:
        Refusal: If it is too large, of another kind, or broken.
    """
    if len(raw) > MOST_BYTES:
        raise Refusal(413, f"the file has {len(raw):,} bytes; at most {MOST_BYTES:,} are taken")
    try:
        image = opened(BytesIO(raw), formats=FORMATS, most_pixels=MOST_PIXELS)
        return upright(image)
    except TooLarge as error:
        raise Refusal(413, f"the image is too large: {error}") from None
    except UnidentifiedImageError:
        if not raw.startswith(MAGIC):
            raise Refusal(415, "this is no PNG, JPEG or WebP image") from None
        raise Refusal(422, "the image is broken: its header cannot be read") from None
    except OSError as error:
        raise Refusal(422, f"the image is broken: {error}") from None
    except UserError as error:
        raise Refusal(422, f"the image is not taken: {error}") from None


def runs_in(path: str) -> list[str]:
    """The models to open for a path: itself, or the runs of a comparison that have attention.

    Of each model the run on most images with the first seed, as the comparison's page shows.
    """
    folder = Path(path)
    if "/" in path and ":" not in path and not folder.exists():
        raise UserError(f"there is no {path}; give a run, a comparison or the name of a model")
    if not (folder / "compare.json").is_file():
        return [path]
    try:
        body = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
        cells = body["values"]["cells"]
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{folder / 'compare.json'} is no comparison; make it again") from None
    best: dict[str, dict[str, Any]] = {}
    for cell in cells:
        if cell["fraction"] > best.get(cell["model"], {"fraction": 0})["fraction"]:
            best[cell["model"]] = cell
    runs = [
        str(folder / cell["folder"])
        for model, cell in best.items()
        if (folder / "explorer" / f"{file_name(model)}.json").exists()
    ]
    if not runs:
        raise UserError(f"no model of {path} has attention on a grid of patches to explore")
    return runs


@dataclass(frozen=True)
class _Model:
    """An opened model and how its maps are laid out."""

    session: Session
    layouts: dict[str, GridLayout]
    explain: Explainer | None  # gives maps of relevance
    record: Record  # of its own images


@dataclass(frozen=True)
class Live:
    """Opened models; :meth:`explore` gives their attention maps of an uploaded image."""

    models: Sequence[_Model]
    _lock: Lock = field(default_factory=Lock, repr=False)
    _numbers: "count[int]" = field(default_factory=count, repr=False)

    @classmethod
    def open(cls, paths: Sequence[str], data: str | None = None) -> "Live":
        """Open runs or models by name (``data`` says on what images to show those at first)."""
        models = []
        for text in (run for path in paths for run in runs_in(path)):
            session = open_session(text, data)
            record = explore(session)
            blank = torch.zeros(1, *session.loaded.test.size, device=session.device)
            names = [layer["name"] for layer in record.values["layers"]]
            structure = ModelStructure(session.model, blank)
            layout_of = layouts_of(structure, names)[0] if names else {}
            layouts = {name: layout_of[name] for name in names}
            models.append(_Model(session, layouts, explainer_of(structure), record))
        return cls(models)

    @property
    def records(self) -> list[Record]:
        """Explorer records of the models' own images."""
        return [model.record for model in self.models]

    def explore(self, raw: bytes) -> list[Record]:
        """Each model's maps of the image in these bytes, as explorer records of one image.

        Raises:
            Refusal: If the image is not taken.
        """
        image = decode(raw)
        with self._lock:
            number = next(self._numbers)
            return [_explore(model, image, number) for model in self.models]


def _explore(model: _Model, image: Image.Image, number: int) -> Record:
    session = model.session
    channels, height, width = session.loaded.test.size
    pixels = to_tensor(fit(image.convert(MODES[channels]), height, width))
    mean, std = (torch.tensor(value).view(-1, 1, 1) for value in session.statistics)
    batch = ((pixels / 255 - mean) / std)[None].to(session.device)
    maps, answers = attention_maps(session.model, batch, model.layouts)
    arrays, described = stack_epochs([maps], model.layouts)
    values = {
        **model.record.values,
        "data": "upload",
        "epochs": model.record.values["epochs"][-1:],
        "images": [{"index": number, "label": None}],
        "answers": top_answers([answers], session.opened.classes or session.images.classes),
        "layers": described,
        "notes": [],
    }
    rests, values["relevance"] = relevance_maps(model.explain, batch)
    arrays |= rests
    arrays["image/0"] = image_bytes(pixels)
    return Record(kind="explorer", values=values, arrays=arrays, config=session.config)
