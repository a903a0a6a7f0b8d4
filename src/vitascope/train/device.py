"""The device that a name stands for."""

import torch

from vitascope.errors import UserError

__all__ = ["device_of"]


def device_of(name: str | None) -> torch.device:
    """The device called ``name``; the best there is for None.

    >>> device_of("cpu")
    device(type='cpu')

    Raises:
        UserError: If there is no such device here, or it cannot compute ("meta").
    """
    gpus, mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    if name is None:
        return torch.device("cuda" if gpus else "mps" if mps else "cpu")
    there = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    there += ["mps"] if mps else []
    if name not in there:
        raise UserError(f"no device {name!r} here; there is {', '.join(there)}")
    return torch.device(name)
