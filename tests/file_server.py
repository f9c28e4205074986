"""A server of files on 127.0.0.1 that does what it is told to, request by request; nothing of rag_notes is used."""

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import NamedTuple, Self

Fault = str | int
"""What one request meets: a status, "cut:N" (N bytes of the body, then a closed connection), "html" (a page, with
status 200), "hang" (no answer), "endless" (the body again and again, of unknown length)."""


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
        handler = type("BoundHandler", (Handler,), {"files": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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


class Handler(BaseHTTPRequestHandler):
    files: FileServer

    def do_GET(self) -> None:
        files = self.files
        fault, _, number = str(files.faults.pop(0) if files.faults else "").partition(":")
        body, headers = files.files.get(self.path[1:], b"no"), {"ETag": files.etag, "Last-Modified": files.changed}
        version = self.headers["If-Range"]
        start = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if fault == "hang":
            self.log(0)
            files.ending.wait()
            self.close_connection = True
        elif fault == "html":
            self.answer(200, b"<!DOCTYPE html><p>Please confirm.", {"Content-Type": "text/html; charset=utf-8"})
        elif fault.isdecimal() or self.path[1:] not in files.files:
            self.answer(int(fault) if fault.isdecimal() else 404, b"no", {"Content-Type": "text/html"})
        elif not (start and files.ranges and version in (None, files.etag, files.changed)):
            self.answer(200, body, headers, fault, number)
        elif start >= len(body):
            self.answer(416, b"", headers)
        else:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
            self.answer(206, body[start:], headers, fault, number)

    def answer(self, status: int, body: bytes, headers: dict[str, str], fault: str = "", number: str = "") -> None:
        self.log(status)
        self.send_response(status)
        length = {} if fault == "endless" else {"Content-Length": str(len(body))}
        for name, value in (headers | length).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        with suppress(OSError):  # until nobody reads on
            while fault == "endless" and not self.files.ending.is_set():
                self.wfile.write(body)
            self.wfile.write(body[: int(number)] if fault == "cut" else body)
        self.close_connection = True

    def log(self, status: int) -> None:
        self.files.seen.append(Seen(self.path[1:], self.headers["Range"], self.headers["If-Range"], status))

    def log_message(self, *args: object) -> None:
        pass
