"""One look a model, the same in every figure of a page.

Colours start from Okabe and Ito's set (told apart with any kind of colour vision) and are moved
until text in them has a contrast of 4.5 on the page, once for light and once for dark. Shape and
dash differ too, so that nothing hangs on colour alone. The first ConViT, ViT and CNN of a list
always get the same colour: two reports side by side read alike.
"""

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["COLOURS", "Look", "looks"]

COLOURS = (  # (light, dark): blue, vermilion, green, purple, ochre, cyan, grey, red
    ("#0a5ea8", "#6db5ff"),
    ("#c24400", "#ff9a5c"),
    ("#00806a", "#3fd0a4"),
    ("#9c3587", "#f09ad6"),
    ("#806000", "#e8c44f"),
    ("#007a94", "#7ee3f5"),
    ("#59606b", "#b9c0ca"),
    ("#8f1d2c", "#ff8f9b"),
)
_MARKERS = ("circle", "square", "triangle", "diamond")
_DASHES = ("", "7 4", "2 3")
_FIRST = {"convit": 0, "vit": 1, "cnn": 2}  # a kind's colour, for the first model of that kind


@dataclass(frozen=True)
class Look:
    """How a model is drawn: ``colour`` counts into COLOURS; ``dash`` is SVG's."""

    colour: int
    marker: str
    dash: str

    @property
    def css(self) -> str:
        """The class that sets the colour in a page."""
        return f"m{self.colour}"


def looks(models: Iterable[tuple[str, str]]) -> dict[str, Look]:
    """A look for each (name, kind), in the order given.

    >>> looks([("vit_micro", "vit"), ("convit_micro", "convit")])["convit_micro"].colour
    0
    """
    pairs = list(models)
    firsts: dict[str, str] = {}
    for name, kind in pairs:
        if kind in _FIRST:
            firsts.setdefault(kind, name)
    kept = {name: _FIRST[kind] for kind, name in firsts.items()}
    free = iter([place for place in range(len(COLOURS) * 9) if place not in kept.values()])
    return {name: _look(kept[name] if name in kept else next(free)) for name, _ in pairs}


def _look(place: int) -> Look:
    turn, colour = divmod(place, len(COLOURS))
    marker = _MARKERS[(colour + turn) % len(_MARKERS)]
    return Look(colour=colour, marker=marker, dash=_DASHES[turn % len(_DASHES)])
