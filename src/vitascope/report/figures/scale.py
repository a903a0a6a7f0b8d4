"""From numbers to places on an axis, and the round numbers to write beside it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class AxisScale:
    """An axis from ``low`` to ``high``; ``at`` gives 0 at the one and 1 at the other."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Where ``value`` lies.

        >>> AxisScale(1, 100, log=True).at(10)
        0.5
        """
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @classmethod
    def around(
        cls,
        values: Iterable[float],
        *,
        log: bool = False,
        pad: float = 0.06,
        least: float = 1.0,
        floor: float = -math.inf,
        ceiling: float = math.inf,
    ) -> "AxisScale":
        """The values with ``pad`` of their range on each side, at least ``least`` wide.

        For a logarithmic axis ``least`` is a factor. ``floor`` and ``ceiling`` bound the result
        (0 and 100 for percent) where the values themselves keep to them.
        """
        finite = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
        if not finite:
            return cls(1, 10, True) if log else cls(0, 1)
        low, high = min(finite), max(finite)
        if log:
            inner = cls.around(map(math.log, finite), pad=pad, least=math.log(least))
            return cls(math.exp(inner.low), math.exp(inner.high), True)
        missing = max(0.0, least - (high - low)) / 2
        margin = pad * max(high - low, least)
        down, up = low - missing - margin, high + missing + margin
        return cls(max(down, min(floor, low)), min(up, max(ceiling, high)))


def ticks(scale: AxisScale, number: int = 5) -> list[float]:
    """About ``number`` round values within the scale.

    >>> ticks(AxisScale(61.2, 98.7), 4)
    [70.0, 80.0, 90.0]
    >>> ticks(AxisScale(80, 3000, log=True))
    [100.0, 200.0, 500.0, 1000.0, 2000.0]
    """
    if scale.log:
        found = _log_ticks(scale, (1, 2, 5))
        found = found if len(found) <= number + 1 else _log_ticks(scale, (1, 3))
        found = found if len(found) <= number + 1 else _log_ticks(scale, (1,))
        if len(found) >= 2:
            return found[:: math.ceil(len(found) / (number + 1))]
    rough = (scale.high - scale.low) / max(number, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((1, 2, 5, 10), key=lambda factor: abs(math.log(factor * power / rough))) * power
    first, last = math.ceil(scale.low / step - 1e-9), math.floor(scale.high / step + 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return [round(place * step, digits) + 0.0 for place in range(first, last + 1)]


def _log_ticks(scale: AxisScale, factors: tuple[int, ...]) -> list[float]:
    decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
    values = [factor * 10.0**decade for decade in decades for factor in factors]
    return [value for value in values if scale.low <= value <= scale.high]


def count(value: float) -> str:
    """A whole number with thousands apart.

    >>> count(1437)
    '1,437'
    """
    return f"{value:,.0f}"


def short(value: float, digits: int | None = None) -> str:
    """A number in at most four characters or so; ``digits`` keeps that many after the point.

    >>> [short(value) for value in (0.25, 20, 1500, 261_402, 5.4e9)]
    ['0.25', '20', '1.5k', '261k', '5.4G']
    >>> short(4.96e6, 1), short(3e6, 1)
    ('5.0M', '3.0M')
    """
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 0.9995 * size:
            scaled = value / size
            if abs(scaled) >= 99.95:
                return f"{scaled:.0f}{letter}"
            return f"{scaled:.3g}{letter}" if digits is None else f"{scaled:.{digits}f}{letter}"
    return f"{value:.3g}"
