"""WebDataset shards: tar files in which ``0001.jpg`` and ``0001.cls`` make a sample.

Shards on disk are indexed once, reading only the tar headers and the labels; from then on any
image is one seek away, so subsets, shuffling over the whole set, exact resuming and several
processes work as for any other source. Shards behind http(s) are fetched once, one after another,
and kept (see :mod:`vitascope.data.sources.fetch`), because an index needs all of them.

Archives of unknown origin are read with limits on their headers. Python's reader trusts what a
header says. A member of negative length leads it back to a header that it has read already, for
ever (CVE-2025-8194, in every Python before the autumn of 2025); a name or a table of attributes is
read into memory, however long it is said to be.
"""

import io
import json
import os
import re
import tarfile
from glob import glob
from math import prod
from pathlib import Path
from typing import Any

from PIL import Image

from vitascope.data.decoding import opened
from vitascope.data.images import FileImages, class_numbers, printable
from vitascope.data.sources.fetch import fetched
from vitascope.data.sources.folder import EXTENSIONS, existing
from vitascope.errors import UserError, reason

MOST_SHARDS = 100_000

MOST_LABEL = 2**20  # bytes of a .cls or .json that are read


class ShardImages(FileImages):
    """Images inside tar files; an item is (tar, name, first byte, number of bytes)."""

    def open_item(self, item: Any) -> Image.Image:
        """Read the image of one archive member."""
        path, _, offset, length = item
        with open(path, "rb") as shard:
            shard.seek(offset)
            return opened(io.BytesIO(shard.read(length)))

    def name(self, index: int) -> str:
        """Return the names of the shard and the member."""
        path, member, *_ = self.items[index]
        return printable(f"{member} in {path}")


def expand(pattern: str) -> list[Path]:
    """The shards that ``train-{0000..0146}.tar``, ``train-*.tar`` or an address names, on disk."""
    try:
        from webdataset.shardlists import expand_urls
    except ImportError as error:
        raise UserError(
            f"wds:{pattern} needs the library webdataset: pip install 'vitascope[shards]'"
        ) from error
    if _count(pattern) > MOST_SHARDS:
        raise UserError(
            f"wds:{pattern:.200} names {_count(pattern):,} shards; give at most {MOST_SHARDS:,}"
        )
    try:
        urls = expand_urls(pattern)
    except ValueError as error:  # unbalanced braces
        raise UserError(f"wds:{pattern:.200} names no shards: {reason(error)}") from None
    if re.match(r"https?://", pattern):
        return [fetched(url) for url in urls]
    if "://" in pattern or pattern.startswith("pipe:"):
        raise UserError(
            f"wds:{pattern:.200} is neither on disk nor behind http(s), and commands are not run; "
            "copy the shards and give their path"
        )
    paths: list[Path] = []
    for url in urls:
        path = Path(os.path.expanduser(url))
        wild = [path.parent / name for name in sorted(glob(path.name, root_dir=path.parent))]
        paths += [existing(each, "shard") for each in wild or [url]]
    return paths


def _count(pattern: str) -> int:
    """Return at least the number of names that the braces of a pattern stand for.

    >>> _count("{train,val}-{000..146}.tar")
    294
    """
    ranges = re.findall(r"\{(-?\d+)\.\.(-?\d+)", pattern)
    lists = re.findall(r"\{([^{}]*,[^{}]*)\}", pattern)
    return prod(abs(int(last) - int(first)) + 1 for first, last in ranges) * prod(
        1 + each.count(",") for each in lists
    )


def label_of(content: bytes, extension: str, where: str) -> int:
    """The class number in a ``.cls`` or ``.json`` member."""
    try:
        if extension == ".json":
            entry = json.loads(content)
            label = entry.get("label", entry.get("cls"))
            if isinstance(label, float) and not label.is_integer():
                raise ValueError
            return int(label)
        return int(content)
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise UserError(
            f"the label of {where} is {content[:40]!r}; it must be a whole number"
        ) from error


def index(path: Path) -> list[tuple[tuple[str, str, int, int], int]]:
    """Location and label of every image in a shard.

    Raises:
        UserError: If it is no tar file, or not a whole one: python's reader stops in silence at
            the first header it cannot read.
    """
    images: dict[str, tuple[str, str, int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with BoundedTar.open(path, "r:") as shard:
            for member in shard:
                if not member.isreg() or member.issparse():
                    continue
                base, dot, suffixes = member.name.rpartition("/")[2].partition(".")
                key = member.name[: len(member.name) - len(dot + suffixes)]
                extension = f".{suffixes.lower()}"
                if extension in EXTENSIONS:
                    images[key] = (str(path), member.name, member.offset_data, member.size)
                elif extension in (".cls", ".json"):
                    content = shard.extractfile(member).read(MOST_LABEL)  # type: ignore[union-attr]
                    if extension == ".cls" or key not in labels:
                        labels[key] = label_of(content, extension, printable(f"{base} in {path}"))
            after_last = shard.offset
        check_end(path, after_last, len(images))
    except UserError:
        raise
    except Exception as error:  # damaged headers raise nearly anything
        raise UserError(
            f"{path} is not a whole, unpacked tar file ({reason(error)}); fetch or write it again"
        ) from error
    alone = [key for key in images if key not in labels]
    if alone or not images:
        problem = f"{alone[0]} has no .cls or .json next to it" if alone else "it holds no images"
        raise UserError(f"{path} cannot be used: {problem}")
    return [(location, labels[key]) for key, location in images.items()]


def check_end(path: Path, after_last: int, count: int) -> None:
    """After its last member a whole tar file has a block of zeros, and nothing but zeros.

    Raises:
        UserError: If it has not.
    """
    with open(path, "rb") as file:
        file.seek(after_last)
        block = file.read(tarfile.BLOCKSIZE)
        whole = len(block) == tarfile.BLOCKSIZE
        while whole and block:
            whole = not any(block)
            block = file.read(1 << 16)
    if not whole:
        raise UserError(
            f"{path} is cut short or damaged: only {count} images can be found in it, up to byte "
            f"{after_last:,}; fetch or write it again"
        )


def shards(pattern: str) -> ShardImages:
    """All images of the shards; classes are numbers, padded so that they sort as numbers."""
    samples = [sample for path in expand(pattern) for sample in index(path)]
    labels = [label for _, label in samples]
    numbers = class_numbers(labels, f"wds:{pattern}")
    names = [number.zfill(len(numbers[-1])) for number in numbers]
    return ShardImages([location for location, _ in samples], labels, names)


MOST_ATTRIBUTES = 2**20  # bytes of a member's name or attributes; a path has at most 4,096

_ATTRIBUTES = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


class _Header(tarfile.TarInfo):
    """A header whose length is checked before anything is read by it."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        header = super().frombuf(buf, encoding, errors)
        most = MOST_ATTRIBUTES if header.type in _ATTRIBUTES else header.size
        if not 0 <= header.size <= most:
            raise tarfile.ReadError(f"a member of {header.size:,} bytes that cannot be")
        return header


class BoundedTar(tarfile.TarFile):
    """A tar archive that is read from its beginning to its end, once.

    Raises:
        tarfile.ReadError: At an invalid member.
    """

    tarinfo = _Header

    def next(self) -> tarfile.TarInfo | None:
        """The next member, which begins after the one before."""
        member = super().next()
        if member is not None and (member.size < 0 or self.offset <= member.offset):
            raise tarfile.ReadError(f"{member.name[:80]!r} ends before it begins")
        return member
