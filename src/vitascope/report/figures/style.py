"""One style per model, the same in every figure of a page.

Colours start from Okabe and Ito's set (told apart with any kind of colour vision) and are moved
until text in them has a contrast of 4.5 on the page, once for light and once for dark. Shape and
dash differ too, so that nothing depends on colour alone. The first ConViT, ViT and CNN of a list
always get the same colour: two reports side by side read alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from vitascope.figure import DASHES, MARKERS, Style

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
_FIRST = {"convit": 0, "vit": 1, "cnn": 2}  # a kind's colour, for the first model of that kind


def styles_of(models: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """A style for each (name, kind), in the order given.

    >>> styles_of([("vit_micro", "vit"), ("convit_micro", "convit")])["convit_micro"].colour
    0
    """
    pairs = list(models)
    firsts: dict[str, str] = {}
    for name, kind in pairs:
        if kind in _FIRST:
            firsts.setdefault(kind, name)
    fixed = {name: _FIRST[kind] for kind, name in firsts.items()}
    free = (number for number in count() if number not in fixed.values())
    return {name: Style.numbered(fixed[name] if name in fixed else next(free)) for name, _ in pairs}


class Styles:
    """The styles of a page: a name keeps its own wherever it is drawn; a new one gets the next.

    >>> styles = Styles([("convit_micro", "convit")])
    >>> styles.of("mixer").colour, styles.of("convit_micro").colour, styles.of("mixer").colour
    (1, 0, 1)
    """

    def __init__(self, models: Iterable[tuple[str, str]] = ()) -> None:
        first: dict[str, str] = {}
        for name, kind in models:
            if first.get(name, "other") == "other":
                first[name] = kind
        self._styles = styles_of(first.items())

    def of(self, name: str) -> Style:
        """The style of a model, or of whatever else is drawn under a name."""
        if name not in self._styles:
            taken = set(self._styles.values())
            self._styles[name] = next(
                style
                for number in range(1000)
                if (style := Style.numbered(number)) not in taken or number == 999
            )
        return self._styles[name]

    @property
    def names(self) -> dict[str, Style]:
        """Everything that has a style so far."""
        return dict(self._styles)


def apart(chosen: Sequence[Style]) -> list[Style]:
    """The same styles, with other dashes and marks where one comes twice.

    >>> [style.dash for style in apart([Style(0, "circle", ""), Style(0, "circle", "")])]
    ['', '7 4']
    """
    styles: list[Style] = []
    for style in chosen:
        turn, other = 0, style
        while other in styles and turn < len(DASHES) * len(MARKERS):
            turn += 1
            dash = DASHES[(DASHES.index(style.dash) + turn) % len(DASHES)]
            marker = MARKERS[(MARKERS.index(style.marker) + turn) % len(MARKERS)]
            other = replace(style, dash=dash, marker=marker)
        styles.append(other)
    return styles
