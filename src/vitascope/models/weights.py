"""Weights in and out: timm's ConViT, the released checkpoints, and files of either kind.

All three use the same names. The only difference: theirs carry a bias on the positional scores,
`*.pos_proj.bias`, which shifts a whole row before a softmax and so has no effect. Ours has none; it
is dropped on the way in and written as zeros on the way out.

Files are safetensors, or pickles read with ``weights_only=True``, which runs no code from them.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from vitascope.errors import UserError
from vitascope.record import atomic_write

__all__ = ["from_timm", "load_weights", "read_state", "save_weights", "to_timm"]

_BIAS = "pos_proj.bias"
_WRAPPERS = ("model", "state_dict", "model_state_dict", "model_ema")


def from_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """timm's ConViT state dict in our terms."""
    return {name: value for name, value in state.items() if not name.endswith(_BIAS)}


def to_timm(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our ConViT state dict in timm's terms."""
    out = dict(state)
    for name, value in state.items():
        if name.endswith("pos_proj.weight"):
            out[name.removesuffix("weight") + "bias"] = value.new_zeros(len(value))
    return out


def read_state(path: str | Path) -> dict[str, Tensor]:
    """The state dict in a file, out of whatever training wrapped around it."""
    path = Path(path)
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"no weights at {path}") from None
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path} holds more than tensors, and reading it could run its code, so it is refused "
            f"({reason}); save its state dict alone, best as .safetensors"
        ) from None
    except (SafetensorError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise UserError(f"{path} is not a file of weights: {error}") from None
    while isinstance(state, Mapping) and (key := next((k for k in _WRAPPERS if k in state), None)):
        state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise UserError(f"{path} holds no state dict: a mapping of names to tensors")
    return {name.removeprefix("module."): value for name, value in state.items()}


def load_weights(model: nn.Module, path: str | Path) -> nn.Module:
    """Load a file of ours, timm's or the released ConViT's into ``model``, all of it or nothing."""
    state = read_state(path)
    own = model.state_dict()
    state = {
        name: value for name, value in state.items() if not name.endswith(_BIAS) or name in own
    }
    wrong = [
        f"{name} is {tuple(state[name].shape)} in the file and {tuple(own[name].shape)} here"
        for name in own.keys() & state.keys()
        if state[name].shape != own[name].shape
    ]
    wrong += [f"{name} is missing" for name in own.keys() - state.keys()]
    wrong += [f"{name} is not in the model" for name in state.keys() - own.keys()]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(f"{path} does not fit the model: {'; '.join(sorted(wrong)[:3])}{more}")
    model.load_state_dict(state)
    return model


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Write the model's state dict as safetensors, atomically."""
    state = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    with atomic_write(path) as stream:
        stream.write(save(state))
