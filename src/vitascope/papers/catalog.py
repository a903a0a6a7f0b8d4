"""All studies of the papers' tables and figures, found by name or by what they cover.

>>> find("ConViT Table 3").name, find("convit-fig-10").name
('ablation', 'distillation')
"""

import re
from collections.abc import Iterator
from importlib import import_module

from vitascope.errors import UserError
from vitascope.papers.plan import Study

_FILES = (
    "convit.accuracy",
    "convit.parts",
    "convit.inside",
    "convit.locality",
    "vit.landscape",
    "vit.convexity",
    "vit.overfitting",
    "vit.features",
    "vit.stages",
    "vit.alternet",
    "vit.smoothing",
    "broadcasting",
    "dial",
)


def catalog() -> dict[str, Study]:
    """Every study by name, in the order of the papers."""
    studies: dict[str, Study] = {}
    for name in _FILES:
        for value in vars(import_module(f"vitascope.papers.{name}")).values():
            if isinstance(value, Study):
                assert value.name not in studies, value.name
                studies[value.name] = value
    return studies


def order_of(name: str) -> int:
    """Return a study's position in the order of the papers; studies of our own come last.

    >>> order_of("sample-efficiency"), order_of("mine") == len(catalog())
    (0, True)
    """
    names = list(catalog())
    return names.index(name) if name in names else len(names)


def covered() -> Iterator[tuple[str, str]]:
    """(table or figure, study) of everything."""
    for study in catalog().values():
        yield from ((cover, study.name) for cover in study.covers)


def _plain(text: str) -> str:
    """ "ConViT Fig. 10 left" as words that a person may type differently.

    >>> _plain("ConViT Figure 10"), _plain("convit-fig-10")
    ('convit fig 10', 'convit fig 10')
    """
    parts = re.sub(r"[^a-z0-9]+", " ", text.lower()).split()
    return " ".join("fig" if word == "figure" else word for word in parts)


def find(text: str) -> Study:
    """The study of this name, or the first one that covers this table or figure."""
    studies = catalog()
    if text in studies:
        return studies[text]
    wanted = _plain(text)
    for cover, name in covered():
        if wanted and re.match(rf"{re.escape(wanted)}(\b|$)", _plain(cover)):
            return studies[name]
    raise UserError(
        f"no study {text!r}; there are: {', '.join(studies)}; or name a table or figure, as "
        "convit-table-2 (vitascope study --list shows them all)"
    )
