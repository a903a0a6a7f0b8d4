"""A trained run as one file, with its preprocessing inside, checked against the run.

- *onnx*: a graph for any runtime, images (B, C, H, W) to logits (B, K), any B. ``metadata_props``
  has the key ``vitascope``.
- *safetensors*: the state dict; the key ``vitascope`` of its header says the rest.

``vitascope`` is JSON: the model's name and arguments, classes, size, mean, std, crop_pct,
interpolation. The written file is read back and run on images of noise: the largest difference to
the run's logits, relative to the largest logit, must be below 1e-4 (onnx; 8e-7 is usual) or exactly
0 (safetensors), or nothing is written.
"""

import json
import logging
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitascope.atomic import replacing
from vitascope.errors import UserError
from vitascope.loading import load
from vitascope.record import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from torch import Tensor

    from vitascope.loading.model import OpenedModel

__all__ = ["KEY", "Exported", "export"]

KEY = "vitascope"  # of the metadata
BATCHES = (1, 3)  # images in the check: the number must not be built into the file
TOLERANCE = {"onnx": 1e-4, "safetensors": 0.0}


class Exported(NamedTuple):
    """A file that was written and read back."""

    path: Path
    difference: float  # largest, relative to the largest logit
    preprocessing: dict[str, Any]


def export(run: str | Path, to: str, out: str | Path, *, by_order: bool = False) -> Exported:
    """Write a trained model to a file, and check what was written.

    Args:
        run: The folder of a finished run, or NAME@FILE.
        to: onnx or safetensors.
        out: The file.
        by_order: The tensors of NAME@FILE have other names, and stand in the same order.

    Raises:
        UserError: If there is no finished run, a package is missing, the model has no such form,
            or its logits differ.
    """
    if to not in _FORMS:
        raise UserError(f"unknown format {to!r}; there are: {', '.join(_FORMS)}")
    out = Path(out)
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; give a file")
    loaded = load(run, device="cpu", by_order=by_order)
    about: dict[str, Any] = {
        "model": plain(loaded.architecture),
        "classes": list(loaded.classes or ()),
    }
    about |= loaded.preprocessing.to_record()
    with replacing(out) as temporary:
        answer = _FORMS[to](loaded, about, temporary)
        difference = _difference(loaded, answer)
        if not difference <= TOLERANCE[to]:
            raise UserError(
                f"{run} was not written to {out}: the file's logits differ from the run's by "
                f"{difference:.1e} of the largest; give another format"
            )
    return Exported(out, difference, about)


Answer = Callable[["Tensor"], "np.ndarray"]  # images to logits, by the file that was written


def _difference(loaded: "OpenedModel", answer: Answer) -> float:
    """Between the run and the file, on images of noise."""
    import numpy as np
    import torch

    from vitascope.capture import logits_of

    noise = torch.Generator().manual_seed(0)
    differences = []
    for count in BATCHES:
        images = torch.randn(count, *loaded.input_size(), generator=noise)
        with torch.inference_mode():
            ours = logits_of(loaded.model(images)).numpy()
        differences.append(
            np.abs(answer(images) - ours).max() / max(float(np.abs(ours).max()), 1e-12)
        )
    return float(max(differences))


def _safetensors(loaded: "OpenedModel", about: dict[str, Any], path: Path) -> Answer:
    from copy import deepcopy

    import torch
    from safetensors.torch import load_file, save_file

    state = {name: value.contiguous() for name, value in loaded.model.state_dict().items()}
    save_file(state, path, metadata={"format": "pt", KEY: json.dumps(about)})
    again = deepcopy(loaded.model)
    for parameter in again.parameters():
        torch.nn.init.zeros_(parameter)
    again.load_state_dict(load_file(path))

    def answer(images: "Tensor") -> "np.ndarray":
        from vitascope.capture import logits_of

        with torch.inference_mode():
            return logits_of(again(images)).numpy()

    return answer


def _onnx(loaded: "OpenedModel", about: dict[str, Any], path: Path) -> Answer:
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  (torch's exporter needs it)
    except ImportError:
        raise UserError("onnx files need more packages: pip install 'vitascope[export]'") from None
    import torch

    from vitascope.capture import logits_of
    from vitascope.errors import reason

    class Logits(torch.nn.Module):
        """The model with one tensor as its output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = loaded.model

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return logits_of(self.model(images))

    example = torch.zeros(2, *loaded.input_size())
    try:
        with _silent():
            torch.onnx.export(
                Logits().eval(),
                (example,),
                str(path),
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except Exception as error:  # the exporter's own words for what it cannot translate
        raise UserError(f"the model has no ONNX form: {reason(error)}") from None
    graph = onnx.load(str(path))
    graph.metadata_props.append(onnx.StringStringEntryProto(key=KEY, value=json.dumps(about)))
    onnx.save(graph, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def answer(images: "Tensor") -> "np.ndarray":
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        return logits

    return answer


@contextmanager
def _silent() -> "Iterator[None]":
    """Silence the exporter's notes to its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


_FORMS: dict[str, Callable[["OpenedModel", dict[str, Any], Path], Answer]] = {
    "onnx": _onnx,
    "safetensors": _safetensors,
}
