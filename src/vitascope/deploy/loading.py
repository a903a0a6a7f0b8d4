"""A finished run as a model with its image transform and class names."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope.errors import UserError
from vitascope.record import plain

if TYPE_CHECKING:
    from PIL import Image
    from torch import Tensor, nn

__all__ = ["Loaded", "load"]


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A trained model, ready to be used: ``model(transform(image)[None])`` are logits."""

    model: "nn.Module"  # in evaluation mode
    classes: tuple[str, ...]  # in the order of its outputs
    size: tuple[int, int, int]  # of its images: channels, height, width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float = 1.0  # share of the resized image that is kept
    interpolation: str = "bicubic"

    @property
    def preprocessing(self) -> dict[str, Any]:
        """What a file of the model must say, so that others can prepare its images."""
        names = ("classes", "size", "mean", "std", "crop_pct", "interpolation")
        return plain({name: getattr(self, name) for name in names})

    def transform(self, image: "str | Path | Image.Image") -> "Tensor":
        """An image or its file as the model takes it: decoded, resized, normalised. (C, H, W)

        Raises:
            UserError: If it cannot be read.
        """
        import torch
        from PIL.Image import Resampling

        from vitascope.data.decoding import fit, opened, upright
        from vitascope.data.images import MODES, to_tensor

        channels, height, width = self.size
        kind = Resampling[self.interpolation.upper()]
        try:
            found = opened(image) if isinstance(image, str | Path) else image
            whole = upright(found).convert(MODES[channels])
            pixels = to_tensor(fit(whole, height, width, self.crop_pct, kind))
        except (OSError, UserError) as error:
            raise UserError(f"{image}: {error}") from None
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels / 255 - mean) / std


def load(run: str | Path, *, device: str | None = None) -> Loaded:
    """The model of a finished run, with its image transform and class names.

    Args:
        run: The run's folder.
        device: cpu, cuda or mps; the best there is when left out.

    Raises:
        UserError: If there is no finished run.
    """
    from vitascope.loading.opening import open_session

    if not Path(run).is_dir():
        raise UserError(f"there is no folder {run}; give the folder of a finished run")
    session = open_session(str(run), device=device)
    assert session.size is not None  # a run has them
    assert session.mean is not None
    assert session.std is not None
    return Loaded(
        model=session.model,
        classes=session.classes or (),
        size=session.size,
        mean=session.mean,
        std=session.std,
        crop_pct=session.crop_pct or 1.0,
        interpolation=session.interpolation or "bicubic",
    )
