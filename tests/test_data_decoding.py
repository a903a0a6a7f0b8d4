"""One decoder: the same pixels from every source, with the white of the file's own format."""

import io
import os
import struct
import zlib

import datasets
import numpy as np
import pytest
import torch
import webdataset
from PIL import Image

from data_making import little_memory, no_waiting, photo
from vitascope.data import SegmentationFolder, augment, load, memory
from vitascope.data.decoding import TooLarge, fit, opened, shown_size, upright
from vitascope.data.file_batches import TrainView
from vitascope.errors import UserError
from vitascope.explorer import live

RAMP = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)  # n x 257 for n in 0 ... 255


def saved(image, kind, **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    stream.seek(0)
    return stream


def shades(image, kind, **options):
    return np.asarray(upright(opened(saved(image, kind, **options))))


def turned(width=12, height=8):
    """A photo that is stored lying and says so, and how it should look."""
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn to the right makes it upright
    lying = photo(1, width, height)
    return lying, exif, lying.transpose(Image.Transpose.ROTATE_270)


def long_png(width, height=1):
    """A PNG of black pixels that was never held in memory as such."""
    packer = zlib.compressobj(9)
    row, rows = bytes(1 + (width + 7) // 8), b""
    for _ in range(height):
        rows += packer.compress(row)
    rows += packer.flush()
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", rows)]
    out = b"\x89PNG\r\n\x1a\n"
    for name, body in [*chunks, (b"IEND", b"")]:
        out += struct.pack(">I", len(body)) + name + body
        out += struct.pack(">I", zlib.crc32(name + body))
    return out


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_sixteen_bits_keep_all_their_shades(kind):
    image = Image.fromarray(RAMP)
    image = image.convert("I") if kind == "PPM" else image
    assert shades(image, kind).flatten().tolist() == list(range(256))


def test_sixteen_bits_are_rounded_to_the_nearest_shade():
    values = np.array([[0, 128, 129, 32896, 65406, 65407, 65535]], dtype=np.uint16)
    assert shades(Image.fromarray(values), "PNG").tolist() == [[0, 0, 1, 128, 254, 255, 255]]


def test_twelve_bits_are_scaled_by_their_own_white():
    pixels = bytes([0x00, 0x08, 0x00, 0xFF, 0xFF, 0xFF])  # 0, 2048, 4095, 4095 packed in 12 bits
    tags = [(256, 4), (257, 1), (258, 12), (259, 1), (262, 1), (273, 8), (277, 1), (278, 1)]
    tags.append((279, len(pixels)))
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags)
    raw = b"II*\0" + struct.pack("<I", 14) + pixels
    raw += struct.pack("<H", len(tags)) + entries + bytes(4)
    assert np.asarray(upright(opened(io.BytesIO(raw)))).tolist() == [[0, 128, 255, 255]]


def test_fractions_run_from_black_to_white():
    values = np.linspace(0, 1, 256, dtype=np.float32).reshape(16, 16)
    assert shades(Image.fromarray(values), "TIFF").flatten().tolist() == list(range(256))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (np.array([[0, 200.0]], dtype=np.float32), "run from 0 to 200.*scale them to"),
        (np.array([[-0.5, 0.5]], dtype=np.float32), "run from -0.5 to 0.5"),
        (np.array([[0.5, np.nan, 0.5]], dtype=np.float32), "floating-point values"),
        (np.array([[0, 70000]], dtype=np.int32), "whole numbers of 32 bits"),
    ],
)
def test_values_without_a_known_white_are_refused(values, words):
    with pytest.raises(UserError, match=words):
        shades(Image.fromarray(values), "TIFF")


