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
    >>> _plain("Park & Kim Fig. 2b"), _plain("vit-fig-2b")
    ('park kim fig 2b', 'park kim fig 2b')
    """
    parts = re.sub(r"[^a-z0-9]+", " ", text.lower().replace(" and ", " ")).split()
    if parts[:1] == ["vit"]:  # what Park and Kim's paper was called here at first
        parts[:1] = ["park", "kim"]
    return " ".join("fig" if word == "figure" else word for word in parts)


def find_all(text: str) -> list[Study]:
    """The study of this name, or all that cover this table or figure or a part of it.

    A letter that no study names falls back to the whole figure.

    >>> [study.name for study in find_all("convit-fig-11")]
    ['sample-efficiency', 'sizes', 'long-training']
    >>> [study.name for study in find_all("park-kim-fig-2b")]
    ['frequencies']
    """
    studies = catalog()
    if text in studies:
        return [studies[text]]
    wanted = _plain(text)
    for words in (wanted, re.sub(r"(?<=\d)[a-z]$", "", wanted)):
        part = re.compile(rf"{re.escape(words)}(\b|[a-z]$)")
        names = [name for cover, name in covered() if words and part.match(_plain(cover))]
        if names:
            return [studies[name] for name in dict.fromkeys(names)]
    raise UserError(
        f"no study {text!r}; there are: {', '.join(studies)}; or name a table or figure, as "
        "convit-table-2 (vitascope study --list shows them all)"
    )


def find(text: str) -> Study:
    """The study of this name, or the first one that covers this table or figure."""
    return find_all(text)[0]
