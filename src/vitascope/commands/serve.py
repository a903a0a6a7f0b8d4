"""``vitascope report --serve``: the explorer on this machine, for images of one's own.

The server listens on 127.0.0.1 alone, answers only to its own name (against DNS rebinding) and
takes an image only with the token that stands in its page (against other pages in the browser).
"""

import errno
import hmac
import io
import json
import os
import secrets
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore
from time import monotonic
from typing import TYPE_CHECKING, Any

from vitascope.errors import UserError

if TYPE_CHECKING:
    from vitascope.explorer.live import Live

HOST = "127.0.0.1"
LOOK = "/look"
TYPES = ("image/png", "image/jpeg", "image/webp")
AT_ONCE = 4  # uploads being read; more are asked to come again
SECONDS = 30  # a request may take to arrive, and an answer to leave


class Server(ThreadingHTTPServer):
    """Knows its page, its models and its token."""

    daemon_threads = True
    allow_reuse_address = os.name == "posix"  # elsewhere it would take over a port in use

    def __init__(self, live: "Live", port: int):
        super().__init__((HOST, port), Handler)
        self.live, self.token = live, secrets.token_urlsafe(24)
        self.room = BoundedSemaphore(AT_ONCE)
        number = self.server_address[1]
        self.names = {f"{host}:{number}" for host in (HOST, "localhost")}
        self.page = self._page()

    @property
    def url(self) -> str:
        """Return the address of the page."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def _page(self) -> bytes:
        from vitascope.explorer.live import MOST_BYTES
        from vitascope.report.explorer.page import page

        live = {"path": LOOK, "token": self.token, "most": MOST_BYTES}
        return page(self.live.records, live).encode("utf-8")


class Arriving(io.RawIOBase):
    """A connection to read from until a moment, however slowly the bytes come."""

    def __init__(self, connection: socket.socket, seconds: float):
        self.connection, self.until = connection, monotonic() + seconds

    def readable(self) -> bool:
        """Return True: the stream is readable."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what has arrived; raise TimeoutError after the deadline."""
        left = self.until - monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long to arrive")
        self.connection.settimeout(left)
        return self.connection.recv_into(buffer)


class Handler(BaseHTTPRequestHandler):
    """One page, and one thing to ask."""

    server: Server
    timeout = SECONDS
    server_version, sys_version = "vitascope", ""

    def setup(self) -> None:
        """Read the whole request, head and body, within one time limit."""
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(Arriving(self.connection, self.timeout))

    def do_GET(self) -> None:
        """Serve the page."""
        if not self._at_home():
            return
        if self.path != "/":
            self._refuse(404, "there is only one page, at /")
            return
        self._send(200, "text/html; charset=utf-8", self.server.page)

    def do_POST(self) -> None:
        """Look at the image in the body."""
        self.close_connection = True  # a refused body is not read
        if not self._at_home():
            return
        if self.path != LOOK:
            self._refuse(404, f"images go to {LOOK}")
            return
        token = self.headers.get("X-Vitascope-Token", "")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(403, "reload the page: this one is not the server's own")
            return
        if not self.server.room.acquire(blocking=False):
            self._refuse(503, "busy with other images; try again")
            return
        try:
            self._look()
        finally:
            self.server.room.release()

    def _look(self) -> None:
        from vitascope.explorer.live import MOST_BYTES, Refusal
        from vitascope.report.explorer.data import data_of

        length = self.headers.get("Content-Length")
        if length is None or "Transfer-Encoding" in self.headers:
            self._refuse(411, "say how long the image is (Content-Length)")
        elif not (length.isascii() and length.isdigit() and len(length) < 20):
            self._refuse(400, "Content-Length is no number")
        elif int(length) > MOST_BYTES:
            self._refuse(413, f"the file is too large; at most {MOST_BYTES:,} bytes are taken")
        elif self.headers.get_content_type() not in TYPES:
            self._refuse(415, "only PNG, JPEG and WebP images are taken")
        else:
            raw = self._body(int(length))
            if raw is None:
                self._refuse(408, "the image did not arrive in time")
                return
            try:
                explored = self.server.live.explore(raw)
            except Refusal as refusal:
                self._refuse(refusal.status, str(refusal))
                return
            self._json(200, data_of(explored))

    def _body(self, length: int) -> bytes | None:
        """The body, or None if not all of it came."""
        try:
            raw = self.rfile.read(length)
        except OSError:
            return None
        return raw if len(raw) == length else None

    def _at_home(self) -> bool:
        """Asked by its own name, from its own page."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        if host in self.server.names and origin in (None, f"http://{host}"):
            return True
        self._refuse(403, "this server answers only to its own page")
        return False

    def _refuse(self, status: int, message: str) -> None:
        self._json(status, {"error": message})

    def _json(self, status: int, body: Any) -> None:
        self._send(status, "application/json", json.dumps(body, allow_nan=False).encode("utf-8"))

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def make_server(live: "Live", port: int) -> Server:
    """A server that listens and has not begun to answer; port 0 takes a free one."""
    _tried(port)
    return Server(live, port)


def _tried(port: int) -> None:
    """The port must be free.

    Raises:
        UserError: If it is not, with what to do.
    """
    try:
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name == "posix"))
            tried.bind((HOST, port))
    except OverflowError:
        raise UserError(f"no port {port}; there are 0 to 65535, and 0 takes a free one") from None
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        reason = "is taken" if taken else f"cannot be used: {error.strerror}"
        raise UserError(f"port {port} {reason}; give another, or --port 0 for a free one") from None


def serve(paths: Sequence[str], *, port: int = 8000, data: str | None = None) -> None:
    """Open the models, say where the page is, and answer until Ctrl-C."""
    from vitascope.explorer.live import Live

    _tried(port)  # before models are opened, which takes longer
    with make_server(Live.open(paths, data), port) as server:
        try:  # whoever reads the address may press Ctrl-C at once
            print(f"{server.url} (Ctrl-C ends)", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print()