@pytest.mark.parametrize("limit", [memory.MEMORY_LIMIT, 100])
def test_a_folder_with_such_an_image_is_refused_by_its_name(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(memory, "MEMORY_LIMIT", limit)
    (tmp_path / "a").mkdir()
    photo(0, mode="L").save(tmp_path / "a/0.png")
    Image.fromarray(np.full((12, 12), 9.0, np.float32)).save(tmp_path / "a/1.tif")
    with pytest.raises(UserError, match=r"^\S*a/1.tif: its floating-point values run from 9") as e:
        load(str(tmp_path), test_fraction=0.01)
    assert "\n" not in str(e.value)


def test_worker_processes_refuse_in_one_line_too(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "WORTH_WORKERS", 1)
    (tmp_path / "a").mkdir()
    Image.fromarray(np.full((12, 12), 9.0, np.float32)).save(tmp_path / "a/1.tif")
    with pytest.raises(UserError, match=r"a/1.tif: its floating-point") as caught:
        load(str(tmp_path))
    assert "\n" not in str(caught.value)


def test_an_image_stands_as_its_exif_says():
    lying, exif, standing = turned()
    for kind, options in (("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True})):
        image = opened(saved(lying, kind, exif=exif, **options))
        assert shown_size(image) == (8, 12)
        assert upright(image).tobytes() == standing.tobytes()
    deep = Image.fromarray(RAMP[:4])
    expected = np.rot90(np.arange(64).reshape(4, 16), -1)
    assert (shades(deep, "PNG", exif=exif) == expected).all()


def test_transparent_pixels_lie_on_white():
    clear = Image.new("RGBA", (2, 1), (0, 0, 0, 0))
    clear.putpixel((1, 0), (10, 20, 30, 255))
    assert shades(clear, "PNG").tolist() == [[[255] * 3, [10, 20, 30]]]
    grey = clear.convert("LA")
    assert shades(grey, "PNG").tolist() == [[255, 18]]
    palette = Image.new("P", (2, 1))
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.putpixel((1, 0), 1)
    assert shades(palette, "PNG", transparency=0).tolist() == [[[255] * 3, [9] * 3]]
    deep = Image.fromarray(np.array([[7, 257]], dtype=np.uint16))
    assert shades(deep, "PNG", transparency=7).tolist() == [[255, 1]]


def awkward():
    """Files of every kind that the sources once read differently; all of 8 x 12."""
    lying, exif, _ = turned()
    glass = photo(2, 8, 12).convert("RGBA")
    glass.putalpha(photo(3, 8, 12, "L"))
    deep = Image.fromarray(np.asarray(photo(4, 8, 12, "L"), dtype=np.uint16) * 257)
    files = [("PNG", lying, {"exif": exif}), ("PNG", glass, {}), ("PNG", deep, {})]
    return [saved(image, kind, **options).getvalue() for kind, image, options in files]


@pytest.mark.parametrize("in_chans", [1, 3])
def test_every_way_in_gives_the_same_pixels(tmp_path, monkeypatch, in_chans):
    files = awkward()
    expected = torch.stack(
        [
            torch.from_numpy(np.array(fit(live.decode(raw).convert(mode), 8, 8))).view(8, 8, -1)
            for raw in files
            for mode in [{1: "L", 3: "RGB"}[in_chans]]
        ]
    ).permute(0, 3, 1, 2)
    (tmp_path / "f/train/a").mkdir(parents=True)
    (tmp_path / "f/test/a").mkdir(parents=True)
    (tmp_path / "net/val/n01440764").mkdir(parents=True)
    with webdataset.TarWriter(str(tmp_path / "s.tar")) as sink:
        for i, raw in enumerate(files):
            (tmp_path / f"f/train/a/{i}.png").write_bytes(raw)
            (tmp_path / f"f/test/a/{i}.png").write_bytes(raw)
            (tmp_path / f"net/val/n01440764/{i}.png").write_bytes(raw)
            sink.write({"__key__": str(i), "png": raw, "cls": 0})
    features = datasets.Features({"img": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"img": [{"bytes": raw, "path": None} for raw in files], "label": [0] * 3}
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table}).save_to_disk(str(tmp_path / "hf"))
    shards = f"wds:{tmp_path}/s.tar?test={tmp_path}/s.tar"
    for limit in (memory.MEMORY_LIMIT, 100):
        monkeypatch.setattr(memory, "MEMORY_LIMIT", limit)
        for source in (f"{tmp_path}/f", shards, f"hf:{tmp_path}/hf"):
            found = load(source, image_size=8, in_chans=in_chans)
            assert torch.equal(found.train.pixels([0, 1, 2]), expected), source
    images = load(f"imagenet:{tmp_path}/net", image_size=8, in_chans=in_chans).test
    images.crop_pct = 1.0
    assert torch.equal(images.pixels([0, 1, 2]), expected)


def test_sixteen_bit_images_are_grey(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(3):
        Image.fromarray(RAMP).save(tmp_path / f"a/{i}.png")
    found = load(str(tmp_path))
    assert found.train.size == (1, 16, 16)
    assert found.mean == pytest.approx((0.5,))


def test_segmentation_uses_the_same_decoder(tmp_path):
    lying, exif, standing = turned()
    for part in ("images", "annotations"):
        (tmp_path / part / "validation").mkdir(parents=True)
    lying.save(tmp_path / "images/validation/0.png", exif=exif)
    Image.new("L", standing.size, 1).save(tmp_path / "annotations/validation/0.png")
    folder = SegmentationFolder(tmp_path, "validation", side=8)
    assert folder.read(0)[0].tobytes() == standing.tobytes()
    (tmp_path / "images/validation/0.png").write_bytes(long_png(1_000_000))
    Image.new("L", (1_000_000, 1), 1).save(tmp_path / "annotations/validation/0.png")
    with pytest.raises(UserError, match="1000000 x 1 pixels; with its shorter side at 512"):
        SegmentationFolder(tmp_path, "validation")[0]


# --- size


@pytest.mark.parametrize("size", [(40, 30), (31, 77), (9, 200), (12, 12), (5, 4)])
@pytest.mark.parametrize("crop_pct", [1.0, 0.875])
def test_scaling_the_centre_is_the_centre_of_the_scaled_image(size, crop_pct):
    image = photo(5, *size)
    scale = max(16 / image.height, 12 / image.width) / crop_pct
    whole = (max(12, round(image.width * scale)), max(16, round(image.height * scale)))
    left, top = round((whole[0] - 12) / 2), round((whole[1] - 16) / 2)
    scaled = image.resize(whole, Image.Resampling.BICUBIC)
    expected = np.asarray(scaled.crop((left, top, left + 12, top + 16)), dtype=int)
    found = np.asarray(fit(image, 16, 12, crop_pct), dtype=int)
    assert np.abs(found - expected).max() <= 1


@pytest.mark.parametrize("shape", [(1_000_000, 1), (1, 1_000_000)])
def test_a_very_long_image_is_not_scaled_up_as_a_whole(shape):
    view = TrainView(augment.none(), side=224, hflip=0, fill=[0])
    with little_memory(300):
        image = upright(opened(io.BytesIO(long_png(*shape))))
        assert fit(image, 224, 224).size == (224, 224)
        assert view(image, 0).shape == (1, 224, 224)


def test_too_many_pixels_are_not_decoded(tmp_path):
    with little_memory(100):
        with pytest.raises(TooLarge, match="10000 x 9000 pixels; at most 89,478,485"):
            opened(io.BytesIO(long_png(10_000, 9_000)))
        with pytest.raises(TooLarge, match="more than 89,478,485"):
            opened(io.BytesIO(long_png(20_000, 9_000)))
    (tmp_path / "a").mkdir()
    photo(0).save(tmp_path / "a/0.png")
    photo(1).save(tmp_path / "a/1.png")
    (tmp_path / "a/2.png").write_bytes(long_png(20_000, 9_000))
    with pytest.warns(UserWarning, match="skipped broken image .*2.png: it has more than"):
        found = load(str(tmp_path))
    assert len(found.train) + len(found.test) == 2


# --- what is no image


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for i in range(3):
        photo(i).save(tmp_path / f"a/{i}.png")
    return tmp_path


def make_socket(path):
    import socket

    home = os.getcwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(home)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (os.mkfifo, "not a regular file"),
        (make_socket, "not a regular file"),
        (os.mkdir, "a folder"),
        (lambda p: p.symlink_to(p.name), "symbolic links"),
        (lambda p: p.symlink_to("nowhere"), "No such file"),
        (lambda p: p.symlink_to("/dev/zero"), "not a regular file"),
        (lambda p: p.touch(), "no image"),
        (lambda p: p.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"), "no image"),
    ],
)
def test_what_is_no_image_is_named_with_the_reason_and_skipped(folder, make, why):
    make(folder / "a/x.png")
    with no_waiting(), pytest.warns(UserWarning, match=f"skipped broken image .*x.png: .*{why}"):
        found = load(str(folder))
    assert len(found.train) + len(found.test) == 3


def test_folders_that_link_in_a_circle_are_walked_once(folder):
    (folder / "a/again").symlink_to("..")
    with no_waiting():
        assert len(load(str(folder)).train) == 2


def test_a_source_that_is_a_circle_of_links_or_no_file_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "f").mkdir()
    os.mkfifo(tmp_path / "f/labels.json")
    with no_waiting():
        with pytest.raises(UserError, match=r"loop cannot be opened: .*symbolic links"):
            load(str(tmp_path / "loop"))
        for prefix in ("", "wds:", "cifar10:", "idx:"):
            with pytest.raises(UserError, match="pipe is not a regular file; give a"):
                load(f"{prefix}{tmp_path}/pipe")
        with pytest.raises(UserError, match="is not a regular file"):
            load(f"imagenet-real:{tmp_path}?labels={tmp_path}/f/labels.json")
    with pytest.raises(UserError, match="cannot be opened: File name too long"):
        load(f"{tmp_path}/{'x' * 5000}")
    with pytest.raises(UserError, match="no such user"):
        load("~nobody-of-this-name/images")


@pytest.mark.parametrize("source", ["", "  "])
def test_an_empty_source_is_not_the_current_folder(folder, monkeypatch, source):
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match="the data source is empty; give digits"):
        load(source)
    assert load(".").classes == ("a",)


