"""Load and convert checkpoints: timm's ConViT, the released ones, and files of either kind.

All three use the same names. The only difference: theirs carry a bias on the positional scores,
`*.pos_proj.bias`, which shifts a whole row before a softmax and so has no effect. Ours has none; it
is dropped on the way in and written as zeros on the way out.

Files are safetensors, or pickles read with ``weights_only=True``, which runs no code from them: a
dict of tensors, or one inside at most two others (``{"model": {...}, "epoch": 3}``). Weights that
are not finite are refused: every number measured with them would be worthless.
"""

import pickle
import struct
import zipfile
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vitascope.atomic import regular
from vitascope.errors import UserError, reason

_BIAS = "pos_proj.bias"
_WRAPPERS = ("model", "state_dict", "model_state_dict", "model_ema")
_COUNTERS = "num_batches_tracked"  # some files leave these out
_DEEPEST = 2  # wrappers around one another
# What torch raises for bytes that are no whole file of weights, besides pickle's own error.
_DAMAGED = (
    SafetensorError,
    zipfile.BadZipFile,
    struct.error,
    RuntimeError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
    AssertionError,
)


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
    """The state dict in a file, unwrapped from training checkpoints."""
    path = Path(path)
    try:
        regular(path)
        if path.suffix == ".safetensors":
            return load_file(path)
        _check_unpacked(path)
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"no weights at {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; give a file of weights") from None
    except pickle.UnpicklingError as error:
        why = str(error).splitlines()[0]  # what follows is advice to read it all the same
        raise UserError(
            f"{path} holds more than tensors, and reading it could run its code, so it is refused "
            f"({why:.200}); save its state dict alone, best as .safetensors"
        ) from None
    except _DAMAGED as error:
        raise UserError(f"{path} is not a file of weights: {reason(error)}") from None
    for _ in range(_DEEPEST):
        inside = state if isinstance(state, Mapping) else {}
        state = next((inside[k] for k in _WRAPPERS if isinstance(inside.get(k), Mapping)), state)
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    ):
        raise UserError(
            f"{path} holds no state dict: a mapping of names to tensors, alone or under "
            f"{', '.join(map(repr, _WRAPPERS))}"
        )
    odd = next((name for name, value in state.items() if not _plain(value)), None)
    if odd is not None:
        raise UserError(
            f"{path}: {odd:.200} is sparse, quantized, nested or without values; save plain tensors"
        )
    return {name.removeprefix("module."): value for name, value in state.items()}


def _plain(value: Tensor) -> bool:
    """Return whether it is a dense strided tensor."""
    packed = value.is_nested or value.is_quantized or value.is_meta
    return not packed and value.layout == torch.strided


def _check_unpacked(path: Path) -> None:
    """Refuse an archive that unpacks to more than its file size: ``torch.save`` does not compress.

    Raises:
        ValueError: If it does; a few megabytes could fill all memory.
    """
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return
        with zipfile.ZipFile(file) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    if size > path.stat().st_size:
        raise ValueError(f"it unpacks to {size:,} bytes; write it again with torch.save")


def check_finite(
    tensors: Iterable[tuple[str, Tensor]], parameters: Container[str], where: str | Path
) -> None:
    """Refuse weights with NaN or infinity; only a buffer may hold -inf, as attention masks do.

    Raises:
        UserError: If there are any, with the name of the first such tensor.
    """
    for name, value in tensors:
        if not (value.is_floating_point() or value.is_complex()):
            continue
        value = value.float() if value.element_size() == 1 else value  # float8 knows no isfinite
        wrong = ~value.isfinite()
        if name not in parameters and not value.is_complex():
            wrong &= ~value.isneginf()
        if wrong.any():
            raise UserError(
                f"{where}: {name} has {int(wrong.sum())} values of {value.numel()} that are not "
                "finite (NaN or infinity); take weights from before the training failed"
            )


def check_weights(model: nn.Module, where: str) -> None:
    """:func:`check_finite` for a model that brought its weights."""
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    check_finite(model.state_dict().items(), parameters, where)


def in_order(state: Mapping[str, Tensor], model: nn.Module, where: str | Path) -> dict[str, Tensor]:
    """Give tensors the names of a timm model whose tensors stand in the same order.

    Raises:
        UserError: If there are more or fewer, or a shape is another but for the classes.
    """
    heads = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    heads = (heads,) if isinstance(heads, str) else tuple(heads)
    named = {n: v for n, v in model.state_dict().items() if not n.endswith(_COUNTERS)}
    given = {n: v for n, v in state.items() if not n.endswith(_COUNTERS)}
    if len(named) != len(given):
        raise UserError(f"{where} has {len(given)} tensors, the model {len(named)}")
    for (name, own), (other, value) in zip(named.items(), given.items(), strict=True):
        skipped = name.rpartition(".")[0] in heads  # classes
        if own.shape[skipped:] != value.shape[skipped:]:
            raise UserError(
                f"{where}: {other} is {tuple(value.shape)}, where the model has {name} of "
                f"{tuple(own.shape)}"
            )
    counters = {n: v for n, v in model.state_dict().items() if n.endswith(_COUNTERS)}
    return {**counters, **dict(zip(named, given.values(), strict=True))}


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
    wrong += [
        f"{name} is complex"
        for name in own.keys() & state.keys()
        if state[name].is_complex() and not own[name].is_complex()
    ]
    wrong += [f"{name} is missing" for name in own.keys() - state.keys()]
    wrong += [f"{name} is not in the model" for name in state.keys() - own.keys()]
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise UserError(f"{path} does not fit the model: {'; '.join(sorted(wrong)[:3])}{more}")
    parameters = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    check_finite(state.items(), parameters, path)
    model.load_state_dict(state)
    return model
