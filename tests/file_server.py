"""A server of files on 127.0.0.1 that does what it is told to, request by request.

Standard library only; nothing of rag_notes is used, so that what is asserted here is asserted independently.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

Fault = str | int
"""What one request meets: a status, "cut:N" (N bytes of the body, then a closed connection), "hold:N" (N bytes, then
nothing until the server ends), "html" (a page, with status 200), "hang" (no answer), "elsewhere" (a range that was not
asked for), "ignore" (the range without regard to If-Range), "endless" (the body again and again, of unknown length)."""


class Seen(NamedTuple):
    path: str
    range: str | None
    if_range: str | None
    status: int


class FileServer:
    """`files` are the contents by path; `etag` and `changed` go with all of them ("": not sent)."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.etag, self.changed = '"one"', ""
        self.ranges = True
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.ending = threading.Event()

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ending.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/{path}"


def _handler(server: FileServer) -> Callable[..., BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fault = server.faults.pop(0) if server.faults else ""
            name, _, number = str(fault).partition(":")
            if name == "hang":
                self.log(0)
                server.ending.wait()
                self.close_connection = True
            elif name.isdecimal():
                self.answer(int(name), b"no", {"Content-Type": "text/html"})
            elif name == "html":
                self.answer(200, b"<!DOCTYPE html><p>Please confirm.", {"Content-Type": "text/html; charset=utf-8"})
            elif self.path[1:] not in server.files:
                self.answer(404, b"no", {"Content-Type": "text/html"})
            else:
                self.send_file(server.files[self.path[1:]], name, int(number or -1))

        def send_file(self, body: bytes, fault: str, number: int) -> None:
            headers = {"Content-Type": "application/octet-stream"}
            if server.etag:
                headers["ETag"] = server.etag
            if server.changed:
                headers["Last-Modified"] = server.changed
            asked = self.headers["Range"]
            held = self.headers["If-Range"]
            if not (asked and server.ranges and (held in (None, server.etag, server.changed) or fault == "ignore")):
                self.answer(200, body, headers, fault, number)
                return
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                self.answer(416, b"", headers | {"Content-Range": f"bytes */{len(body)}"})
                return
            start -= fault == "elsewhere"
            given = {"Content-Range": f"bytes {start}-{len(body) - 1}/{len(body)}"}
            self.answer(206, body[start:], headers | given, fault, number)

        def answer(self, status: int, body: bytes, headers: dict[str, str], fault: str = "", number: int = -1) -> None:
            self.log(status)
            self.send_response(status)
            if fault != "endless":
                headers = headers | {"Content-Length": str(len(body))}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # until nobody reads on
                while fault == "endless" and not server.ending.is_set():
                    self.wfile.write(body)
            self.wfile.write(body[:number] if fault in {"cut", "hold"} else body)
            self.wfile.flush()
            if fault == "hold":
                server.ending.wait()
            self.close_connection = True

        def log(self, status: int) -> None:
            server.seen.append(Seen(self.path[1:], self.headers["Range"], self.headers["If-Range"], status))

        def log_message(self, *args: object) -> None:
            pass

    return Handler