def test_file_names_need_not_be_text_but_class_names_must(folder):
    strange = os.fsencode(folder / "a") + b"/\xff.png"
    with open(strange, "wb") as file:
        file.write(saved(photo(9), "PNG").getvalue())
    found = load(str(folder))
    assert len(found.train) + len(found.test) == 4
    with open(strange, "wb") as file:
        file.write(b"")
    with pytest.warns(UserWarning, match=r"skipped broken image .*\\udcff.png"):
        notes = load(str(folder)).notes
    assert all(note.isascii() for note in notes)
    os.mkdir(os.fsencode(folder) + b"/\xfe")
    with pytest.raises(UserError, match=r"class folder .*\\udcfe is not UTF-8; rename it"):
        load(str(folder))


def test_train_and_test_folders_without_classes_are_no_classes(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        photo(0).save(tmp_path / part / "0.png")
    with pytest.raises(UserError, match="train has 1 images but no folders"):
        load(str(tmp_path))


def test_many_broken_images_are_counted(folder):
    for i in range(30):
        (folder / f"a/empty{i:02d}.png").touch()
    with pytest.warns(UserWarning, match="skipped 10 more broken images") as caught:
        load(str(folder))
    assert len(caught) == 21


@pytest.mark.filterwarnings("ignore")  # pillow's own, of what it mends
def test_mutated_images_are_skipped_or_read_but_raise_nothing_else():
    rng = np.random.default_rng(0)
    tiff = saved(Image.fromarray(RAMP), "TIFF", compression="tiff_lzw").getvalue()
    gif = saved(photo(1).convert("P"), "GIF").getvalue()
    jpeg = saved(photo(1), "JPEG", exif=turned()[1]).getvalue()
    outcomes, said = set(), []
    for raw in [*awkward(), tiff, gif, jpeg, saved(photo(1), "BMP").getvalue()]:
        for _ in range(40):
            changed = bytearray(raw)
            for place in rng.integers(0, len(raw), rng.integers(1, 6)):
                changed[place] = rng.integers(256)
            changed = bytes(changed[: rng.integers(1, len(raw) + 1)])
            try:
                with opened(io.BytesIO(changed)) as image:
                    outcomes.add(upright(image).mode)
            except (OSError, UserError) as error:
                said.append(str(error))
                outcomes.add(type(error).__name__)
    assert not any("\n" in words for words in said)
    assert {"RGB", "OSError", "UnidentifiedImageError"} <= outcomes
