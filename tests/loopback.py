"""An OpenAI-compatible server on 127.0.0.1, in a process of its own, that answers by rote and misbehaves on demand.

The answer is determined by a hash of the request's body. A prompt may hold a script of faults in angle brackets,
`<500 500 garbage>`: the first request with this body meets the first fault, the second one the next, and later ones
are answered. The faults are the statuses of ERRORS, the changes to an answer of CHANGES, and `hang` (no answer, ever),
`reset` (the connection torn down), `half` (half the body, then a closed connection), `ssh` (another protocol),
`garbage` (HTML instead of JSON), `halfjson` (JSON that ends in the middle), `stranger` (JSON that is no completion) and
`error` (an error in a 200). `sure`, `nan`, `few` and `think` have log-probabilities.

Without a script, `rate` of all requests meet one of FAULTS, drawn by `seed`, the body and how often it came.
`logprobs` are given where requested, by a hash of the word.

Standard library only; nothing of rag_notes is used, so that what is asserted here is asserted independently.
"""

import asyncio
import hashlib
import json
import math
import random
import re
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Self

SCRIPT = re.compile(r"<(\w+(?: \w+)*)>")
FAULTS = ("429", "busy", "500", "503", "reset", "half", "garbage", "nochoice", "blank", "null", "hang", "alias")
EMPTY = {"blank", "null"}
ERRORS: dict[str, tuple[int, Any]] = {
    "400": (400, {"error": {"message": "logprobs are not supported by this model"}}),
    "new": (400, {"error": {"message": "Unsupported parameter", "param": "max_tokens"}}),
    "both": (400, {"error": {"message": "`temperature` and `top_p` cannot both be specified for this model."}}),
    "busy": (429, {"error": {"message": "not now", "code": "rate_limit_exceeded"}}),
    "later": (429, {"error": {"message": "not now", "code": "rate_limit_exceeded"}}),  # Retry-After: an hour
    "quota": (429, {"error": {"message": "not now", "code": "insufficient_quota"}}),
    "credit": (402, {"error": {"message": "Insufficient Balance", "type": "unknown_error"}}),
    "moderated": (403, {"error": {"message": "Your input was flagged", "code": 403}}),
    "nokey": (403, {"error": {"message": "Your API key may not use this model", "code": 403}}),
    "detail": (422, {"detail": [{"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Not permitted"}]}),
    "listed": (400, [{"error": {"code": 400, "message": "max_tokens is too large: this model's maximum is 4096"}}]),
    "escape": (500, {"error": {"message": "\x1b[31mred\x1b[0m \x1b]0;title\x07 \ud800 \r\b" + "x" * 5000}}),
}
BODIES = {
    "garbage": b"<html>It works!</html>",
    "stranger": b'{"weather": "fine"}',
    "error": b'{"error": {"message": "not for you", "code": 402}, "choices": null}',
}
PARTS = [{"type": "text", "text": text} for text in ("Hm.", "Pa", "ris")]
CHANGES: dict[str, dict[str, Any]] = {  # to the message, to the choice beside it, to the completion beside that
    "blank": {"content": ""},
    "null": {"content": None},
    "badtext": {"content": 42},
    "refusal": {"content": None, "refusal": "I cannot help with that."},
    "parts": {"content": [{"type": "thinking", "thinking": [PARTS[0]]}, *PARTS[1:]]},
    "reasoned": {"reasoning_content": "Let me see."},
    "thinking": {"content": "<think>\nLet me", "choice": {"finish_reason": "length"}},
    "bracket": {"content": "[THINK]Let me see.[/THINK]\nParis"},
    "length": {"choice": {"finish_reason": "length"}},
    "cut": {"choice": {"finish_reason": "MAX_TOKENS"}},
    "uncut": {"choice": {"finish_reason": None}},
    "abort": {"choice": {"finish_reason": "error", "error": {"message": "overloaded"}}},
    "filter": {"choice": {"finish_reason": "content_filter"}},
    "nochoice": {"completion": {"choices": []}},
    "nousage": {"completion": {"usage": None}},
    "fraction": {"completion": {"usage": {"prompt_tokens": 6.5, "completion_tokens": 7.0}}},
    "alias": {"completion": {"model": "/models/other.gguf"}},
}


class Seen(NamedTuple):
    """One request as the server saw it: hash of its body, requests open at that moment, what it met."""

    hash: str
    simultaneous: int
    met: str


