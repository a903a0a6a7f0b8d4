"""Parameters of a test, some of which `make slow` tries alone."""

from collections.abc import Container, Iterable

import pytest


def slow_if(names: Iterable[str], long: Container[str]) -> list:
    """The names, marked slow where they are among the long ones."""
    return [pytest.param(name, marks=pytest.mark.slow if name in long else ()) for name in names]
