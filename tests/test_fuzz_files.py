"""Damaged files are read, or refused in one line: seeded damage to everything we open.

A case is a family and a number, and these are its seed. Each case runs in a process of its own,
forked from one that has only imported things: an alarm ends it if it hangs, and a limit on its
memory if it asks for too much. One case in the open, with its traceback:

    python tests/test_fuzz_files.py images 17
"""

import gzip
import io
import json
import os
import pickle
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data_making import photo, write_folder
from fuzzing import (
    ODD,
    Rng,
    command,
    contents,
    damaged_bytes,
    damaged_text,
    damaged_tree,
    pick,
    run_cases,
)
from vitascope.data import Augmentation, EvalBatches, TrainBatches, load
from vitascope.errors import UserError
from vitascope.inspection.evaluation import evaluate_subject
from vitascope.inspection.options import EvaluateOptions
from vitascope.models import create_model
from vitascope.models.weights import load_weights
from vitascope.runs.train_model import train_once
from vitascope.training.run_folder.lock import save_tensors

FIXTURES = Path(__file__).parent / "fixtures"
WORK = 10  # seconds of computing; a case takes a tenth of one
WAIT = 60  # seconds by the clock, for one that waits for ever
MEMORY = 3 * 2**29  # bytes a case may ask for
SYNSETS = ("n01440764", "n01443537", "n01484850")

# How files are damaged.


def damaged_png(rng: Rng, data: bytes) -> bytes:
    """One chunk changed, with a checksum that fits; the header often gets another size."""
    chunks, at = [], 8
    while at + 12 <= len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append([data[at + 4 : at + 8], data[at + 8 : at + 8 + length]])
        at += 12 + length
    which = 0 if rng.random() < 0.5 else int(rng.integers(len(chunks)))
    body = chunks[which][1]
    if which == 0 and len(body) == 13 and rng.random() < 0.7:
        sizes = (0, 1, 7, 3000, 10**6, 40_000_000, 2**31 - 1, 2**32 - 1)
        width, height = (sizes[rng.integers(len(sizes))] for _ in range(2))
        chunks[0][1] = struct.pack(">II", width, height) + body[8:]
        if rng.random() < 0.5 and width * height < 10**8:  # and pixels that fill it
            depth, color = body[8], body[9]
            row = 1 + (width * depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color] + 7) // 8
            chunks[1:-1] = [[b"IDAT", zlib.compress(bytes(row * height), 1)]]
    else:
        chunks[which][1] = damaged_bytes(rng, body)
    parts = [
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    ]
    return data[:8] + b"".join(parts)


def damaged_gzip(rng: Rng, data: bytes) -> bytes:
    """Other content in a good archive, or good content followed by 2.5 GiB of zeros."""
    if rng.random() < 0.1:
        return data + 40 * gzip.compress(bytes(2**26), 1)
    return gzip.compress(damaged(rng, "inside.tar", gzip.decompress(data)), 1, mtime=0)


def damaged_tar(rng: Rng, data: bytes) -> bytes:
    """One member with other content, another name or another kind."""
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data)) as old, tarfile.open(fileobj=out, mode="w") as new:
        members = old.getmembers()
        chosen = int(rng.integers(len(members)))
        for number, member in enumerate(members):
            stream = old.extractfile(member)
            content = stream.read() if stream else b""
            what = rng.integers(6) if number == chosen else -1
            if what == 0:
                continue
            if what == 1:
                member.name = ("/", "..", "a.b.c", "\udcff.png", "x" * 300)[rng.integers(5)]
            elif what == 2:
                member.type = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE)[rng.integers(3)]
                member.linkname = member.name
            elif what >= 3:
                content = damaged(rng, member.name, content)
                if member.name.endswith(".cls"):
                    content = str(pick(rng, ODD)).encode()
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return out.getvalue()


