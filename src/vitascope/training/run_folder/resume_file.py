"""The state of a run on disk: named tensors as safetensors, the rest as JSON, nothing pickled.

    checkpoint/step-000000120/{model,optimizer,average}.safetensors, state.json

A checkpoint is written into a hidden folder beside its place, flushed to the disk and renamed; only
then is the last but one removed. So after ``kill -9`` at any moment, or on a full disk, the last
good one is there. ``state.json`` lists the size and CRC-32 of every file, and has a CRC-32 of its
own: a damaged checkpoint is skipped for the one before it.
"""

import json
import os
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitascope.atomic import flush, regular, sweep
from vitascope.errors import UserError, reason
from vitascope.training.run_folder.files import explain_write_errors, save_tensors, size_of

_KEEP = 2


@dataclass(frozen=True)
class Checkpoint:
    """What a run needs to go on: tensors by part and name, and the values beside them."""

    step: int  # updates done
    tensors: Mapping[str, Mapping[str, Tensor]]  # part ("model", "optimizer", ...) -> name -> value
    values: Mapping[str, Any] = field(default_factory=dict)  # what JSON can hold


def save(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write ``checkpoint`` under ``folder`` as a whole; keep the one before it, drop older ones."""
    target = folder / f"step-{checkpoint.step:09d}"
    part = folder / f".writing-{target.name}"
    needed = sum(size_of(tensors) for tensors in checkpoint.tensors.values())
    with explain_write_errors(target, needed):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        try:
            files = {}
            for name, tensors in checkpoint.tensors.items():
                save_tensors(part / f"{name}.safetensors", tensors)
                files[f"{name}.safetensors"] = _size_and_crc(part / f"{name}.safetensors")
            state = {"step": checkpoint.step, "files": files, "values": dict(checkpoint.values)}
            signed = {"crc": _signature(state), **state}
            (part / "state.json").write_text(json.dumps(signed), encoding="utf-8")
            flush(part / "state.json")
            flush(part)
            shutil.rmtree(target, ignore_errors=True)
            os.rename(part, target)
            flush(folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    for old in _steps(folder)[_KEEP:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def latest(folder: Path) -> tuple[int | None, list[str]]:
    """Step of the newest whole checkpoint, and a message for every damaged one passed over.

    Raises:
        UserError: If there are checkpoints and none is whole.
    """
    found = _steps(folder)
    messages = []
    for path in found:
        step = int(path.name.removeprefix("step-"))
        try:
            load(folder, step)
        except (OSError, ValueError, RecursionError, SafetensorError) as error:
            messages.append(
                f"checkpoint {path.name} is damaged ({reason(error)}): trying the one before"
            )
        else:
            return step, messages
    if found:
        raise UserError(
            f"no whole checkpoint in {folder}: {messages[-1].rsplit(':', 1)[0]}; start again in "
            "another folder, or put a good copy back"
        )
    return None, messages


def load(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step, checked against what was written."""
    path = folder / f"step-{step:09d}"
    state = _state(path / "state.json")
    if state["step"] != step:
        raise ValueError(f"state.json is that of step {state['step']}")
    for name, expected in state["files"].items():
        if _size_and_crc(path / name) != expected:
            raise ValueError(f"{name} is not what was written")
    tensors = {name.removesuffix(".safetensors"): load_file(path / name) for name in state["files"]}
    return Checkpoint(step=step, tensors=tensors, values=state["values"])


def _state(path: Path) -> dict[str, Any]:
    """``state.json``, if it is what was written (the first version did not sign it)."""
    state = json.loads(regular(path).read_text(encoding="utf-8"))
    kinds = {"step": int, "files": dict, "values": dict}
    if not isinstance(state, dict) or any(
        not isinstance(state.get(name), kind) for name, kind in kinds.items()
    ):
        raise ValueError("state.json is no state of a run")
    crc = state.pop("crc", None)
    if crc is not None and crc != _signature(state):
        raise ValueError("state.json is not what was written")
    return state


def _signature(state: Mapping[str, Any]) -> int:
    """CRC-32 of the JSON of a state, which reading and writing again does not change."""
    return zlib.crc32(json.dumps(state).encode())


def drop_after(folder: Path, step: int) -> None:
    """Remove checkpoints later than ``step``: they are damaged."""
    for path in _steps(folder):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path, ignore_errors=True)


def clean(folder: Path) -> None:
    """Remove what a killed run left half written in a run's folder."""
    for left in folder.glob("checkpoint/.writing-*"):
        shutil.rmtree(left, ignore_errors=True)
    for place in (folder, folder / "weights"):
        sweep(place)
        for pattern in (".*.safetensors.part", ".tmp??????"):  # as version 0.1 left them
            for left in place.glob(pattern):
                left.unlink(missing_ok=True)


def _steps(folder: Path) -> list[Path]:
    return sorted((p for p in folder.glob("step-*") if p.is_dir()), reverse=True)


def _size_and_crc(path: Path) -> list[int]:
    """Size and CRC-32 of a file."""
    size = crc = 0
    with regular(path).open("rb") as stream:
        while block := stream.read(1 << 20):
            size, crc = size + len(block), zlib.crc32(block, crc)
    return [size, crc]
