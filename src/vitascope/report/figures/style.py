"""One look a model, the same in every figure of a page.

Colours start from Okabe and Ito's set (told apart with any kind of colour vision) and are moved
until text in them has a contrast of 4.5 on the page, once for light and once for dark. Shape and
dash differ too, so that nothing hangs on colour alone. The first ConViT, ViT and CNN of a list
always get the same colour: two reports side by side read alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import count

__all__ = ["COLOURS", "Look", "Styles", "apart", "looks"]

COLOURS = (  # (light, dark): blue, vermilion, green, purple, ochre, cyan, grey, red
    ("#0a5ea8", "#6db5ff"),
    ("#c24400", "#ff9a5c"),
    ("#007d67", "#3fd0a4"),
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
    free = (place for place in count() if place not in kept.values())
    return {name: _look(kept[name] if name in kept else next(free)) for name, _ in pairs}


def _look(place: int) -> Look:
    turn, colour = divmod(place, len(COLOURS))
    marker = _MARKERS[(colour + turn) % len(_MARKERS)]
    return Look(colour=colour, marker=marker, dash=_DASHES[turn % len(_DASHES)])


class Styles:
    """The looks of a page: a name keeps its own wherever it is drawn; a new one gets the next.

    >>> book = Styles([("convit_micro", "convit")])
    >>> book.of("mixer").colour, book.of("convit_micro").colour, book.of("mixer").colour
    (1, 0, 1)
    """

    def __init__(self, models: Iterable[tuple[str, str]] = ()) -> None:
        first: dict[str, str] = {}
        for name, kind in models:
            if first.get(name, "other") == "other":
                first[name] = kind
        self._looks = looks(first.items())

    def of(self, name: str) -> Look:
        """The look of a model, or of whatever else is drawn under a name."""
        if name not in self._looks:
            taken = set(self._looks.values())
            self._looks[name] = next(
                look for place in range(1000) if (look := _look(place)) not in taken or place == 999
            )
        return self._looks[name]

    @property
    def names(self) -> dict[str, Look]:
        """Everything that has a look so far."""
        return dict(self._looks)


def apart(chosen: Sequence[Look]) -> list[Look]:
    """The same looks, with other dashes and marks where one comes twice.

    >>> [look.dash for look in apart([Look(0, "circle", ""), Look(0, "circle", "")])]
    ['', '7 4']
    """
    found: list[Look] = []
    for look in chosen:
        turn, other = 0, look
        while other in found and turn < len(_DASHES) * len(_MARKERS):
            turn += 1
            dash = _DASHES[(_DASHES.index(look.dash) + turn) % len(_DASHES)]
            marker = _MARKERS[(_MARKERS.index(look.marker) + turn) % len(_MARKERS)]
            other = replace(look, dash=dash, marker=marker)
        found.append(other)
    return found
