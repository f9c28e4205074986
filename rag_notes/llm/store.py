"""The response store: every answer an LLM gave, kept under a hash of what determined it, so that none is paid twice."""

import contextlib
import hashlib
import json
import lzma
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import msgspec
from filelock import FileLock

from rag_notes.files import checksum_of, replacing
from rag_notes.llm.errors import FatalLLMError
from rag_notes.types import InputError

KEY_VERSION = "rag-notes-1"
Logprobs = tuple[tuple[str, float], ...]
_NotNegative = msgspec.Meta(ge=0)
_INSERT = "INSERT OR IGNORE INTO responses (key, request, response) VALUES (?, ?, ?)"
_SCHEMA = """
    BEGIN IMMEDIATE;
    CREATE TABLE IF NOT EXISTS responses
        (key TEXT PRIMARY KEY, request TEXT NOT NULL, response TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL);
    PRAGMA user_version = 2;
    COMMIT;
"""


class StoreError(InputError, FatalLLMError):
    """A response store or an export of one that cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a model answered to one request, with what it cost when it was made.

    `seconds` is the wall time of the call with its `retries`. A `finish_reason` of "length" means that the answer was
    cut at the token limit, "refusal" that `text` says why there is none. `logprobs` are pairs of a token and its log
    probability. `reasoning` stood before the answer, `completion_tokens` include its tokens. `served_as` is the name of
    the model that was sent, `model` the name answered.
    """

    text: str
    finish_reason: str
    prompt_tokens: Annotated[int, _NotNegative]
    completion_tokens: Annotated[int, _NotNegative]
    seconds: Annotated[float, _NotNegative]
    retries: Annotated[int, _NotNegative] = 0
    logprobs: Logprobs | None = None
    reasoning: str | None = None
    reasoning_tokens: Annotated[int, _NotNegative] = 0
    model: str | None = None
    served_as: str | None = None
    endpoint: str | None = None

    def to_json(self) -> str:
        """Canonical JSON of the fields to `logprobs`, and of the later ones that are set."""
        values = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return canonical_json(dict(values[:7] + [item for item in values[7:] if item[1]]))


class _Line(msgspec.Struct):
    key: str
    request: dict[str, Any]
    response: Response


_read_response = msgspec.json.Decoder(Response).decode
_read_line = msgspec.json.Decoder(_Line).decode


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces, the same text for the same value everywhere."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def request_key(request: Mapping[str, Any]) -> str:
    """The tagged hash under which the response to `request` is stored."""
    return hashlib.sha256(f"{KEY_VERSION}\n{canonical_json(request)}".encode()).hexdigest()


