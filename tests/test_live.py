"""The explorer's server: what it answers, and what it does not take."""

import http.client
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from data_making import little_memory
from explorer_making import serving
from vitascope import capture
from vitascope.commands import main
from vitascope.commands.serve import AT_ONCE, Handler, Server, make_server
from vitascope.errors import UserError
from vitascope.explorer.live import MOST_BYTES, Live, Refusal, decode, runs_in
from vitascope.report.explorer import attention_maps as stored_maps


def encoded(kind="PNG", size=(20, 30), mode="RGB"):
    """A file of some colours."""
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8))
    stream = BytesIO()
    image.convert(mode).save(stream, kind)
    return stream.getvalue()


def png_header(width, height):
    """A PNG that claims a size and holds nothing."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    check = struct.pack(">I", zlib.crc32(body))
    pixels = struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + check + pixels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A comparison of a second or two."""
    out = tmp_path_factory.mktemp("live") / "c"
    words = "compare --data digits --epochs 1 --fractions 0.05 --seeds 0 --processes 1"
    words += " --models convit_micro --set batch_size=16 scale_epochs=false --quiet"
    assert main([*words.split(), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def server(folder):
    with serving(Live.open([str(folder)])) as running:
        yield running


def ask(server, method="POST", path="/look", body=None, **headers):
    """(status, body) of a request; header names are given with underscores, None leaves one out."""
    port = server.server_address[1]
    wanted = {"Host": f"127.0.0.1:{port}", "X-Vitascope-Token": server.token}
    wanted |= {"Content-Type": "image/png", "Content-Length": str(len(body or b""))}
    wanted |= {name.replace("_", "-"): value for name, value in headers.items()}
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in wanted.items():
        if value is not None:
            link.putheader(name, value)
    link.endheaders(body)
    answer = link.getresponse()
    text = answer.read()
    link.close()
    return answer, json.loads(text) if answer.getheader("Content-Type") != HTML else text.decode()


HTML = "text/html; charset=utf-8"


def test_a_comparison_is_opened_at_its_fullest_fraction_and_first_seed(folder, tmp_path):
    (run,) = folder.glob("runs/convit_micro-*/seed-0")
    assert runs_in(str(folder)) == [str(run)]
    assert runs_in("vit_micro") == ["vit_micro"]
    assert runs_in("hf:google/vit") == ["hf:google/vit"]
    with pytest.raises(UserError, match="there is no runs/mistyped; give a run"):
        runs_in("runs/mistyped")
    cells = [
        {"model": model, "fraction": f, "seed": seed, "folder": f"runs/{model}/{f}/{seed}"}
        for f in (0.1, 1.0)
        for model in ("a/b", "cnn")
        for seed in (3, 0)
    ]
    (tmp_path / "compare.json").write_text("{")
    with pytest.raises(UserError, match="is no comparison; make it again"):
        runs_in(str(tmp_path))
    (tmp_path / "compare.json").write_text(json.dumps({"values": {"cells": cells}}))
    with pytest.raises(UserError, match="has attention"):
        runs_in(str(tmp_path))
    (tmp_path / "explorer").mkdir()
    (tmp_path / "explorer/a_b.json").touch()
    assert runs_in(str(tmp_path)) == [str(tmp_path / "runs/a/b/1.0/3")]


def test_the_page_is_given_with_its_token_and_may_be_framed_by_nobody(server):
    answer, page = ask(server, "GET", "/")
    assert answer.status == 200
    assert server.token in page
    assert 'id="ex-file"' in page
    assert answer.getheader("X-Frame-Options") == "DENY"
    assert "connect-src 'self'" in page
    assert ask(server, "GET", "/etc/passwd")[0].status == 404


@pytest.mark.parametrize(
    ("kind", "mode"), [("PNG", "RGBA"), ("PNG", "P"), ("JPEG", "L"), ("WEBP", "RGB")]
)
def test_an_image_is_looked_at_whatever_its_kind(server, kind, mode):
    answer, data = ask(server, body=encoded(kind, mode=mode), Content_Type=f"image/{kind.lower()}")
    assert answer.status == 200
    (model,) = data["models"]
    assert model["label"] == "convit_micro"
    assert [layer["heads"] for layer in model["layers"]] == [9] * 4
    assert model["images"] == list(data["images"])
    assert model["answers"][0][0][2] is None  # nobody knows what it is
    assert model["epochs"] == [1]


def test_an_uploaded_image_gives_the_maps_the_model_uses(server):
    (record,) = server.live.explore(encoded(size=(8, 8), mode="L"))
    (opened,) = server.live.models
    shown = Image.open(BytesIO(record.arrays["image/0"].tobytes()))
    mean, std = opened.session.statistics
    batch = (torch.from_numpy(np.array(shown)) / 255 - mean[0]) / std[0]
    with capture.attention(opened.session.model) as used:
        opened.session.model(batch[None, None].float())
    for layer in record.values["layers"]:
        found = stored_maps.mixed(record, layer["name"])
        truth = used[layer["name"]][0, :, -16:, -16:]
        truth = truth / truth.sum(-1, keepdim=True)
        assert np.abs(found - truth.numpy()).sum(-1).max() / 2 <= 0.02


@pytest.mark.parametrize(
    ("status", "words", "headers", "body"),
    [
        (411, "Content-Length", {"Content_Length": None}, None),
        (411, "Content-Length", {"Transfer_Encoding": "chunked"}, None),
        (400, "no number", {"Content_Length": "-5"}, None),
        (413, "too large", {"Content_Length": str(MOST_BYTES + 1)}, None),
        (415, "only PNG", {"Content_Type": "image/svg+xml"}, b"<svg/>"),
        (415, "no PNG, JPEG or WebP", {}, b"GIF89a" + b"\0" * 50),
        (415, "no PNG, JPEG or WebP", {}, b""),
        (413, "30000 x 30000|40,000,000 pixels", {}, png_header(30000, 30000)),
        (413, "40000001 x 1", {}, png_header(40_000_001, 1)),
        (422, "broken", {}, png_header(40_000_000, 1)),
        (413, "7000 x 7000", {}, png_header(7000, 7000)),
        (422, "broken", {}, encoded()[:200]),
        (422, "broken", {}, encoded("JPEG")[:12]),
        (422, "broken", {}, png_header(8, 8)),
        (403, "own page", {"Host": "evil.example"}, encoded()),
        (403, "own page", {"Origin": "http://evil.example"}, encoded()),
        (403, "reload the page", {"X_Vitascope_Token": "guess"}, encoded()),
        (403, "reload the page", {"X_Vitascope_Token": None}, encoded()),
    ],
)
def test_what_is_not_taken_is_refused_in_words(server, status, words, headers, body):
    answer, said = ask(server, body=body, **headers)
    assert answer.status == status
    assert re.search(words, said["error"])
    assert ask(server, "GET", "/")[0].status == 200  # and it goes on


def test_a_file_over_the_limit_is_refused_undecode():
    with pytest.raises(Refusal, match="at most") as caught:
        decode(b"\0" * (MOST_BYTES + 1))
    assert caught.value.status == 413


def test_transparent_pixels_are_shown_on_white():
    stream = BytesIO()
    Image.new("RGBA", (2, 2), (0, 0, 0, 0)).save(stream, "PNG")
    assert decode(stream.getvalue()).getpixel((0, 0)) == (255, 255, 255)


def test_a_very_long_image_is_answered(server):
    stream = BytesIO()
    Image.new("1", (1_000_000, 1)).save(stream, "PNG")
    with little_memory(500):
        answer, data = ask(server, body=stream.getvalue())
    assert answer.status == 200
    assert len(data["images"]) == 1


def test_an_image_whose_white_is_not_known_is_refused():
    with pytest.raises(Refusal, match="no PNG, JPEG or WebP"):
        stream = BytesIO()
        Image.fromarray(np.zeros((2, 2), np.float32)).save(stream, "TIFF")
        decode(stream.getvalue())


def trickle(server, parts, stop):
    """Send a request piece by piece, as slowly as ``stop`` lets it; what comes back."""
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=30) as link:
        for part in parts:
            try:
                link.sendall(part)
            except OSError:  # closed at the other end
                break
            if stop.wait(0.05):
                break
        try:
            return link.recv(4096)
        except ConnectionError:
            return b""


def test_an_upload_that_trickles_gives_its_place_back(server, monkeypatch):
    """Each byte comes well within the limit, and the whole does not."""
    monkeypatch.setattr(Handler, "timeout", 0.5)
    head = f"POST /look HTTP/1.0\r\nHost: 127.0.0.1:{server.server_address[1]}\r\n"
    head += f"X-Vitascope-Token: {server.token}\r\nContent-Type: image/png\r\n"
    head += "Content-Length: 5000\r\n\r\n"
    stop, replies = threading.Event(), []
    parts = [head.encode(), *[b"x"] * 400]
    threads = [
        threading.Thread(target=lambda: replies.append(trickle(server, parts, stop)))
        for _ in range(AT_ONCE)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    stop.set()
    assert len(replies) == AT_ONCE
    for _ in range(AT_ONCE):  # every place is free again
        assert server.room.acquire(timeout=10)
    for _ in range(AT_ONCE):
        server.room.release()


def test_a_late_image_is_told_so_and_a_late_head_ends(server, monkeypatch):
    monkeypatch.setattr(Handler, "timeout", 0.5)
    answer, said = ask(server, body=b"half", Content_Length="8")
    assert (answer.status, said["error"]) == (408, "the image did not arrive in time")
    parts = [b"GET / HTTP/1.0\r\n", *[b"a"] * 400]
    assert trickle(server, parts, threading.Event()) == b""


def test_it_listens_on_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"


def test_a_taken_port_is_a_users_mistake(server, folder, capsys):
    port = server.server_address[1]
    with pytest.raises(UserError, match=f"port {port} is taken"):
        make_server(server.live, port)
    with pytest.raises(UserError, match="no port 70000"):
        make_server(server.live, 70000)
    assert main(["report", "--serve", str(folder), "--port", str(port)]) == 2
    assert "is taken; give another" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["address", "serving"])
def test_an_interrupt_ends_it_from_the_address_on(folder, monkeypatch, capsys, moment):
    """Both moments made certain: a signal sent to a process falls into either."""
    opened = []

    def stop(*_, **__):
        raise KeyboardInterrupt

    def address(server):
        opened.append(server)
        if moment == "address":
            monkeypatch.setattr(sys.stdout, "flush", lambda: (monkeypatch.undo(), stop()))
        return f"http://here:{server.server_address[1]}/"

    monkeypatch.setattr(Server, "url", property(address))
    monkeypatch.setattr(Server, "serve_forever", stop)
    assert main(["report", "--serve", str(folder), "--port", "0"]) == 0
    assert "http://here" in capsys.readouterr().out
    assert opened[0].socket.fileno() == -1  # closed


def test_it_ends_cleanly_with_an_interrupt(folder):
    words = [sys.executable, "-m", "vitascope", "report", "--serve", str(folder), "--port", "0"]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert re.match(r"http://127\.0\.0\.1:\d+/ ", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    assert errors == ""
