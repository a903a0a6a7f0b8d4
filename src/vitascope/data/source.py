"""From one string to a data set.

=========================== ====================================================================
``digits``                  scikit-learn's 1,797 handwritten digits, 8 x 8
``path/to/folder``          class folders, or ``train`` beside ``test`` or ``val``
=========================== ====================================================================

    >>> dataset = load("digits")
    >>> len(dataset.train), len(dataset.test), dataset.notes
    (1438, 359, ('split 20 % off for testing, stratified, seed 0',))
"""

from collections.abc import Callable
from pathlib import Path

from vitascope.data.dataset import Dataset
from vitascope.data.digits import digits
from vitascope.data.folder import existing, list_files, parts_of
from vitascope.data.memory import gather
from vitascope.data.parts import Parts, Request, complete, in_form
from vitascope.errors import UserError, unknown

__all__ = ["load", "sources"]


def read_digits(_: str, request: Request) -> Parts:
    """scikit-learn's digits."""
    return Parts(train=in_form(digits(), request), flips=False)


def read_folder(path: str, request: Request) -> Parts:
    """Class folders, with a test set beside them or not."""
    train_root, test_root = parts_of(existing(path))
    files = list_files(train_root)
    train, notes = gather(files, image_size=request.image_size, in_chans=request.in_chans)
    if test_root is None:
        return Parts(train=train, notes=notes)
    test_files = list_files(test_root, files.classes)
    channels, height, width = train.size
    if request.image_size is None and height != width:
        raise UserError(f"the images are {width} x {height}; give image_size to make them square")
    test, more = gather(test_files, image_size=height, in_chans=channels)
    return Parts(train=train, test=test, notes=notes + more)


# Sources that take nothing, and those that take something after a colon.
NAMED: dict[str, Callable[[str, Request], Parts]] = {"digits": read_digits}
PREFIXED: dict[str, Callable[[str, Request], Parts]] = {}


def sources() -> tuple[str, ...]:
    """What ``load`` understands, besides the path of a folder."""
    return (*NAMED, *(f"{prefix}:" for prefix in PREFIXED))


def load(
    source: str,
    *,
    image_size: int | None = None,
    in_chans: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
) -> Dataset:
    """The data set that ``source`` names.

    Args:
        source: A name, a prefix with a path, or a folder; see the top of this module.
        image_size: Side of the square images; None: as they are.
        in_chans: 1 (grey) or 3; None: as they are.
        test_fraction: Share of each class for testing, where the source has no test set.
        seed: Of that split.

    Raises:
        UserError: If there is no such source, or it cannot be used.
    """
    if in_chans not in (None, 1, 3):
        raise UserError(f"in_chans {in_chans} is not possible; give 1 (grey) or 3 (colour)")
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size {image_size} is out of range; give the side in pixels")
    request = Request(
        image_size=image_size, in_chans=in_chans, test_fraction=test_fraction, seed=seed
    )
    prefix, colon, rest = source.partition(":")
    if source in NAMED:
        parts = NAMED[source]("", request)
    elif colon and prefix in PREFIXED:
        if not rest:
            raise UserError(f"{source!r} needs something after the colon: {prefix}:/path")
        parts = PREFIXED[prefix](rest, request)
    elif Path(source).expanduser().exists() or "/" in source:
        parts = read_folder(source, request)
    else:
        error = unknown("data source", source, [*NAMED, *PREFIXED])
        raise UserError(f"{error}; or give the path of a folder that holds class folders")
    return complete(source, parts, request)
