"""Import hooks: repair torchvision without operators, enter our models in timm's registry.

Nothing here imports torch. A finder on ``sys.meta_path`` acts on two imports:

* ``torchvision._meta_registrations``. PyPI's torchvision is a CUDA build; next to a CPU-only
  torch its compiled operators do not load, and importing torchvision (so timm, so most vision
  code) dies with "operator torchvision::nms does not exist". When the operators are missing, and
  only then, ``nms`` and ``qnms`` are declared without an implementation so that the import goes
  through. Calling them still fails: decode JPEGs with pillow, and run detection elsewhere.
* ``timm``. Once it is loaded, our models are entered in its registry under ``vs_*``, so that
  ``import vitascope, timm; timm.create_model("vs_convit_tiny")`` works.

So vitascope must be imported first. A ``.pth`` file in the environment would lift that, but it
runs in every program there, also in those that never asked for us, and Python is giving up such
lines (PEP 829). Builds of torch and torchvision that fit each other need none of this.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_libraries: list[Any] = []  # a torch.library.Library takes its operators with it when it dies


def declare_missing_operators() -> None:
    """Give ``torchvision::nms`` and ``::qnms`` a signature if its own operators did not load."""
    import torch

    extension = sys.modules["torchvision.extension"]
    if extension._has_ops() or _libraries:
        return
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _libraries.append(library)


def register_models() -> None:
    """Enter our models in timm's registry."""
    importlib.import_module("vitascope.models")


class _Finder(MetaPathFinder):
    """Finds nothing itself: acts before one import and after another."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torchvision._meta_registrations":
            declare_missing_operators()
        elif name == "timm":
            return _and_then(PathFinder.find_spec(name, path, target), register_models)
        return None


def _and_then(spec: ModuleSpec | None, action: Callable[[], None]) -> ModuleSpec | None:
    """Make loading ``spec`` end with ``action``."""
    if spec is None or spec.loader is None:
        return spec
    execute = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        action()

    spec.loader.exec_module = exec_module  # type: ignore[method-assign]
    return spec


def install() -> None:
    """Install the finder; modules that are already imported are handled at once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    if "timm" in sys.modules and hasattr(sys.modules["timm"], "create_model"):
        register_models()
