"""Shards behind an address: fetched once, whole or not at all."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
import webdataset

from vitascope.data import load
from vitascope.data.sources.fetch import fetched, home, kept_at
from vitascope.errors import UserError


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; ``/cut/...`` promises more bytes than it sends."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path.startswith("/cut/"):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"x" * 10)
        else:
            super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    (tmp_path / "served").mkdir()
    handler = partial(Handler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.asked, running.folder = [], tmp_path / "served"
        running.url = f"http://127.0.0.1:{running.server_port}"
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def write_shard(path, numbers):
    with webdataset.TarWriter(str(path)) as sink:
        for i in numbers:
            image = torch.full((8, 8, 3), i, dtype=torch.uint8).numpy()
            sink.write({"__key__": f"{i:03d}", "png": image, "cls": i % 2})


def test_shards_behind_an_address_are_fetched_once(server):
    write_shard(server.folder / "t-0.tar", range(6))
    write_shard(server.folder / "t-1.tar", range(6, 12))
    found = load(f"wds:{server.url}/t-{{0..1}}.tar", test_fraction=1 / 3)
    assert (len(found.train), len(found.test)) == (8, 4)
    values = sorted(
        [
            *found.train.pixels(range(8))[:, 0, 0, 0].tolist(),
            *found.test.pixels(range(4))[:, 0, 0, 0].tolist(),
        ]
    )
    assert values == list(range(12))
    assert server.asked == ["/t-0.tar", "/t-1.tar"]
    load(f"wds:{server.url}/t-{{0..1}}.tar", test_fraction=1 / 3)
    assert len(server.asked) == 2


def test_processes_that_ask_together_fetch_once(server):
    (server.folder / "big").write_bytes(bytes(1 << 20))
    asking = [threading.Thread(target=fetched, args=(f"{server.url}/big",)) for _ in range(4)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert server.asked == ["/big"]
    assert kept_at(f"{server.url}/big").stat().st_size == 1 << 20


@pytest.mark.parametrize(
    ("path", "said"),
    [("missing.tar", "404"), ("cut/short.tar", "ended after 10 of 1000 bytes|IncompleteRead")],
)
def test_what_cannot_be_had_is_explained_and_leaves_nothing(server, path, said):
    with pytest.raises(UserError, match=f"cannot fetch .*({said}).*copy the file to disk"):
        load(f"wds:{server.url}/{path}")
    assert {entry.suffix for entry in home().iterdir()} <= {".lock"}


def test_an_address_nobody_answers_is_explained(server):
    with pytest.raises(UserError, match="cannot fetch http://127.0.0.1:9/t.tar"):
        load("wds:http://127.0.0.1:9/t.tar")
