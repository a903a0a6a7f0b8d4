"""The most likely classes of image files, by a trained run."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vitascope.deploy.loading import load
from vitascope.errors import UserError

__all__ = ["Prediction", "predict"]


class Prediction(NamedTuple):
    """What a model says of one file."""

    file: Path
    label: str
    probability: float


def predict(
    run: str | Path,
    files: Sequence[str | Path],
    *,
    top: int = 1,
    batch_size: int = 64,
    device: str | None = None,
) -> list[Prediction]:
    """The most likely classes of image files, ``top`` of each, the likeliest first.

    Args:
        run: The folder of a finished run.
        files: Images.
        top: How many classes of each file.
        batch_size: Images at a time.
        device: cpu, cuda or mps; the best there is when left out.

    Raises:
        UserError: If there is no finished run, or a file cannot be read.
    """
    import torch

    from vitascope.capture import logits_of

    loaded = load(run, device=device)
    if top < 1 or batch_size < 1:
        raise UserError("give at least 1 for top and batch_size")
    place = next(loaded.model.parameters()).device
    found = []
    for start in range(0, len(files), batch_size):
        names = [Path(file) for file in files[start : start + batch_size]]
        images = torch.stack([loaded.transform(name) for name in names]).to(place)
        with torch.inference_mode():
            probabilities = logits_of(loaded.model(images)).softmax(dim=-1)
        best = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
        for name, shares, indices in zip(
            names, best.values.tolist(), best.indices.tolist(), strict=True
        ):
            found += [
                Prediction(name, loaded.classes[index], share)
                for share, index in zip(shares, indices, strict=True)
            ]
    return found
