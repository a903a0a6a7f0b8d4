"""An opened model: the network, its preprocessing, its classes, and where its weights came from."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from vitascope import capture
from vitascope.data import Dataset, load
from vitascope.data.batches import Normalize
from vitascope.errors import UserError
from vitascope.record import plain
from vitascope.training import Run

if TYPE_CHECKING:
    from PIL import Image

FALLBACK = 224  # side of an image for a model that does not say
HEAD = 0x68656164  # "head": the seed of a new head is drawn from the run's and this


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Preparation of images for a model; None where neither the model nor its file says."""

    size: tuple[int, int, int] | None = None  # (C, H, W)
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    interpolation: str | None = None
    crop_pct: float | None = None  # share of the resized image that is kept

    def __str__(self) -> str:
        """Return the values in one line.

        >>> print(
        ...     Preprocessing(
        ...         size=(3, 8, 8), mean=(0.5,), std=(0.25,), interpolation="bicubic", crop_pct=0.9
        ...     )
        ... )
        3 x 8 x 8, mean 0.5, std 0.25, bicubic, crop 0.9
        """
        mean, std = (" ".join(f"{v:.4g}" for v in v or ()) for v in (self.mean, self.std))
        size = " x ".join(map(str, self.size or ()))
        return f"{size}, mean {mean}, std {std}, {self.interpolation}, crop {self.crop_pct or 1:g}"

    @property
    def side(self) -> int | None:
        """Width of the images."""
        return self.size[-1] if self.size else None

    @property
    def normalize(self) -> Normalize:
        """Pixels between 0 and 255 to what the model takes."""
        assert self.mean is not None
        assert self.std is not None
        return Normalize(self.mean, self.std)

    def statistics(self, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Mean and standard deviation, if they are for images with so many channels."""
        if self.mean is None or self.std is None or len(self.mean) != channels:
            return None
        return tuple(self.mean), tuple(self.std)

    def transform(self, image: "str | Path | Image.Image") -> Tensor:
        """Decode, resize and normalise an image or its file. (C, H, W)

        Raises:
            UserError: If it cannot be read.
        """
        from PIL.Image import Resampling

        from vitascope.data.decoding import fit, opened, upright
        from vitascope.data.images import MODES, to_tensor

        assert self.size is not None
        channels, height, width = self.size
        kind = Resampling[(self.interpolation or "bicubic").upper()]
        try:
            raw = opened(image) if isinstance(image, str | Path) else image
            whole = upright(raw).convert(MODES[channels])
            pixels = to_tensor(fit(whole, height, width, self.crop_pct or 1.0, kind))
        except (OSError, UserError) as error:
            raise UserError(f"{image}: {error}") from None
        except AttributeError:
            raise UserError(
                f"an image is a file or an image of pillow's, not {image!r:.60}"
            ) from None
        return self.normalize(pixels[None])[0]

    def load(self, source: str, **options: Any) -> Dataset:
        """Load images in this size, crop, interpolation, mean and standard deviation.

        Args:
            source: Where from, as :func:`vitascope.data.load` takes it.
            options: More of its arguments.
        """
        assert self.size is not None
        assert self.mean is not None
        assert self.std is not None
        images = load(
            source,
            image_size=self.size[-1],
            in_chans=self.size[0],
            crop_pct=self.crop_pct,
            interpolation=self.interpolation or "bicubic",
            **options,
        )
        return replace(images, mean=self.mean, std=self.std)

    def to_record(self) -> dict[str, Any]:
        """Return what a file of the model must say, so that others can prepare its images."""
        values = asdict(self)
        values["interpolation"] = self.interpolation or "bicubic"
        values["crop_pct"] = self.crop_pct or 1.0
        return dict(plain(values))


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Source, licence and digest of a model's weights."""

    source: str
    num_tensors: int
    resampled: bool = False  # position embeddings, for another image size
    license: str | None = None


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """Any model, ready for use: ``opened.model(opened.transform(image)[None])`` gives logits."""

    name: str  # as it was asked for
    model: nn.Module
    config: dict[str, Any]  # of a record: how it was opened
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    classes: tuple[str, ...] | None = None  # in the order of its outputs, where they are known
    run: Run | None = None  # that trained it
    random: bool = False  # the weights are untrained
    architecture: Mapping[str, Any] | None = None  # `rebuilt` makes the network of it, if it can
    origin: Origin | None = None  # of its weights
    new: tuple[str, ...] = ()  # parameters that are not its origin's
    head: str = "its head is kept"  # what became of it, in words

    def transform(self, image: "str | Path | Image.Image") -> Tensor:
        """Decode, resize and normalise an image or its file. (C, H, W)"""
        return self.preprocessing.transform(image)

    @property
    def channels(self) -> int | None:
        """Channels of the images the model takes, as it says or as its first convolution does."""
        if self.preprocessing.size:
            return self.preprocessing.size[0]
        convolutions = (m for m in self.model.modules() if isinstance(m, nn.Conv2d))
        first = next(convolutions, None)
        return None if first is None or first.in_channels not in (1, 3) else first.in_channels

    def input_size(
        self, image_size: int | None = None, otherwise: int = FALLBACK
    ) -> tuple[int, int, int]:
        """Size of the images the model takes, at a side or its own. (C, H, W)

        Args:
            image_size: Side of the images; the model's own when left out.
            otherwise: Side for a model that does not say.
        """
        if self.preprocessing.size is not None and image_size is None:
            return self.preprocessing.size
        side = image_size or otherwise
        return self.channels or 3, side, side

    def try_image(self, images: Tensor) -> Any:
        """The output for the first of some images.

        Raises:
            UserError: If the model does not take it, with the reason in one line.
        """
        name = self.config.get("run", self.name)
        return capture.try_image(self.model, images, name, "give --image-size")

    @property
    def line(self) -> str:
        """Preprocessing, origin of the weights and head in one line."""
        assert self.origin is not None
        more = ", position embeddings resampled" if self.origin.resampled else ""
        return (
            f"{self.name}: {self.preprocessing}; {self.origin.num_tensors} tensors from "
            f"{self.origin.source}{more}; {self.head}"
        )

    def for_classes(
        self, classes: Sequence[str], *, keep_head: bool = False, seed: int = 0
    ) -> "OpenedModel":
        """Keep the head, or put a new one for these classes on the model, which is changed.

        Args:
            classes: Names of the classes to predict.
            keep_head: Keep the head, which must have as many outputs, and a run's the same names.
            seed: From which the new head's own is drawn.

        Raises:
            UserError: If the head that is to be kept is for other classes.
        """
        names, same = tuple(classes), self.classes == tuple(classes)
        count = getattr(self.model, "num_classes", None)
        if keep_head and self.classes is not None and not same:
            raise UserError(
                f"--keep-head: {self.name} knows {', '.join(self.classes[:10])}; the images have "
                f"{', '.join(names[:10])}"
            )
        if keep_head and count not in (None, len(names)):
            raise UserError(
                f"--keep-head: {self.name} has {count} outputs, the images {len(names)} classes"
            )
        own = same and self.run is not None  # it was trained on these classes
        if keep_head or own:
            why = "the classes have the same names" if own else "as asked"
            return replace(self, head=f"its head is kept ({why})")
        reset = getattr(self.model, "reset_classifier", None)
        if reset is None and self.architecture is not None:
            from vitascope.loading.hugging_face import new_head

            reset = partial(new_head, self.model)
        if reset is None:
            raise UserError(
                f"{self.name} has no reset_classifier, so it cannot be given a head for "
                f"{len(names)} classes; give a model of timm's, or a run"
            )
        before = dict(self.model.named_parameters())
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(head_seed(seed))
            reset(len(names))
        new = tuple(n for n, p in self.model.named_parameters() if before.get(n) is not p)
        origin, architecture = self.origin, self.architecture
        if origin is not None:
            lost = sum(name in before for name in new)
            origin = replace(origin, num_tensors=origin.num_tensors - lost)
        if architecture is not None:
            architecture = {**architecture, "num_classes": len(names)}
        return replace(
            self,
            origin=origin,
            architecture=architecture,
            classes=names,
            new=new,
            head=f"new head for {len(names)} classes ({', '.join(new)})",
        )

    @cached_property
    def weights_key(self) -> str:
        """A hash of the preprocessing and of every weight but the new ones, for caches."""
        digest = hashlib.sha256(str(self.preprocessing).encode())
        for name, value in sorted(self.model.state_dict().items()):
            if name not in self.new:
                array = value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
                digest.update(f"{name} {tuple(value.shape)}".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()[:16]


def head_seed(seed: int) -> int:
    """A seed for a new head, other than that of the run.

    >>> head_seed(0) == head_seed(0), head_seed(0) == head_seed(1)
    (True, False)
    """
    return int(np.random.SeedSequence([seed, HEAD]).generate_state(1)[0])
