"""Models of equal cost: widths chosen so that all take the multiply-adds of the first.

Models of equal size may cost very different amounts: at 64 pixels ``resnet_micro`` takes about
eight times the multiply-adds of ``vit_micro``. Here the width of every other model is changed until
its multiply-adds for one image agree within a tenth. Depth, heads and the shape of the stages stay.
"""

from collections.abc import Callable
from inspect import signature
from typing import Any

from vitascope.data import Dataset
from vitascope.errors import UserError
from vitascope.loading.model_sizes import count
from vitascope.loading.opening import build
from vitascope.models.registry import OURS
from vitascope.models.suffix import read_name

TOLERANCE = 0.1
WIDEST = 16  # times the usual width


def matched_widths(names: tuple[str, ...], dataset: Dataset) -> dict[str, dict[str, Any]]:
    """The arguments of each model but the first that give it the first one's multiply-adds.

    Raises:
        UserError: If a model has no width to set, or no width comes near enough.
    """

    def cost(name: str, arguments: dict[str, Any]) -> int:
        return count(build(name, dataset, **arguments).model, dataset.train.size)[1]

    first, *others = names
    wanted = cost(first, {})
    return {name: _matched(name, wanted, cost) for name in others}


def _matched(name: str, wanted: int, cost: Callable[[str, dict[str, Any]], int]) -> dict[str, Any]:
    made, usual = _width(name)
    low, high = 1, WIDEST * usual
    while high - low > 1:  # cost grows with the width
        middle = (low + high) // 2
        low, high = (middle, high) if cost(name, made(middle)) <= wanted else (low, middle)
    near = min((low, high), key=lambda width: abs(cost(name, made(width)) - wanted))
    operations = cost(name, made(near))
    if abs(operations / wanted - 1) > TOLERANCE:
        raise UserError(
            f"--match: {name} comes no nearer to {wanted:,} multiply-adds than {operations:,}; put "
            "a model of its cost first, or leave it out"
        )
    return {} if near == usual else made(near)


def _width(name: str) -> tuple[Callable[[int], dict[str, Any]], int]:
    """Return a function from width to a model's arguments, and the model's usual width."""
    model, made_with = OURS.get(read_name(name).base, (None, {}))
    if model is None:
        raise UserError(f"--match: {name} has no width that can be set; models of ours have")
    arguments = {p.name: p.default for p in signature(model).parameters.values()} | made_with
    if "embed_dim" in arguments:
        heads = arguments["num_heads"]  # each head gets the same number of channels
        return (lambda width: {"embed_dim": width * heads}), arguments["embed_dim"] // heads
    if "widths" in arguments:
        widths = arguments["widths"]
        return (lambda width: {"widths": tuple(width * w // widths[0] for w in widths)}), widths[0]
    raise UserError(f"--match: {name} has no one width that can be set; leave it out")
