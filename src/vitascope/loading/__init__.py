"""Open any model: by name, from a run, a comparison, a file, a hub, or an `nn.Module`.

An opened model has its preprocessing, its classes and the origin of its weights; a session adds
images. Names are loaded when first used, so that importing this package does not load torch.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from vitascope.errors import UserError

if TYPE_CHECKING:
    from vitascope.loading.model import OpenedModel

__all__ = ["load"]


def load(run: str | Path, *, device: str | None = None) -> "OpenedModel":
    """Open the model of a finished run, with its image transform and class names.

    Args:
        run: The folder of a run, or of a comparison: then the run that it recommends.
        device: cpu, cuda or mps; a GPU if there is one when left out.

    Raises:
        UserError: If there is no finished run.
    """
    from vitascope.loading.opening import open_model

    if not Path(run).is_dir():
        raise UserError(f"there is no folder {run}; give the folder of a finished run")
    return open_model(str(run), device=device)
