"""Open any model: by name, from a run, a comparison, a file, a hub, or an `nn.Module`.

An opened model has its preprocessing, its classes and the origin of its weights; a session adds
images. Importing this package does not load torch.

    >>> import vitascope
    >>> loaded = vitascope.load("runs/a")  # doctest: +SKIP
    >>> loaded.model(loaded.transform("photo.jpg")[None]), loaded.classes  # doctest: +SKIP
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope.errors import UserError

if TYPE_CHECKING:
    from vitascope.loading.model import OpenedModel, Preprocessing

__all__ = ["OpenedModel", "Preprocessing", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("vitascope.loading.model"), name)
    raise AttributeError(f"module 'vitascope.loading' has no attribute {name!r}")


def load(run: str | Path, *, device: str | None = None, by_order: bool = False) -> "OpenedModel":
    """Open a trained model, with its image transform and class names.

    Args:
        run: The folder of a run, or of a comparison: then the run that it recommends; or a model's
            name with a file of weights, NAME@FILE.
        device: cpu, cuda or mps; a GPU if there is one when left out.
        by_order: The tensors of the file have other names, and stand in the same order.

    Raises:
        UserError: If there is no finished run, or the weights do not fit.
    """
    from vitascope.loading.opening import open_model, split_file

    if not Path(run).is_dir() and split_file(str(run))[1] is None:
        raise UserError(
            f"there is no folder {run}; give the folder of a finished run, or NAME@FILE"
        )
    return open_model(str(run), device=device, by_order=by_order)