class ResponseStore:
    """A key-value store of responses in one SQLite file (":memory:" for none), shared safely by threads and processes.

    The first response stored under a key stays. A request under way can be claimed, so that no other process makes it
    too; a claim ends `lease` seconds after it was last renewed (the clocks of machines that share a store must agree
    better than that). `read_only` opens a file that nobody writes to. All methods raise StoreError where they cannot.
    """

    def __init__(self, path: str | Path, *, lease: float = 5.0, read_only: bool = False) -> None:
        self.path, self.lease, self.read_only = str(path), lease, read_only
        self._lock, self._owner, address = threading.Lock(), uuid.uuid4().hex, self.path
        if read_only:
            address = f"{Path(path).resolve().as_uri()}?immutable=1"
        with _explained(self.path):
            if self.path != ":memory:" and not read_only:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            options: Any = {"timeout": 60, "check_same_thread": False, "isolation_level": None}
            self._db: sqlite3.Connection = sqlite3.connect(address, uri=read_only, **options)
            if not read_only:
                with contextlib.suppress(sqlite3.OperationalError):  # another process is just doing the same
                    self._db.execute("PRAGMA journal_mode=WAL")
                self._db.execute("PRAGMA synchronous=NORMAL")
                self._db.executescript(_SCHEMA)  # writes, so that a file or disk that takes no writing is found here

    @classmethod
    def of_recordings(cls, paths: Iterable[str | Path], *, cache: str | Path | None) -> "ResponseStore":
        """A store of what recordings hold: imported once into a read-only file below `cache` that their SHA-256 names,
        into memory where that is None. Raises StoreError as `import_jsonl`.
        """
        sources = [Path(path) for path in paths]
        if cache is None:
            store = cls(":memory:")
            store.import_jsonl(*sources)
            return store
        with _explained(cache):
            checksums = "".join(map(checksum_of, sources))
            target = Path(cache) / f"{hashlib.sha256(f'3 {checksums}'.encode()).hexdigest()[:32]}.sqlite"
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(target.with_suffix(".lock")):
                if not target.exists():
                    part = target.with_suffix(".part")
                    part.unlink(missing_ok=True)  # of a process that was killed
                    store = cls(part)
                    store.import_jsonl(*sources)
                    store.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
                    store.close()
                    part.replace(target)
        return cls(target, read_only=True)

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    def execute(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """Run an SQL statement and return its rows."""
        with _explained(self.path), self._lock:
            return self._db.execute(statement, values).fetchall()

    def get(self, key: str) -> Response | None:
        """The response stored under `key`, or None."""
        rows = self.execute("SELECT response FROM responses WHERE key = ?", (key,))
        try:
            return _read_response(rows[0][0]) if rows else None
        except msgspec.MsgspecError as error:
            advice = f"delete it to have it made anew: rag-notes store drop {self.path} {key}"
            raise StoreError(f"{self.path}: the response under {key} cannot be used ({error}); {advice}") from None

    def put(self, request: Mapping[str, Any], response: Response) -> Response:
        """Store `response` and return what the store holds under its key: an earlier response wins."""
        row = (request_key(request), canonical_json(request), response.to_json())
        new = self.execute(f"{_INSERT} RETURNING 1", row)
        return response if new else self.get(row[0]) or response

    def drop(self, keys: Iterable[str] = (), containing: Iterable[str] = ()) -> int:
        """Delete the responses under `keys` and those whose prompt contains one of some texts; returns their number."""
        texts = [canonical_json(text)[1:-1] for text in containing]  # as requests have them, without quotes around
        tests = [("key = ?", key) for key in keys] + [("instr(request, ?)", text) for text in texts]
        return sum(len(self.execute(f"DELETE FROM responses WHERE {test} RETURNING 1", (v,))) for test, v in tests)

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Claim a request during the block; False where it is answered already or another one is making it."""
        now = time.time()
        values = {"key": key, "owner": self._owner, "until": now + self.lease, "now": now}
        statement = (  # one statement, which nothing can come between
            "INSERT INTO claims SELECT :key, :owner, :until WHERE NOT EXISTS (SELECT 1 FROM responses WHERE key=:key) "
            "ON CONFLICT (key) DO UPDATE SET owner = :owner, until = :until WHERE claims.until < :now RETURNING 1"
        )
        claimed = bool(self.execute(statement, values))
        try:
            yield claimed
        finally:
            if claimed:
                with contextlib.suppress(StoreError):  # it expires
                    self.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    @contextlib.contextmanager
    def renewing(self) -> Iterator[None]:
        """Renew this store's claims during the block, by a thread: an event loop that is busy would renew too late."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(self.lease / 3):
                with contextlib.suppress(StoreError):  # the next write that matters says what is wrong
                    self.execute("UPDATE claims SET until = ? WHERE owner = ?", (time.time() + self.lease, self._owner))

        thread = threading.Thread(target=renew, daemon=True)  # does not keep a program from ending
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def __len__(self) -> int:
        return int(self.execute("SELECT count(*) FROM responses")[0][0])

    def rows(self) -> Iterator[tuple[str, dict[str, Any], Response]]:
        """All (key, request, response), sorted by key, read one by one."""
        for (key,) in self.execute("SELECT key FROM responses ORDER BY key"):
            ((request,),) = self.execute("SELECT request FROM responses WHERE key = ?", (key,))
            if (response := self.get(key)) is not None:
                yield key, json.loads(request), response

    def export_jsonl(self, path: str | Path) -> int:
        """Write the responses as JSON lines sorted by key, xz-compressed for `.xz` names, and return their number."""
        count, is_packed = 0, Path(path).suffix == ".xz"
        with replacing(Path(path)) as raw, contextlib.ExitStack() as stack:
            file = stack.enter_context(lzma.open(raw, "wb", preset=9)) if is_packed else raw
            for key, request, response in self.rows():
                line = f'{{"key":"{key}","request":{canonical_json(request)},"response":{response.to_json()}}}\n'
                count += bool(file.write(line.encode()))
        return count

    def import_jsonl(self, *paths: str | Path) -> int:
        """Add the responses of exports, all or none, and return how many are new. Raises StoreError that names file and
        line where a response is malformed, or its key is not the hash of its request.
        """
        rows = (row for path in paths for row in _recorded(Path(path)))
        with _explained(self.path), self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            return self._db.executemany(_INSERT, rows).rowcount


@contextlib.contextmanager
def _explained(path: object) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{error.filename}: no such recording; export one with `rag-notes store export`") from None
    except (sqlite3.Error, OSError) as error:
        advice = "make room, and file and folder writable, end what holds it, or name another file"
        raise StoreError(f"{path}: cannot be used ({error}); {advice}") from None


def _recorded(path: Path) -> Iterator[tuple[str, str, str]]:
    """Key, request and response of each line of a recording, the last two as canonical JSON."""
    where = str(path)
    try:
        with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                where = f"{path}, line {number}"
                item = _read_line(line)
                if (key := request_key(item.request)) != item.key:
                    raise InputError(f"its key {item.key[:80]} is not the hash of its request; was it edited?")
                yield key, canonical_json(item.request), item.response.to_json()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StoreError(f"{where}: not a recorded response ({error})") from None
    except (lzma.LZMAError, EOFError) as error:
        raise StoreError(f"{where}: cannot be read ({error}); fetch or export the file again") from None
