"""The response store: every answer an LLM gave, kept under a hash of what determined it, so that none is paid twice."""

import hashlib
import json
import lzma
import sqlite3
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

KEY_VERSION = "rag-notes-1"

_PATIENCE = 60.0
"""Seconds to wait for another process that holds the file."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a model answered to one request, with what it cost when it was made.

    `seconds` is the wall time of the call including its `retries`, in seconds. `finish_reason` is the endpoint's
    own word; "length" means that the answer was cut at the token limit. `logprobs` holds (token, natural log
    probability) pairs where they were asked for.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    retries: int = 0
    logprobs: tuple[tuple[str, float], ...] | None = None


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same text for the same value everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def request_key(request: dict[str, Any]) -> str:
    """The tagged hash under which the response to `request` is stored."""
    return hashlib.sha256(f"{KEY_VERSION}\n{canonical_json(request)}".encode()).hexdigest()


class StoreError(ValueError):
    """A response store or an export of one that cannot be used as it is."""


class Imported(NamedTuple):
    """How many responses an import added, and how many the store already had (which it keeps)."""

    added: int
    present: int


class ResponseStore:
    """A key-value store of responses in one SQLite file (WAL), shared safely by threads and processes.

    `path` may be ":memory:". Responses never expire and are never replaced: the first one stored under a key stays.
    Raises StoreError where the file is not a response store, or another process holds it for more than a minute.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        if self.path != ":memory:":
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(self.path, timeout=_PATIENCE, check_same_thread=False, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise StoreError(f"{self.path}: cannot be opened ({error}); name another file") from None
        deadline = time.monotonic() + _PATIENCE
        while not self._prepare(deadline):
            time.sleep(0.01)

    def _prepare(self, deadline: float) -> bool:
        """Set up the open file; False where other processes were just doing the same.

        SQLite does not wait when two connections that both read want to change the journal: one is told at once that
        the file is locked, whatever its timeout.
        """
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS responses "
                "(key TEXT PRIMARY KEY, request TEXT NOT NULL, response TEXT NOT NULL) WITHOUT ROWID"
            )
        except sqlite3.DatabaseError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the low byte, without the extended reason
            if busy and time.monotonic() < deadline:
                return False
            self._db.close()
            reason = "another process holds it" if busy else f"not a response store ({error})"
            raise StoreError(
                f"{self.path}: {reason}; {'end it' if busy else 'move it away'} or name another file"
            ) from None
        return True

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    def get(self, key: str) -> Response | None:
        """The response stored under `key`, or None."""
        with self._lock:
            row = self._db.execute("SELECT response FROM responses WHERE key = ?", (key,)).fetchone()
        return None if row is None else _response(json.loads(row[0]))

    def put(self, request: dict[str, Any], response: Response) -> Response:
        """Store `response` and return what the store holds under its key: an earlier response wins."""
        row = (request_key(request), canonical_json(request), canonical_json(asdict(response)))
        with self._lock:
            new = self._db.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", row).rowcount == 1
        return response if new else self.get(row[0]) or response

    def __bool__(self) -> bool:
        return True  # an empty store is still a store

    def __len__(self) -> int:
        with self._lock:
            return int(self._db.execute("SELECT count(*) FROM responses").fetchone()[0])

    def rows(self) -> Iterator[tuple[str, dict[str, Any], Response]]:
        """All (key, request, response), sorted by key."""
        with self._lock:
            found = self._db.execute("SELECT key, request, response FROM responses ORDER BY key").fetchall()
        for key, request, response in found:
            yield key, json.loads(request), _response(json.loads(response))

    def verify(self) -> list[str]:
        """Re-derive every key from its request; returns the keys that do not match or cannot be read, sorted."""
        with self._lock:
            found = self._db.execute("SELECT key, request, response FROM responses ORDER BY key").fetchall()
        return [key for key, request, response in found if not _is_sound(key, request, response)]

    def export_jsonl(self, path: str | Path, keys: set[str] | None = None) -> int:
        """Write the responses (those under `keys`, or all) as JSON lines sorted by key; xz-compressed for `.xz` names.

        Returns the number of lines. The same responses give the same bytes.
        """
        lines = [
            canonical_json({"key": key, "request": request, "response": asdict(response)})
            for key, request, response in self.rows()
            if keys is None or key in keys
        ]
        data = "".join(f"{line}\n" for line in lines).encode()
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        part.write_bytes(lzma.compress(data, preset=9) if target.suffix == ".xz" else data)
        part.replace(target)
        return len(lines)

    def import_jsonl(self, path: str | Path) -> Imported:
        """Add the responses of an export, all or none.

        Raises StoreError naming the file and line where a line is malformed or its key is not that of its request.
        """
        source = Path(path)
        if not source.is_file():
            raise StoreError(f"{source}: no such recording; export one with `rag-notes store export`")
        try:
            raw = lzma.decompress(source.read_bytes()) if source.suffix == ".xz" else source.read_bytes()
        except lzma.LZMAError as error:
            raise StoreError(f"{source}: cannot be read ({error}); fetch it again") from None
        rows = []
        for number, line in enumerate(
            raw.splitlines(), 1
        ):  # of bytes: str.splitlines also splits at U+2028 and the like
            try:
                item = json.loads(line)
                response = canonical_json(asdict(_response(item["response"])))
                key, request = item["key"], item["request"]
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreError(f"{source}, line {number}: not a recorded response ({error!r})") from None
            if request_key(request) != key:
                raise StoreError(f"{source}, line {number}: key {key} is not the hash of its request; was it edited?")
            rows.append((key, canonical_json(request), response))
        with self._lock:
            before = self._db.total_changes
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", rows)
            self._db.execute("COMMIT")
            added = self._db.total_changes - before
        return Imported(added, len(rows) - added)


def _is_sound(key: str, request: str, response: str) -> bool:
    try:
        _response(json.loads(response))
        return request_key(json.loads(request)) == key
    except (ValueError, TypeError, AttributeError):
        return False


def _response(fields: dict[str, Any]) -> Response:
    logprobs = fields.get("logprobs")
    pairs = None if logprobs is None else tuple((str(token), float(value)) for token, value in logprobs)
    return Response(**{**fields, "logprobs": pairs})
