"""The most likely classes of image files, by a trained run; as a table of comma-separated values.

    p = softmax(z / T)

T is 1, or the temperature that calibrates the model: `vitascope evaluate RUN --on calibration`
fits one. It changes how sure the model is, never its answer.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitascope import record
from vitascope.atomic import write_text
from vitascope.errors import UserError
from vitascope.loading import load

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import Tensor, nn

    from vitascope.loading.model import OpenedModel

__all__ = [
    "Prediction",
    "answers_table",
    "image_files",
    "predict",
    "temperature_of",
    "write_answers",
]


class Prediction(NamedTuple):
    """A model's prediction for one file."""

    file: Path
    label: str
    probability: float


def image_files(paths: Sequence[str | Path]) -> list[Path]:
    """These files, and all images below these folders, sorted; each once.

    Raises:
        UserError: If a path does not exist, or a folder has no images.
    """
    from vitascope.data.sources.folder import EXTENSIONS

    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in EXTENSIONS)
            if not inside:
                raise UserError(f"no images in {path} ({', '.join(sorted(EXTENSIONS))})")
            files += inside
        elif path.exists():
            files.append(path)
        else:
            raise UserError(f"there is no file or folder {path}")
    return list(dict.fromkeys(files))


def temperature_of(word: str) -> float:
    """A temperature: a number, or the record that ``evaluate --on calibration`` wrote.

    >>> temperature_of("1.5")
    1.5

    Raises:
        UserError: If it is neither, or not above 0.
    """
    try:
        temperature: Any = float(word)
    except ValueError:
        stored = record.load(word)
        scaling: Any = stored.values.get("scaling")
        temperature = scaling.get("temperature") if isinstance(scaling, dict) else None
        if stored.kind != "calibration" or not isinstance(temperature, int | float):
            raise UserError(
                f"{word} has no temperature; give a number, or the calibration.json of "
                "`vitascope evaluate RUN --on calibration --out FOLDER`"
            ) from None
    if not 0 < temperature < float("inf"):
        raise UserError(f"a temperature is above 0, not {word}")
    return float(temperature)


def predict(
    model: "str | Path | nn.Module | OpenedModel",
    files: "str | Path | Tensor | Sequence[str | Path | Image]",
    *,
    top: int = 1,
    batch_size: int = 64,
    device: str | None = None,
    temperature: float = 1.0,
    on_broken: Callable[[Path, UserError], None] | None = None,
    on_step: Callable[[int], None] = lambda done: None,
) -> list[Prediction]:
    """Return the most likely classes of images, ``top`` of each, the likeliest first.

    Args:
        model: As :func:`vitascope.loading.load` takes it; or what that returned. Classes without
            names are numbered from 0.
        files: An image or a folder, or several of them; or images of pillow's, or a tensor
            (N, C, H, W) of uint8 or of numbers from 0 to 1, or a ``DataLoader`` of such tensors,
            which are numbered from 0.
        top: How many classes of each file.
        batch_size: Images at a time.
        device: cpu, cuda or mps; the best there is when left out.
        temperature: Divides the logits.
        on_broken: Told of a file that cannot be read, which is left out; an error when left out.
        on_step: Told how many files are done.

    Raises:
        UserError: If there is no such model, or a file cannot be read.
    """
    import torch

    from vitascope.capture import logits_of

    if top < 1 or batch_size < 1:
        raise UserError("give at least 1 for top and batch_size")
    from vitascope.loading import OpenedModel

    loaded = model if isinstance(model, OpenedModel) else load(model, device=device)
    named = _named(files)
    target, classes = next(loaded.model.parameters()).device, loaded.classes or ()
    predictions: list[Prediction] = []
    for start in range(0, len(named), batch_size):
        some = named[start : start + batch_size]
        ready = list(_readable(loaded, some, on_broken))
        if ready:
            images = torch.stack([image for _, image in ready]).to(target)
            with torch.inference_mode():
                logits = logits_of(loaded.model(images)).double().cpu()
            best = (logits / temperature).softmax(dim=-1).topk(min(top, logits.shape[-1]), dim=-1)
            for (name, _), shares, indices in zip(
                ready, best.values.tolist(), best.indices.tolist(), strict=True
            ):
                predictions += [
                    Prediction(name, classes[index] if classes else str(index), share)
                    for share, index in zip(shares, indices, strict=True)
                ]
        on_step(start + len(some))
    return predictions


def _named(files: Any) -> list[tuple[Path, Any]]:
    """Return each image with its file; images in memory have their number."""
    if not isinstance(files, str | Path | Sequence) and isinstance(files, Iterable):
        from vitascope.data.images import to_image
        from vitascope.data.sources.given import GivenImages

        given = GivenImages.of(files).images
        files = [to_image(pixels) for pixels in given.pixels(range(len(given)))]
    if isinstance(files, str | Path) or not isinstance(files, Sequence):
        files = [files]
    named: list[tuple[Path, Any]] = []
    for number, file in enumerate(files):
        if file is None or isinstance(file, int | float) or (isinstance(file, str) and not file):
            raise UserError(f"an image is a file, pixels or an image of pillow's, not {file!r}")
        if isinstance(file, str | Path):
            inside = image_files([file]) if Path(file).is_dir() else [Path(file)]
            named += [(path, path) for path in inside]
        else:
            named.append((Path(str(number)), file))
    return named


def _readable(
    loaded: "OpenedModel",
    named: Sequence[tuple[Path, Any]],
    on_broken: Callable[[Path, UserError], None] | None,
) -> Iterator[tuple[Path, Any]]:
    for name, image in named:
        try:
            yield name, loaded.transform(image)
        except UserError as error:
            if on_broken is None:
                raise
            on_broken(name, error)


def answers_table(predictions: Sequence[Prediction]) -> str:
    """One line per file: ``file,label,probability``, then ``label_2,probability_2``, ….

    >>> both = [Prediction(Path("a.png"), "cat", 0.75), Prediction(Path("a.png"), "dog", 0.25)]
    >>> print(answers_table(both).replace("\\r", ""), end="")
    file,label,probability,label_2,probability_2
    a.png,cat,0.75,dog,0.25
    """
    rows: list[list[str]] = []
    before = None
    for each in predictions:
        if each.file != before:
            rows.append([str(each.file)])
        before = each.file
        rows[-1] += [each.label, f"{each.probability:.6g}"]
    count = max(map(len, rows), default=3) // 2
    more = [f"{name}_{k}" for k in range(2, count + 1) for name in ("label", "probability")]
    out = StringIO()
    csv.writer(out).writerows([["file", "label", "probability", *more], *rows])
    return out.getvalue()


def write_answers(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write :func:`answers_table` to a file, whole or not at all."""
    write_text(path, answers_table(predictions))
