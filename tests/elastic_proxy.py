"""A proxy that stands in front of an Elasticsearch and meddles."""

import contextlib
import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from tests.elastic import Secured

Forward = Callable[[bytes], tuple[int, bytes]]
Meddle = Callable[[str, bytes, Forward], tuple[int, bytes]]


class Proxy:
    """A server on 127.0.0.1 whose answers `meddle(path, body, forward)` gives; `forward(body)` asks `upstream`."""

    def __init__(self, meddle: Meddle, upstream: Secured | None = None) -> None:
        self.requests: list[tuple[str, bytes]] = []  # paths and bodies, in order
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the library
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requests.append((self.path, body))
                status, answer = meddle(self.path, body, self.forward)
                self.send_response(status)
                self.send_header("X-Elastic-Product", "Elasticsearch")
                kind = "application/json" if self.headers.get("Accept") == "*/*" else self.headers.get("Accept")
                self.send_header("Content-Type", kind or "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer if self.command != "HEAD" else b"")

            def forward(self, body: bytes) -> tuple[int, bytes]:
                assert upstream is not None
                host = upstream.url.removeprefix("https://")
                connection = http.client.HTTPSConnection(host, context=upstream.context(), timeout=60)
                names = ("Authorization", "Accept", "Content-Type")
                headers = {name: self.headers[name] for name in names if name in self.headers}
                connection.request(self.command, self.path, body or None, headers)
                answer = connection.getresponse()
                with contextlib.closing(connection):
                    return answer.status, answer.read()

            do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = answer  # noqa: N815 - the names in the library

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self, ending: str) -> list[bytes]:
        """The bodies of the requests whose path ends so."""
        return [body for path, body in self.requests if path.split("?")[0].endswith(ending)]
