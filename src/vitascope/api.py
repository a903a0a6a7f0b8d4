"""Vitascope from Python: the command line's words as keyword arguments, a result to keep.

    >>> from vitascope import api
    >>> words = {"data": "digits", "measures": ["gates"], "images": 8, "quiet": True}
    >>> found = api.inspect("convit_micro", **words)
    >>> print(str(found).splitlines()[1].split()[:4])
    ['gates', 'share', 'of', 'position,']

Every function makes a request (:mod:`vitascope.requests`), as the command line does from what is
typed, and has it answered by :mod:`vitascope.answers`, so both give the same records.
``vitascope.compare``, ``inspect``, ``evaluate``, ``study``, ``predict``, ``export`` and ``load``
are these functions. Torch is loaded when one is called.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitascope.answers.compare import run_compare
from vitascope.answers.evaluate import run_evaluate
from vitascope.answers.inspect import run_inspect
from vitascope.answers.result import Result
from vitascope.answers.study import run_buildup, run_spectra, study_with_page
from vitascope.deploy.export import Exported, export
from vitascope.deploy.loading import Loaded, load
from vitascope.deploy.prediction import Prediction, predict
from vitascope.errors import UserError
from vitascope.requests.buildup import Buildup
from vitascope.requests.compare import Compare
from vitascope.requests.evaluate import Evaluate
from vitascope.requests.from_python import from_python, typed_line
from vitascope.requests.inspect import Inspect
from vitascope.requests.spectra import Spectra
from vitascope.requests.study import StudyRequest
from vitascope.settings import recorded_as

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Exported",
    "Loaded",
    "Prediction",
    "Result",
    "compare",
    "evaluate",
    "export",
    "inspect",
    "load",
    "predict",
    "study",
]


def compare(**words: Any) -> Result:
    """Which model suits these images? The arguments are the options of ``vitascope compare``."""
    return _answered(run_compare, Compare, "compare", words)


def inspect(model: "str | Path | nn.Module", **words: Any) -> Result:
    """Look inside a model, by its name or the model itself.

    The other arguments are the options of ``vitascope inspect``.
    """
    if isinstance(model, str | Path):
        return _answered(run_inspect, Inspect, "inspect", {"model": str(model), **words})
    from torch import nn

    if not isinstance(model, nn.Module):
        raise UserError(f"a model is a name, a folder or a torch.nn.Module, not {model!r:.40}")
    run = partial(run_inspect, model=model)
    return _answered(run, Inspect, "inspect", {"model": type(model).__name__, **words})


def evaluate(model: str | Path, **words: Any) -> Result:
    """How good is a model? The arguments are the options of ``vitascope evaluate``."""
    if not isinstance(model, str | Path):
        raise UserError(f"evaluate takes a model's name or a run's folder, not {model!r:.40}")
    return _answered(run_evaluate, Evaluate, "evaluate", {"model": str(model), **words})


def study(name: str, **words: Any) -> Result:
    """Answer a question of a paper. The arguments are the options of ``vitascope study NAME``."""
    if name == "buildup":
        return _answered(run_buildup, Buildup, f"study {name}", words)
    if name == "spectra":
        return _answered(run_spectra, Spectra, f"study {name}", words)
    return _answered(partial(study_with_page, name), StudyRequest, f"study {name}", words)


def _answered(
    run: Callable[[Any], Result], kind: type[Any], command: str, words: Mapping[str, Any]
) -> Result:
    """Make the request and answer it; records keep the command that asks for the same."""
    request = from_python(kind, words)
    with recorded_as(typed_line(command, request)):
        return run(request)
