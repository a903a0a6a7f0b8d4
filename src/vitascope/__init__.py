"""Vitascope: vision models between a convolution and a transformer, and how they work.

The public names are functions of the packages inside; docs/architecture.md shows how these depend
on each other. Importing vitascope is fast: torch is loaded with the first name that needs it.

    >>> import vitascope
    >>> model = vitascope.create_model("convit_micro", num_classes=10)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitascope import _imports

if TYPE_CHECKING:
    from vitascope import capture, data, layers, measure, models, stats, training
    from vitascope.commands.python import (
        compare,
        evaluate,
        export,
        inspect,
        load,
        predict,
        study,
        train,
    )
    from vitascope.inspection.attention_watch import AttentionWatch
    from vitascope.layers import attention_from_convolution
    from vitascope.layers.context_broadcasting.broadcasting import broadcast
    from vitascope.models import convit_from_resnet, create_model, list_models
    from vitascope.overlay import show

__version__ = "0.2.0"
__all__ = [
    "AttentionWatch",
    "attention_from_convolution",
    "broadcast",
    "capture",
    "compare",
    "convit_from_resnet",
    "create_model",
    "data",
    "evaluate",
    "export",
    "inspect",
    "layers",
    "list_models",
    "load",
    "measure",
    "models",
    "predict",
    "show",
    "stats",
    "study",
    "train",
    "training",
]

_HOME = {
    "AttentionWatch": "vitascope.inspection.attention_watch",
    "attention_from_convolution": "vitascope.layers",
    "broadcast": "vitascope.layers.context_broadcasting.broadcasting",
    "compare": "vitascope.commands.python",
    "convit_from_resnet": "vitascope.models",
    "create_model": "vitascope.models",
    "evaluate": "vitascope.commands.python",
    "export": "vitascope.commands.python",
    "inspect": "vitascope.commands.python",
    "list_models": "vitascope.models",
    "load": "vitascope.commands.python",
    "predict": "vitascope.commands.python",
    "show": "vitascope.overlay",
    "study": "vitascope.commands.python",
    "train": "vitascope.commands.python",
}

_imports.install()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in __all__:
        return import_module(f"vitascope.{name}")
    raise AttributeError(f"module 'vitascope' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