def body_hash(body: dict[str, Any]) -> str:
    """The hash under which the server logs a body, whatever the order of its fields."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class Loopback:
    """The server as its tests see it: `with Loopback(log) as server`, then `server.base_url` and `server.seen()`.

    `delay` is in seconds. `judge` is what a judge's prompt gets: "hash", "True" or "False". With `together`, no request
    is answered before so many are open at the same time. `rate`, `seed` and `logprobs` are explained above.
    """

    def __init__(self, log: Path, **options: Any) -> None:
        self._log = log
        self._command = [sys.executable, __file__, json.dumps({"log": str(log), **options})]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()  # the server ends with its standard input

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def seen(self) -> list[Seen]:
        """All requests so far, in the order of their arrival."""
        rows = (line.split() for line in self._log.read_text(encoding="utf-8").splitlines())
        return [Seen(name, int(simultaneous), met) for name, simultaneous, met in rows]

    def pause_after(self, number: int | None) -> None:
        """Leave every request after the `number`-th in all without an answer (None: answer them again)."""
        self._tell(f"pause/{number or sys.maxsize}").close()

    def when_seen(self, number: int) -> socket.socket:
        """A connection that becomes readable as soon as the server has seen `number` requests in all."""
        return self._tell(f"wait/{number}", answered=False)

    def wait_until_left(self) -> None:
        """Return when all connections made so far are closed, and so all that was sent on them is logged."""
        self._tell("left").close()

    def _tell(self, path: str, *, answered: bool = True) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), timeout=30)
        connection.sendall(f"GET /{path} HTTP/1.1\r\n\r\n".encode())
        if answered:
            connection.recv(1)
        return connection


class _Server:
    def __init__(
        self,
        log: str,
        *,
        delay: float = 0.0,
        judge: str = "hash",
        together: int = 1,
        rate: float = 0.0,
        seed: int = 0,
        logprobs: bool = False,
    ) -> None:
        self.delay, self.judge, self.together = delay, judge, together
        self.rate, self.seed, self.logprobs = rate, seed, logprobs
        self.log = Path(log).open("ab", buffering=0)  # noqa: SIM115  (open as long as the process)
        self.simultaneous = self.total = 0
        self.times: Counter[str] = Counter()
        self.held: list[tuple[Connection, bytes]] = []
        self.pause_after = sys.maxsize
        self.connections: set[Connection] = set()
        self.waiting: list[tuple[Callable[[], bool], Connection]] = []

    def receive(self, connection: "Connection", head: str, body: bytes) -> None:
        match head.split()[:2]:
            case ["POST", "/v1/chat/completions"]:
                self.complete(connection, head, body)
            case ["GET", path] if path.startswith("/pause/"):
                self.pause_after = int(path.removeprefix("/pause/"))
                connection.reply(_http(200, b"{}"))
            case ["GET", path] if path.startswith("/wait/"):
                number = int(path.removeprefix("/wait/"))
                self.waiting.append((lambda: self.total >= number, connection))
            case ["GET", "/left"]:
                self.waiting.append((lambda: self.connections == {connection}, connection))
            case _:
                connection.reply(_http(404, b"{}"))
        self.tell()

    def complete(self, connection: "Connection", head: str, body: bytes) -> None:
        request = json.loads(body)
        prompt = request["messages"][-1]["content"]
        name = body_hash(request)
        script = SCRIPT.search(prompt)
        faults = script[1].split() if script else []
        met = faults[self.times[name]] if self.times[name] < len(faults) else "ok"
        draw = random.Random(f"{self.seed} {name} {self.times[name]}")
        if not faults and draw.random() < self.rate:  # empty at first at most: an answer that stays empty is kept
            met = draw.choice(FAULTS if self.times[name] < 4 else [fault for fault in FAULTS if fault not in EMPTY])
        self.times[name] += 1
        self.simultaneous += 1
        self.total += 1
        self.log.write(f"{name} {self.simultaneous} {met}\n".encode())
        connection.open = True
        if met == "hang" or self.total > self.pause_after:
            return
        if met == "reset":
            connection.transport.abort()
            return
        key = next((line for line in head.splitlines() if line.lower().startswith("authorization")), "")
        with_logprobs = self.logprobs and request.get("logprobs", False)
        answer = _answer(name, prompt, request["model"], self.judge, met, key, with_logprobs)
        self.held.append((connection, answer))
        if len(self.held) >= self.together:
            for held, data in self.held:
                asyncio.get_running_loop().call_later(self.delay, held.reply, data, met in {"half", "ssh"})
            self.held.clear()

    def tell(self) -> None:
        for item in [item for item in self.waiting if item[0]()]:
            self.waiting.remove(item)
            item[1].reply(_http(200, b"{}"))


class Connection(asyncio.Protocol):
    """One kept-alive HTTP/1.1 connection; a client has one request open on it at a time."""

    def __init__(self, server: _Server) -> None:
        self.server = server
        self.buffer = b""
        self.open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        match = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        length = int(match[1]) if match else 0
        if len(rest) >= length:
            self.buffer = rest[length:]
            self.server.receive(self, head.decode("latin-1"), rest[:length])

    def connection_lost(self, exc: Exception | None) -> None:
        self.server.simultaneous -= self.open
        self.server.connections.discard(self)
        self.server.tell()

    def reply(self, data: bytes, and_close: bool = False) -> None:
        self.server.simultaneous -= self.open
        self.open = False
        if not self.transport.is_closing():
            self.transport.write(data)
            if and_close:
                self.transport.close()


def _http(status: int, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode() + body


def _answer(name: str, prompt: str, model: str, judge: str, met: str, key: str, with_logprobs: bool) -> bytes:
    if met in ERRORS:
        status, error = ERRORS[met]
        return _http(status, json.dumps(error).encode(), more="Retry-After: 3600\r\n" if met == "later" else "")
    if met.isdigit():
        # In milliseconds the client obeys it at once; a Retry-After of 0 alone makes it back off for half a second.
        more = "Retry-After: 0\r\nRetry-After-Ms: 1\r\n" if met in {"429", "500", "503"} else ""
        return _http(int(met), json.dumps({"error": {"message": f"no: {key}", "code": met}}).encode(), more=more)
    if met == "ssh":
        return b"SSH-2.0-OpenSSH_9.9\r\n\r\n"
    if met in BODIES:
        return _http(200, BODIES[met])
    change, text = CHANGES.get(met, {}), _text(name, prompt, judge)
    text = f"<think>\nLet me see.\n</think>\n\n{text}" if met == "think" else text
    message: dict[str, Any] = {"role": "assistant", "content": text}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": "stop"} | change.get("choice", {})
    message |= {field: value for field, value in change.items() if field not in ("choice", "completion")}
    usage: dict[str, Any] = {"prompt_tokens": len(prompt) // 4, "completion_tokens": 7}
    usage |= {"completion_tokens_details": {"reasoning_tokens": 5}} if met == "reasoned" else {}
    if met in {"sure", "nan", "few", "think"} or (with_logprobs and met in {"ok", "alias"}):
        words = re.findall(r"\S+\s*", str(message["content"]))
        values = [_logprob(name, word) if with_logprobs else 0.0 for word in words]
        values[0] = math.nan if met == "nan" else values[0]
        items = [{"token": word, "logprob": value} for word, value in zip(words, values, strict=True)]
        choice["logprobs"] = {"content": items[: 2 if met == "few" else None]}
    head = {"id": f"chatcmpl-{name[:12]}", "object": "chat.completion", "created": 0, "model": model}
    completion = head | {"choices": [choice], "usage": usage} | change.get("completion", {})
    data = json.dumps(completion).encode()
    if met == "halfjson":
        return _http(200, data[: len(data) // 2])
    answer = _http(200, data)
    return answer[: -len(data) // 2] if met == "half" else answer


def _logprob(name: str, word: str) -> float:
    """Of a word in the answer `name`: one word in four is unsure."""
    return -1.5 if int(hashlib.sha256(f"{name} {word}".encode()).hexdigest(), 16) % 4 == 0 else -0.01


def _text(name: str, prompt: str, judge: str) -> str:
    """A verdict for a judge's prompt, else two short lines of words from the prompt, so that searches find some."""
    number = int(name, 16)
    if '{"status"' in prompt:
        return json.dumps({"status": judge if judge != "hash" else str(number % 2 == 0)})
    if '{"best_id"' in prompt:
        return json.dumps({"best_id": 1, "worst_id": 2})
    words = [word for word in prompt.split() if word.isalpha()] or ["nothing"]
    chosen = [words[(number >> 16 * index) % len(words)] for index in range(6)]
    return f"{' '.join(chosen[:3])}\n{' '.join(chosen[3:])} {name[:6]}"


async def _serve(options: dict[str, Any]) -> None:
    loop = asyncio.get_running_loop()
    server = _Server(**options)
    listening = await loop.create_server(lambda: Connection(server), "127.0.0.1", 0, backlog=1024)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)  # until the parent closes it or dies


if __name__ == "__main__":
    asyncio.run(_serve(json.loads(sys.argv[1])))