def damaged_safetensors(rng: Rng, data: bytes) -> bytes:
    """Another header of the right length, or numbers that are not finite."""
    (length,) = struct.unpack_from("<Q", data)
    header, body = data[8 : 8 + length], data[8 + length :]
    if rng.random() < 0.3:
        at = 4 * int(rng.integers(max(1, len(body) // 4)))
        bad = np.float32(rng.choice([np.nan, np.inf, -np.inf])).tobytes()
        return data[: 8 + length] + body[:at] + bad + body[at + 4 :]
    header = json.dumps(damaged_tree(rng, json.loads(header))).encode()
    return struct.pack("<Q", len(header)) + header + body


BY_NAME: tuple[tuple[str, Callable[[Rng, bytes], bytes]], ...] = (
    (r"\.png$", damaged_png),
    (r"\.gz$", damaged_gzip),
    (r"\.tar$", damaged_tar),
    (r"\.safetensors$", damaged_safetensors),
    (r"\.(json|jsonl|yaml)$", damaged_text),
)


def damaged(rng: Rng, name: str, data: bytes) -> bytes:
    """The content of a file, damaged as its name allows, or byte by byte."""
    for pattern, change in BY_NAME:
        if re.search(pattern, name) and rng.random() < 0.6:
            try:
                return change(rng, data)
            except (ValueError, struct.error, tarfile.TarError, OSError, IndexError):
                break  # it was not such a file
    return damaged_bytes(rng, data)


def damage(rng: Rng, path: Path) -> str:
    """Damage a file on disk; what was done, in words."""
    if rng.random() < 0.93:
        changed = damaged(rng, path.name, path.read_bytes())
        path.write_bytes(changed)
        return f"{path.name} of {len(changed)} bytes"
    path.unlink()
    kind = ("gone", "folder", "fifo", "nowhere", "itself")[rng.integers(5)]
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "nowhere":
        path.symlink_to("nowhere")
    elif kind == "itself":
        path.symlink_to(path.name)
    return f"{path.name}: {kind}"


# What is damaged: each writes good files into a folder.


def make_images(root: Path) -> None:
    """Two classes; of one, an image of every kind."""
    write_folder(root, ["cats", "dogs"], count=2, size=(8, 8))
    dogs, rgb = root / "dogs", photo(7, 8, 8)
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    for mode in ("1", "L", "P", "RGBA", "LA"):
        rgb.convert(mode).save(dogs / f"{mode}.png")
    rgb.save(dogs / "clear.png", transparency=(1, 2, 3))
    Image.fromarray(deep).save(dogs / "16.png")
    Image.fromarray(deep).save(dogs / "16.tif")
    Image.fromarray(deep.astype(np.float32) / 65535).save(dogs / "float.tif")
    Image.fromarray(deep).save(dogs / "16.pgm")
    rgb.save(dogs / "packed.tif", compression="tiff_lzw")
    rgb.save(dogs / "pages.tif", save_all=True, append_images=[photo(8, 8, 8)])
    rgb.save(dogs / "moving.gif", save_all=True, append_images=[photo(8, 8, 8)], duration=50)
    turned = Image.Exif()
    turned[0x0112] = 6
    rgb.save(dogs / "turned.jpg", exif=turned)
    rgb.convert("CMYK").save(dogs / "print.jpg")
    rgb.save(dogs / "plain.jpg", progressive=True)
    for suffix in ("webp", "bmp", "ppm"):
        rgb.save(dogs / f"plain.{suffix}")


def make_idx(root: Path, packed: bool = False) -> None:
    """MNIST's four files."""
    for part, count in (("train", 12), ("t10k", 6)):
        labels = (np.arange(count) % 3).astype(np.uint8).tobytes()
        pixels = bytes(range(64)) * count
        for name, raw in (
            (f"{part}-images-idx3-ubyte", b"\0\0\x08\x03" + struct.pack(">III", count, 8, 8)),
            (f"{part}-labels-idx1-ubyte", b"\0\0\x08\x01" + struct.pack(">I", count)),
        ):
            raw += pixels if "images" in name else labels
            (root / (name + ".gz" * packed)).write_bytes(gzip.compress(raw) if packed else raw)


def make_cifar(root: Path) -> None:
    """The files of CIFAR-10, ten images each."""
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        pixels = rng.integers(0, 256, (10, 3072), dtype=np.uint8)
        body = {"data": pixels, "labels": [i % 3 for i in range(10)], "batch_label": name}
        (root / name).write_bytes(pickle.dumps(body, protocol=2))
    meta = {"label_names": ["a", "b", "c"], "num_cases_per_batch": 10}
    (root / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))


def make_packed_cifar(root: Path) -> None:
    """The same in one archive."""
    with tempfile.TemporaryDirectory() as inside:
        make_cifar(Path(inside))
        with tarfile.open(root / "cifar.tar.gz", "w:gz") as archive:
            archive.add(inside, "cifar-10-batches-py")


def make_shards(root: Path) -> None:
    """Two shards, labels as text and as JSON."""
    for number in range(2):
        with tarfile.open(root / f"train-{number}.tar", "w") as shard:
            for i in range(6):
                label = (f"{i % 3}", "cls") if number else (json.dumps({"label": i % 3}), "json")
                for content, suffix in ((encoded(i), "png"), (label[0].encode(), label[1])):
                    member = tarfile.TarInfo(f"{number}{i}.{suffix}")
                    member.size = len(content)
                    shard.addfile(member, io.BytesIO(content))


def encoded(seed: int) -> bytes:
    out = io.BytesIO()
    photo(seed, 8, 8).save(out, "png")
    return out.getvalue()


def make_hub(root: Path) -> None:
    """What ``datasets`` writes with ``save_to_disk``."""
    import datasets

    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b", "c"])
    )
    rows = {
        "image": [{"bytes": encoded(i), "path": None} for i in range(12)],
        "label": [i % 3 for i in range(12)],
    }
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict(train=table, test=table).save_to_disk(root)


def make_imagenet(root: Path) -> None:
    """Three synsets, for training and for validation, and sets of labels."""
    write_folder(root / "train", SYNSETS, count=3, size=(12, 8), suffix="jpg")
    for number, synset in enumerate(SYNSETS):
        (root / "val" / synset).mkdir(parents=True)
        image = photo(number, 8, 12)
        image.save(root / "val" / synset / f"ILSVRC2012_val_{number + 1:08d}.JPEG")
    (root / "real.json").write_text("[[0], [1, 5], []]")


def make_weights(root: Path) -> None:
    """A model's weights in both formats."""
    model = small()
    save_tensors(root / "model.safetensors", model.state_dict())
    torch.save({"model": model.state_dict()}, root / "model.pth")
    torch.save(model.state_dict(), root / "old.pth", _use_new_zipfile_serialization=False)


def small() -> torch.nn.Module:
    return create_model("vit_micro", img_size=8, patch_size=4, num_classes=2, depth=1)


def make_run(root: Path) -> None:
    """A finished run, one epoch on two classes."""
    photos = write_folder(root.with_name(f"{root.name}-photos"), ["a", "b"], count=5, size=(8, 8))
    train_once(**training(photos, root), quiet=True, trackers=())


def training(photos: Path, out: Path) -> dict:
    words = {"model": "vit_micro", "data": str(photos), "recipe": "laptop", "epochs": 1, "out": out}
    return {**words, "model_args": ["depth=1", "patch_size=4"], "changes": ["batch_size=4"]}


def make_interrupted(root: Path) -> None:
    """The same before it was finished."""
    make_run(root)
    (root / "record.json").unlink()


def make_old_run(root: Path) -> None:
    """A run of the first format, on the digits."""
    shutil.copytree(FIXTURES / "records" / "run", root, dirs_exist_ok=True)


# How it is read: whatever comes back must be usable.


def look(source: str, image_size: int | None = 8) -> None:
    """Load the images; pass them all by as an evaluation does, and once as training does."""
    dataset = load(source, image_size=image_size)
    how = {"mean": dataset.mean, "std": dataset.std}
    refused = None
    for images in (dataset.train, dataset.test):
        try:
            for batch in EvalBatches(images, batch_size=4, **how):
                assert torch.isfinite(batch.images).all()
                labels = batch.labels
                assert 0 <= int(labels.min()) <= int(labels.max()) < len(dataset.classes)
        except UserError as error:  # training passes broken images over
            refused = error
    if len(dataset.train):
        batches = TrainBatches(
            dataset.train,
            batch_size=2,
            augmentation=Augmentation(crop="resized"),
            num_classes=len(dataset.classes),
            flips=dataset.flips,
            seed=0,
            **how,
        )
        for batch in batches.epoch(0):
            assert torch.isfinite(batch.images).all()
    if refused:
        raise refused


def read_imagenet(root: Path) -> None:
    look(f"imagenet:{root}")
    look(f"imagenet-real:{root}/val?labels={root}/real.json")


def read_weights(root: Path) -> None:
    """All three files, each whole or refused."""
    refused = None
    for name in ("model.safetensors", "model.pth", "old.pth"):
        model = small()
        before = [p.clone() for p in model.parameters()]
        try:
            load_weights(model, root / name)
        except UserError as error:
            assert all(map(torch.equal, before, model.parameters()))
            refused = error
    if refused:
        raise refused


def read_run(root: Path) -> None:
    values = evaluate_subject(EvaluateOptions(model=str(root))).values
    assert 0 <= values["top1"] <= 1
    assert values["nll"] is not None, "weights that are not finite were scored"
    assert np.isfinite(values["nll"])


def resume(root: Path) -> None:
    photos = root.parents[2] / "interrupted-photos"
    train_once(**training(photos, root), resume=True, quiet=True, trackers=())


def ask(*words: str) -> Callable[[Path], None]:
    """The folder given to a command, as its first word."""

    def read(root: Path) -> None:
        code, said = command([words[0], str(root), *words[1:], "--quiet"])
        if code:
            raise UserError(said.removesuffix("\n"))

    return read


@dataclass(frozen=True)
class Family:
    """Good files, and who reads them."""

    make: Callable[[Path], None]
    read: Callable[[Path], None]


FAMILIES = {
    "images": Family(make_images, lambda root: look(str(root))),
    "sized": Family(make_images, lambda root: look(str(root), None)),
    "imagenet": Family(make_imagenet, read_imagenet),
    "idx": Family(make_idx, lambda root: look(f"idx:{root}")),
    "idx.gz": Family(lambda root: make_idx(root, True), lambda root: look(f"idx:{root}")),
    "cifar": Family(make_cifar, lambda root: look(f"cifar10:{root}")),
    "cifar.tar.gz": Family(
        make_packed_cifar, lambda root: look(f"cifar10:{root / 'cifar.tar.gz'}")
    ),
    "shards": Family(make_shards, lambda root: look(f"wds:{root}/train-{{0..1}}.tar")),
    "hub": Family(make_hub, lambda root: look(f"hf:{root}")),
    "weights": Family(make_weights, read_weights),
    "run": Family(make_run, read_run),
    "interrupted": Family(make_interrupted, resume),
    "evaluate": Family(make_old_run, ask("evaluate", "--images", "8")),
    "inspect": Family(make_old_run, ask("inspect", "--images", "2", "--measures", "gates")),
    "report": Family(make_old_run, ask("report")),
}


# One case, and many.


def limit() -> None:
    """No more than WORK, WAIT and MEMORY for this process from now on."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(WAIT)
    resource.setrlimit(resource.RLIMIT_CPU, (WORK, WORK + 1))
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))


def apart(job: Callable[[], str]) -> str:
    """What ``job`` returns in a forked process with limits.

    Raises:
        AssertionError: If it raised, hung or was killed.
    """
    inside, outside = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(inside)
        said = "!ended early"
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # libtiff and others speak for themselves
            limit()
            said = job()
        except BaseException as error:
            said = "!" + "".join(traceback.format_exception(error))[-3000:]
        finally:
            os.write(outside, said.encode(errors="replace"))
            os._exit(0)
    os.close(outside)
    with os.fdopen(inside, "rb") as stream:
        said = stream.read().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status not in (-signal.SIGALRM, -signal.SIGXCPU), "it hangs"
    assert status >= 0, f"killed by {signal.Signals(-status).name}"
    assert not said.startswith("!"), said[1:]
    return said


def one_case(family: str, good: Path, number: int, home: Path) -> str:
    """Damage a copy of the good files and read it: ``read`` or ``refused``."""
    rng = np.random.default_rng([list(FAMILIES).index(family), number])
    root = shutil.copytree(good, home / "copy")
    files = sorted(path for path in root.rglob("*") if path.is_file())
    count = 2 if rng.random() < 0.1 else 1
    done = "; ".join(damage(rng, files[i]) for i in rng.permutation(len(files))[:count])
    before, refused = contents(root), None
    try:
        warnings.simplefilter("ignore")
        FAMILIES[family].read(root)
    except UserError as error:
        refused = str(error)
    except BaseException as error:
        error.add_note(done)
        raise
    if refused is not None:
        assert "\n" not in refused, done
        assert len(refused) <= 1000, f"{done}: the message is {len(refused)} characters long"
        assert contents(root) == before, f"{done}: refused, and changed files all the same"
    left = [name for name in contents(root).keys() - before.keys() if "/." in f"/{name}"]
    assert not left, f"{done}: left {left}"
    return "read" if refused is None else "refused"


def of_family(family: str, numbers: Sequence[int], base: Path) -> tuple[Counter[str], list[str]]:
    """Outcomes of a family's cases, and those that went wrong; the undamaged files come first."""
    good = base / family

    def undamaged() -> str:
        good.mkdir(parents=True)
        FAMILIES[family].make(good)
        FAMILIES[family].read(shutil.copytree(good, base / "cases" / family / "copy"))
        return "read"

    def case(number: int, home: Path) -> str:
        return apart(lambda: one_case(family, good, number, home))

    try:
        apart(undamaged)
    except AssertionError as error:
        return Counter(), [f"undamaged: {error}"]
    met, wrong = run_cases(case, numbers, base / "cases")
    if len(numbers) >= 100 and not met["refused"]:
        wrong.append(f"none of {len(numbers)} was refused: are they read at all?")
    return met, wrong


def check(folder: Path, numbers: range) -> None:
    """Run these cases of every family in a fresh process: a small one, without threads."""
    words = [sys.executable, __file__, "all", f"{numbers.start}:{numbers.stop}", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    count = len(numbers) * len(FAMILIES)
    assert done.stdout.endswith(f"{count} cases, 0 wrong\n"), done.stdout + done.stderr


def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path):
    check(tmp_path, range(1))


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_so_are_two_thousand(tmp_path):
    check(tmp_path, range(100, 250))


def main(words: list[str]) -> None:
    """``FAMILY|all NUMBER|FROM:TO [FOLDER]``; a single number runs in the open."""
    torch.set_num_threads(1)
    for name in ("datasets", "webdataset", "torch.profiler"):  # once, not in every case
        import_module(name)
    Image.init()
    which, number, *folder = words
    with tempfile.TemporaryDirectory() as temporary:
        base = Path(folder[0] if folder else temporary)
        if ":" not in number:
            good = base / which
            good.mkdir()
            FAMILIES[which].make(good)
            print(one_case(which, good, int(number), base / "cases" / "one"))
            return
        families = list(FAMILIES) if which == "all" else [which]
        numbers = range(*map(int, number.split(":")))
        count = 0
        for family in families:
            met, wrong = of_family(family, numbers, base)
            print(f"{family}: {met['read']} read, {met['refused']} refused", *wrong, sep="\n")
            count += len(wrong)
        print(f"{len(families) * len(numbers)} cases, {count} wrong")


if __name__ == "__main__":
    main(sys.argv[1:])
