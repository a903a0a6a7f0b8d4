"""The Python functions: each takes a command's options as arguments and returns its result.

    >>> import vitascope
    >>> result = vitascope.inspect(
    ...     "convit_micro", data="digits", measures="gates", images=8, quiet=True
    ... )
    >>> result.record.values["layers"]
    ['blocks.0.attn', 'blocks.1.attn', 'blocks.2.attn']

``vitascope.compare``, ``train``, ``inspect``, ``evaluate``, ``study``, ``predict``, ``export`` and
``load`` are these functions. The command line and they are made from the same options, so both give
the same records. Torch is loaded when one is called.
"""

import inspect as signatures
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from vitascope.commands import buildup, spectra
from vitascope.commands import compare as compare_command
from vitascope.commands import evaluate as evaluate_command
from vitascope.commands import inspect as inspect_command
from vitascope.commands import study as study_command
from vitascope.commands import train as train_command
from vitascope.commands.parsing import from_python, option_texts, typed_line
from vitascope.commands.result import Result
from vitascope.deploy.export import Exported, export
from vitascope.deploy.prediction import Prediction, predict
from vitascope.errors import UserError
from vitascope.loading import load
from vitascope.settings import recorded_as

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Exported",
    "Prediction",
    "Result",
    "compare",
    "evaluate",
    "export",
    "inspect",
    "load",
    "predict",
    "study",
    "train",
]

P = ParamSpec("P")
R = TypeVar("R")  # a result, or None in the other processes of a distributed run


def _of_options(
    name: str, kind: Callable[P, Any], run: Callable[[Any], Result]
) -> Callable[P, Result]:
    """The function of a command whose arguments are all options."""

    def function(*args: P.args, **options: P.kwargs) -> Result:
        if args:
            raise UserError(f"{name} takes its arguments by name: {name}(data=...)")
        return _answered(run, kind, name, options)

    return _documented(function, name, kind)


def _of_model(
    name: str, kind: Callable[Concatenate[str, P], Any], run: Callable[..., R]
) -> "Callable[Concatenate[str | Path | nn.Module, P], R]":
    """The function of a command about a model: its name, its folder, or the model itself."""

    def function(model: "str | Path | nn.Module", /, *args: P.args, **options: P.kwargs) -> R:
        if args:
            raise UserError(f"{name} takes all arguments but the model by name: {name}(model, ...)")
        data = options.get("data")
        if name in ("inspect", "evaluate") and not isinstance(data, str | Path | None):
            from vitascope.data.sources.given import GivenImages

            options["data"] = GivenImages.of(data)
        if isinstance(model, str | Path):
            return _answered(run, kind, name, {"model": str(model), **options})
        if "model" not in signatures.signature(run).parameters:
            raise UserError(f"{name} takes a model's name or a run's folder, not {model!r:.40}")
        from torch import nn

        if not isinstance(model, nn.Module):
            raise UserError(f"a model is a name, a folder or a torch.nn.Module, not {model!r:.40}")
        options_given = {"model": type(model).__name__, **options}
        return _answered(partial(run, model=model), kind, name, options_given)

    return _documented(function, name, kind)


def _documented(function: Callable[P, R], name: str, kind: Any) -> Callable[P, R]:
    """Give a function the name, the parameters and the help of a command."""
    parameters = _parameters(kind, model="str | Path | nn.Module")
    function.__name__ = function.__qualname__ = name
    _sign(function, parameters)
    about = (kind.__doc__ or "").partition("Examples:")[0].rstrip()
    function.__doc__ = f"{about}\n\n{_described(kind)}"
    return function


def _described(kind: Any) -> str:
    """The help of a command's options as the arguments of a docstring."""
    lines = [f"        {name}: {text}".rstrip() for name, text in option_texts(kind).items()]
    return "\n".join(["    Args:", *lines]) + "\n"


def _parameters(kind: Any, **hints: Any) -> list[signatures.Parameter]:
    """The fields of a command's options as parameters."""
    annotations = get_type_hints(kind) | hints
    parameters = signatures.signature(kind).parameters
    return [
        parameters[name].replace(annotation=annotations.get(name, Any))
        for name in option_texts(kind)
    ]


def _sign(function: Any, parameters: list[signatures.Parameter]) -> None:
    """Give a function the parameters that editors complete and ``help()`` shows."""
    function.__signature__ = signatures.Signature(parameters, return_annotation=Result)


def _answered(
    run: Callable[[Any], Any], kind: Any, command: str, options: Mapping[str, Any]
) -> Any:
    """Run a command; records keep the line that asks for the same."""
    made = from_python(kind, options)
    with recorded_as(typed_line(command, made)):
        return run(made)


compare = _of_options("compare", compare_command.Compare, compare_command.run)
"""Find out which model suits your images: the options of `vitascope compare`, by name."""

inspect = _of_model("inspect", inspect_command.Inspect, inspect_command.run)
"""Look inside a model, given by name, folder or itself: the options of `vitascope inspect`."""

train = _of_model("train", train_command.Train, train_command.run)
"""Train a model, given by name: the options of `vitascope train`, by name."""

evaluate = _of_model("evaluate", evaluate_command.Evaluate, evaluate_command.run)
"""Measure how good a model is, given by name or folder: the options of `vitascope evaluate`."""


def study(name: str, **options: Any) -> Result:
    """Answer a question of a paper, or run the searches ``buildup`` and ``spectra``.

    The arguments are the options of `vitascope study NAME`.
    """
    if not isinstance(name, str):
        raise UserError(f"the study's name is a text, not {name!r:.80}; `vitascope study --list`")
    if name == "buildup":
        answer: Result = _answered(buildup.run, buildup.Buildup, f"study {name}", options)
    elif name == "spectra":
        answer = _answered(spectra.run, spectra.Spectra, f"study {name}", options)
    else:
        run = partial(study_command.run, name)
        answer = _answered(run, study_command.StudyOptions, f"study {name}", options)
    return answer


_NAME = signatures.Parameter("name", signatures.Parameter.POSITIONAL_OR_KEYWORD, annotation=str)
study.__doc__ = f"{(study.__doc__ or '').rstrip()}\n\n{_described(study_command.StudyOptions)}"
_sign(study, [_NAME, *_parameters(study_command.StudyOptions)])
