"""An OpenAI-compatible /embeddings endpoint on 127.0.0.1 that gives hashed vectors and misbehaves on demand.

Its `faults` meet the requests in order, those after them are answered: a status (`429`, `500`, `401`; the body repeats
the Authorization header, as a careless proxy would), `garbage` (HTML), `half` (a connection closed in the middle),
`stranger` (JSON of something else), `few` (a vector missing), `twice` (an index that occurs twice), `ragged` (one
vector shorter), `shuffled` (another order, right indices), `unnumbered` (no indices).
"""

import hashlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

DIMENSIONS = 6


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """What the endpoint answers for a text: numbers of 0 to 255, by its hash."""
    return [float(byte) for byte in hashlib.sha256(text.encode()).digest()[:dimensions]]


class EmbeddingServer:
    """`with EmbeddingServer(["429", "500"]) as server`, then `server.base_url`; `server.requests` has the bodies."""

    def __init__(self, faults: Sequence[str] = ()) -> None:
        self.faults, self.requests = list(faults), list[dict[str, Any]]()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.base_url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    owner: EmbeddingServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        fault = self.owner.faults.pop(0) if self.owner.faults else "ok"
        self.owner.requests.append(body)
        vectors = [vector(text, body.get("dimensions", DIMENSIONS)) for text in body["input"]]
        items: list[dict[str, Any]] = [{"index": index, "embedding": numbers} for index, numbers in enumerate(vectors)]
        changes: dict[str, Any] = {"twice": {"index": 0}, "ragged": {"embedding": [1.0]}}
        items[-1] |= changes.get(fault, {})
        answers: dict[str, Any] = {
            "few": items[:-1],
            "shuffled": items[::-1],
            "unnumbered": [{"embedding": item["embedding"]} for item in items],
        }
        data = json.dumps({"object": "list", "data": answers.get(fault, items), "model": body["model"]}).encode()
        refusal = json.dumps({"error": {"message": f"no: {self.headers['Authorization']}"}}).encode()
        texts = {"garbage": b"<html>It works!</html>", "stranger": b'{"weather": "fine"}'}
        status = int(fault) if fault.isdigit() else 200
        self._send(status, refusal if fault.isdigit() else texts.get(fault, data), cut=fault == "half")

    def _send(self, status: int, data: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if status in {429, 500}:
            self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if cut else data)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        pass
