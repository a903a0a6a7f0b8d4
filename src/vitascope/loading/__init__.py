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
    from torch import nn

    from vitascope.loading.model import OpenedModel, Preprocessing

__all__ = ["OpenedModel", "Preprocessing", "load"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("vitascope.loading.model"), name)
    raise AttributeError(f"module 'vitascope.loading' has no attribute {name!r}")


def load(
    model: "str | Path | nn.Module", *, device: str | None = None, by_order: bool = False
) -> "OpenedModel":
    """Open a trained model, with its image transform and class names.

    Args:
        model: The folder of a run, or of a comparison: then the run that it recommends; a model's
            name with a file of weights, NAME@FILE; or a model whose ``pretrained_cfg`` says how its
            images are prepared, as timm's do.
        device: cpu, cuda or mps; a GPU if there is one when left out.
        by_order: The tensors of the file have other names, and stand in the same order.

    Raises:
        UserError: If there is no finished run, or the weights do not fit.
    """
    from vitascope.loading.opening import open_model, split_file

    if not isinstance(model, str | Path):
        from vitascope.capture.input_check import require_module

        require_module(model)
        opened = open_model(model, device=device)
        how = opened.preprocessing
        if how.size is None or how.mean is None or how.std is None:
            raise UserError(
                f"{opened.name} does not say how its images are prepared; give it a pretrained_cfg "
                "with input_size, mean and std, as timm's models have"
            )
        return opened
    if not Path(model).is_dir() and split_file(str(model))[1] is None:
        raise UserError(
            f"there is no folder {model}; give the folder of a finished run, or NAME@FILE"
        )
    return open_model(str(model), device=device, by_order=by_order)
