"""Resume file of a long measurement, written after every step.

One file holds the question (settings, and fingerprints of weights and batches), a row of numbers
for every finished step, and the state that the next step needs. A file with another question is an
error; it is not overwritten.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from torch import Tensor

from vitascope.errors import UserError
from vitascope.record import atomic_write

Row = Mapping[str, Any]  # numbers and arrays by name, the same names and shapes in every row


def fingerprint(tensors: Iterable[Tensor]) -> str:
    """A short hash of values, shapes and types.

    >>> import torch
    >>> fingerprint([torch.zeros(2)]) == fingerprint([torch.zeros(3)])
    False
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        if tensor.is_floating_point():
            tensor = tensor.double()  # numpy knows no bfloat16
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


class ResumeFile:
    """Finished rows in order; with a path they are kept there.

    Args:
        path: The file; None keeps everything in memory.
        question: Settings and fingerprints that identify the measurement, in JSON types.
    """

    def __init__(self, path: str | Path | None, question: Mapping[str, Any]):
        self.path = None if path is None else Path(path)
        self.question = json.dumps(question, sort_keys=True)
        self.rows: list[Row] = []
        self.carry: np.ndarray | None = None
        if self.path is not None and self.path.exists():
            self._load(self.path)

    def _load(self, path: Path) -> None:
        try:
            with np.load(path, allow_pickle=False) as stored:
                columns = {name: stored[name] for name in stored.files}
            asked = str(columns.pop("question"))
            carry = columns.pop("carry")
        except (ValueError, KeyError, OSError, EOFError, BadZipFile) as error:
            raise UserError(f"{path} does not hold a measurement to go on with: {error}") from None
        if asked != self.question:
            old, new = json.loads(asked), json.loads(self.question)
            differ = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
            raise UserError(
                f"{path} answers another question: {', '.join(differ)} differ; "
                "give another file or remove it"
            )
        count = len(next(iter(columns.values()), ()))
        self.rows = [{name: column[i] for name, column in columns.items()} for i in range(count)]
        self.carry = carry if carry.size else None

    def add(self, row: Row, carry: np.ndarray | None = None) -> None:
        """Add a finished step; ``carry`` is the state that the next one needs."""
        self.rows.append(row)
        self.carry = carry
        if self.path is not None:
            with atomic_write(self.path) as stream:
                np.savez(stream, allow_pickle=False, **self._stored())

    def _stored(self) -> dict[str, Any]:
        carry = np.zeros(0) if self.carry is None else self.carry
        return {"question": np.array(self.question), "carry": carry, **self.columns()}

    def columns(self) -> dict[str, np.ndarray]:
        """All rows, stacked."""
        return {name: np.stack([np.asarray(r[name]) for r in self.rows]) for name in self.rows[0]}
