"""The result of an instrument, and the record that is made from it.

A result is a frozen dataclass, and its record follows from its fields:

* A number, a name, a tuple or a mapping is a value of the record, under the name of the field.
* An array is an array of the record. Arrays by layer or unit are called ``FIELD/LAYER``, or
  ``LAYER`` where only one field has arrays by layer. Empty ones are not stored.
* With ``rows="layers"`` the keys of the first mapping are the value ``layers``, and a mapping from
  layers to values is a list in their order. ``left_out`` and ``kept``, names with the reason why
  they were not measured, stay mappings.
* A field made with :func:`per_image` is the array ``images/FIELD``.
* ``seed``, ``seconds`` and ``settings`` (or ``config``) are those of the record.

An instrument overrides :meth:`InstrumentResult.summary` to add what follows from its fields, such
as means over heads.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, get_args

import numpy as np

from vitascope.record import Record, plain

__all__ = ["InstrumentResult", "per_image"]

_REASONS = ("left_out", "kept")  # mappings from what was not measured to why
_OF_RECORD = ("seed", "seconds", "settings", "config")


def per_image(dtype: type[np.generic]) -> Any:
    """Return a field with a number for every image, which comparisons pair; None if unknown."""
    return field(default=None, compare=False, repr=False, metadata={"per_image": dtype})


@dataclass(frozen=True)
class InstrumentResult:
    """Base of all results: ``class Entropy(InstrumentResult, kind="entropy", rows="layers")``."""

    record_kind: ClassVar[str]
    record_rows: ClassVar[str | None] = None  # "layers" or "units": the keys of the first mapping

    def __init_subclass__(cls, kind: str | None = None, rows: str | None = None) -> None:
        if kind is not None:
            cls.record_kind = kind
        if rows is not None:
            cls.record_rows = rows

    def summary(self) -> dict[str, Any]:
        """Return values of the record besides the fields, or in place of a field."""
        return {}

    def record_values(self) -> dict[str, Any]:
        """Return the values of the record: the summary, and the fields that hold no arrays."""
        values: dict[str, Any] = {}
        names: list[str] = []
        if self.record_rows is not None:
            every = [getattr(self, each.name) for each in fields(self)]
            names = list(next(value for value in every if isinstance(value, Mapping)))
            values[self.record_rows] = names
        values |= self.summary()
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in values or each.name in _OF_RECORD or _has_arrays(each.type):
                continue
            if self.record_rows and isinstance(value, Mapping) and each.name not in _REASONS:
                value = [value[name] for name in names if name in value]
            values[each.name] = value
        return values

    def record_arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the record."""
        arrays: dict[str, np.ndarray] = {}
        named = [each.name for each in fields(self) if each.type == Mapping[str, np.ndarray]]
        for each in fields(self):
            value = getattr(self, each.name)
            if value is None or not _has_arrays(each.type):
                continue
            if "per_image" in each.metadata:
                by_name = value if isinstance(value, Mapping) else {each.name: value}
                dtype = each.metadata["per_image"]
                arrays |= {f"images/{key}": part.astype(dtype) for key, part in by_name.items()}
            elif isinstance(value, Mapping):
                prefix = f"{each.name}/" if len(named) > 1 else ""
                arrays |= {f"{prefix}{key}": part for key, part in value.items() if part.size}
            elif isinstance(value, np.ndarray):
                arrays[each.name] = value
        return arrays

    def to_record(self) -> Record:
        """Return the record of this result, to be saved or reported."""
        config = dict(getattr(self, "settings", None) or getattr(self, "config", {}))
        return Record(
            kind=self.record_kind,
            values=plain(self.record_values()),
            arrays=self.record_arrays(),
            config=config,
            seed=getattr(self, "seed", config.get("seed")),
            seconds=getattr(self, "seconds", None),
        )


def _has_arrays(hint: Any) -> bool:
    """Return whether a field of this type holds arrays.

    >>> _has_arrays(np.ndarray | None), _has_arrays(Mapping[str, np.ndarray]), _has_arrays(float)
    (True, True, False)
    """
    return hint is np.ndarray or any(map(_has_arrays, get_args(hint)))
