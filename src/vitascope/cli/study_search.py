"""The studies with options of their own: ``vitascope study buildup`` and ``study spectra``."""

from collections.abc import Callable
from typing import Any

from vitascope.cli.options import show
from vitascope.requests.buildup import Buildup
from vitascope.requests.spectra import Spectra


def _buildup(request: Buildup) -> None:
    from vitascope.answers.study import run_buildup

    show(run_buildup(request), as_json=request.json, quiet=request.quiet)


def _spectra(request: Spectra) -> None:
    from vitascope.answers.study import run_spectra

    show(run_spectra(request), as_json=request.json, quiet=request.quiet)


STUDIES: dict[str, tuple[type[Any], Callable[[Any], None]]] = {  # request, and what answers it
    "buildup": (Buildup, _buildup),
    "spectra": (Spectra, _spectra),
}
