"""WebDataset shards: tar files in which ``0001.jpg`` and ``0001.cls`` make a sample.

Shards on disk are indexed once, reading only the tar headers and the labels; from then on any
image is one seek away, so subsets, shuffling over the whole set, exact resuming and several
processes work as for any other source. Shards behind http(s) are fetched once, one after another,
and kept (see :mod:`vitascope.data.fetch`), because an index needs all of them.
"""

import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

from PIL import Image

from vitascope.data.fetch import fetched
from vitascope.data.folder import EXTENSIONS, existing
from vitascope.data.images import FileImages
from vitascope.errors import UserError

__all__ = ["ShardImages", "expand", "shards"]


class ShardImages(FileImages):
    """Images inside tar files; an item is (tar, name, first byte, number of bytes)."""

    def open_item(self, item: Any) -> Image.Image:
        """Read one member."""
        path, _, offset, length = item
        with open(path, "rb") as shard:
            shard.seek(offset)
            return Image.open(io.BytesIO(shard.read(length)))

    def name(self, index: int) -> str:
        """Shard and member."""
        path, member, *_ = self.items[index]
        return f"{member} in {path}"


def expand(pattern: str) -> list[Path]:
    """The shards that ``train-{0000..0146}.tar``, ``train-*.tar`` or an address names, on disk."""
    try:
        from webdataset.shardlists import expand_urls
    except ImportError as error:
        raise UserError(
            f"wds:{pattern} needs the library webdataset: pip install vitascope[shards]"
        ) from error
    if re.match(r"https?://", pattern):
        return [fetched(url) for url in expand_urls(pattern)]
    if "://" in pattern or pattern.startswith("pipe:"):
        raise UserError(
            f"wds:{pattern} is neither on disk nor behind http(s), and commands are not run; copy "
            "the shards and give their path"
        )
    found: list[Path] = []
    for path in (Path(url).expanduser() for url in expand_urls(pattern)):
        wild = sorted(path.parent.glob(path.name)) if path.parent.is_dir() else []
        found += wild or [existing(path, "shard")]
    return found


def label_of(content: bytes, extension: str, where: str) -> int:
    """The class number in a ``.cls`` or ``.json`` member."""
    try:
        if extension == ".json":
            entry = json.loads(content)
            return int(entry.get("label", entry.get("cls")))
        return int(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"the label of {where} is {content[:40]!r}; it must be a whole number"
        ) from error


def index(path: Path) -> list[tuple[tuple[str, str, int, int], int]]:
    """Place and label of every image in a shard."""
    images: dict[str, tuple[str, str, int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(path, "r:") as shard:
            for member in shard:
                base, dot, rest = member.name.rpartition("/")[2].partition(".")
                key = member.name[: len(member.name) - len(dot + rest)]
                extension = f".{rest.lower()}"
                if extension in EXTENSIONS:
                    images[key] = (str(path), member.name, member.offset_data, member.size)
                elif extension in (".cls", ".json"):
                    content = shard.extractfile(member).read()  # type: ignore[union-attr]
                    if extension == ".cls" or key not in labels:
                        labels[key] = label_of(content, extension, f"{base} in {path}")
    except tarfile.TarError as error:
        raise UserError(f"{path} is not a whole, unpacked tar file ({error})") from error
    alone = [key for key in images if key not in labels]
    if alone or not images:
        what = f"{alone[0]} has no .cls or .json beside it" if alone else "it holds no images"
        raise UserError(f"{path} cannot be used: {what}")
    return [(place, labels[key]) for key, place in images.items()]


def shards(pattern: str) -> ShardImages:
    """All images of the shards; classes are numbers, padded so that they sort as numbers."""
    samples = [sample for path in expand(pattern) for sample in index(path)]
    labels = [label for _, label in samples]
    top = max(labels)
    names = [str(i).zfill(len(str(top))) for i in range(top + 1)]
    return ShardImages([place for place, _ in samples], labels, names)
