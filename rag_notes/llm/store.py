"""The response store: every answer an LLM gave, kept under a hash of what determined it, so that none is paid twice."""

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from filelock import FileLock

from rag_notes.llm.recording import MAX_UNPACKED, check_manifest, read_recording, write_recording
from rag_notes.llm.response import Response, StoreError, canonical_json, digest, request_key, response_of
from rag_notes.types import InputError

__all__ = ["Imported", "Response", "ResponseStore", "StoreError", "canonical_json", "request_key"]

_PATIENCE = 60.0
"""Seconds to wait for another process that holds the file."""
_PAGE = 500
"""Rows read at once."""
_FORMAT = 2
"""Of the SQLite file: 2 has digests and claims."""


class Imported(NamedTuple):
    """Responses that an import added, that the store already had (and keeps), and that carried no digest to check."""

    added: int
    present: int
    unchecked: int = 0


class ResponseStore:
    """A key-value store of responses in one SQLite file (WAL), shared safely by threads and processes.

    `path` may be ":memory:". Responses never expire and are never replaced: the first one stored under a key stays.
    A request under way can be claimed, so that no other process makes it too; a claim is renewed until it is released
    or its process is gone, and ends `lease` seconds after the last renewal (the clocks of machines that share a store
    must agree better than that). `read_only` opens a file that nobody writes to.

    Raises StoreError, as all methods do, where the file is not a response store, cannot be written, was damaged, or
    another process holds it for more than a minute.
    """

    def __init__(self, path: str | Path, *, lease: float = 5.0, read_only: bool = False) -> None:
        self.path = ":memory:" if str(path) == ":memory:" else str(Path(path).absolute())  # what errors name
        self.lease = lease
        self.read_only = read_only
        self._lock = threading.Lock()
        self._owner = f"{_machine()} {os.getpid()} {uuid.uuid4().hex}"
        self._claimed: set[str] = set()
        self._renewing = False
        self._closed = threading.Event()
        address = self.path
        try:
            if read_only:
                address = f"{Path(self.path).resolve().as_uri()}?immutable=1"
            elif self.path != ":memory:":
                Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                address, timeout=_PATIENCE, check_same_thread=False, isolation_level=None, uri=read_only
            )
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreError(f"{self.path}: cannot be opened ({error}); name another file") from None
        deadline = time.monotonic() + _PATIENCE
        while not read_only and not self._prepare(deadline):
            time.sleep(0.01)

    @classmethod
    def of_recordings(
        cls, paths: Iterable[str | Path], *, cache: str | Path | None, max_unpacked: int = MAX_UNPACKED
    ) -> Self:
        """A store of what recordings hold, read-only: imported once into a file below `cache`, found there afterwards.

        The file is named by the recordings' SHA-256; `cache=None` imports into memory. Raises StoreError as
        `import_jsonl`.
        """
        sources = [Path(path) for path in paths]
        if cache is None or not sources:
            store = cls(":memory:")
            for source in sources:
                store.import_jsonl(source, max_unpacked=max_unpacked)
            return store
        names = "".join(check_manifest(source) for source in sources)
        target = Path(cache) / f"{hashlib.sha256(f'{_FORMAT} {names}'.encode()).hexdigest()[:32]}.sqlite"
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(target.with_suffix(".lock")):
                if not target.exists():
                    part = target.with_suffix(".part")
                    part.unlink(missing_ok=True)  # of a process that was killed
                    store = cls(part)
                    for source in sources:
                        store.import_jsonl(source, max_unpacked=max_unpacked)
                    store._db.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
                    store.close()
                    part.replace(target)
        except OSError as error:
            raise StoreError(
                f"{target}: cannot be written ({error}); name another folder with llm.cache=FOLDER, or read the "
                "recordings into memory at every start: llm.cache=null"
            ) from None
        return cls(target, read_only=True)

    def _prepare(self, deadline: float) -> bool:
        """Set up the open file; False where other processes were just doing the same.

        SQLite does not wait when two connections that both read want to change the journal: one is told at once that
        the file is locked, whatever its timeout.
        """
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS responses "
                "(key TEXT PRIMARY KEY, request TEXT NOT NULL, response TEXT NOT NULL, digest TEXT) WITHOUT ROWID"
            )
            if "digest" not in {column[1] for column in self._db.execute("PRAGMA table_info(responses)")}:
                self._db.create_function("digest", 3, digest, deterministic=True)
                self._db.execute("ALTER TABLE responses ADD COLUMN digest TEXT")
                self._db.execute("UPDATE responses SET digest = digest(key, request, response)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS claims (key TEXT PRIMARY KEY, owner TEXT NOT NULL, until REAL NOT NULL)"
            )
            self._db.execute(  # an answer ends the claim in the same write
                "CREATE TRIGGER IF NOT EXISTS answered AFTER INSERT ON responses "
                "BEGIN DELETE FROM claims WHERE key = NEW.key; END"
            )
            # Written at every opening, so that a file or disk that takes no writing is found before a call is paid.
            self._db.execute(f"PRAGMA user_version = {_FORMAT}")
            self._db.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if _code(error) == sqlite3.SQLITE_BUSY and time.monotonic() < deadline:
                self._roll_back()
                return False
            self._db.close()
            raise self._explain(error) from None
        return True

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._closed.set()
        with self._lock:
            self._db.close()

    def get(self, key: str) -> Response | None:
        """The response stored under `key`, or None."""
        with self._guarded() as db:
            row = db.execute("SELECT key, request, response, digest FROM responses WHERE key = ?", (key,)).fetchone()
        return None if row is None else self._read(*row)

    def taken(self, keys: Sequence[str]) -> dict[str, tuple[float, int]]:
        """The seconds that each stored response took, and its retries, by key; what `get` checks is not checked."""
        with self._guarded() as db:
            found = db.execute(
                "SELECT key, json_extract(response, '$.seconds'), coalesce(json_extract(response, '$.retries'), 0) "
                "FROM responses WHERE key IN (SELECT value FROM json_each(?))",
                (json.dumps(keys),),
            ).fetchall()
        return {key: (float(seconds), int(retries)) for key, seconds, retries in found}

    def put(self, request: dict[str, Any], response: Response) -> Response:
        """Store `response` and return what the store holds under its key: an earlier response wins.

        A claim of the key ends.
        """
        key, texts = request_key(request), (canonical_json(request), canonical_json(response.fields()))
        row = (key, *texts, digest(key, *texts))
        with self._guarded() as db:
            new = db.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?)", row).rowcount == 1
            self._claimed.discard(key)
        return response if new else self.get(key) or response

    def drop(self, keys: Iterable[str] = (), containing: Iterable[str] = ()) -> int:
        """Delete the responses under `keys` and those whose prompt contains one of some texts; returns their number."""
        before = len(self)
        with self._transaction() as db:
            db.executemany("DELETE FROM responses WHERE key = ?", [(key,) for key in keys])
            for text in containing:  # as canonical JSON writes it, without the quotes around it
                db.execute("DELETE FROM responses WHERE instr(request, ?)", (canonical_json(text)[1:-1],))
        return before - len(self)

    def claim(self, key: str) -> bool:
        """Claim a request to make it; False where it is answered already or another one is making it."""
        with self._guarded() as db:
            if not self._insert_claim(db, key):
                claim = db.execute("SELECT owner FROM claims WHERE key = ?", (key,)).fetchone()
                if claim is None or _is_alive(claim[0]):
                    return False
                db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, claim[0]))
                if not self._insert_claim(db, key):
                    return False
        with self._lock:
            self._claimed.add(key)
            if not self._renewing:
                self._renewing = True
                threading.Thread(target=self._renew, daemon=True).start()
        return True

    def release(self, key: str) -> None:
        """End a claim where nothing was put; one that cannot be ended expires."""
        if key in self._claimed:
            with contextlib.suppress(StoreError), self._guarded() as db:
                self._claimed.discard(key)
                db.execute("DELETE FROM claims WHERE key = ? AND owner = ?", (key, self._owner))

    def _insert_claim(self, db: sqlite3.Connection, key: str) -> bool:
        """Claim in one statement, which nothing can come between, where there is neither answer nor live claim."""
        now = time.time()
        return bool(
            db.execute(
                "INSERT INTO claims SELECT :key, :owner, :until "
                "WHERE NOT EXISTS (SELECT 1 FROM responses WHERE key = :key) "
                "ON CONFLICT (key) DO UPDATE SET owner = :owner, until = :until WHERE claims.until < :now",
                {"key": key, "owner": self._owner, "until": now + self.lease, "now": now},
            ).rowcount
        )

    def _renew(self) -> None:
        """Renew the claims until there are none: in a thread, as a long computation may hold up the event loop."""
        while not self._closed.wait(self.lease / 3):
            with self._lock:
                if self._closed.is_set() or not self._claimed:
                    self._renewing = False
                    return
                with contextlib.suppress(sqlite3.Error):  # the next write that matters says what is wrong
                    until = time.time() + self.lease
                    self._db.execute("UPDATE claims SET until = ? WHERE owner = ?", (until, self._owner))

    def __bool__(self) -> bool:
        return True  # an empty store is still a store

    def __len__(self) -> int:
        with self._guarded() as db:
            return int(db.execute("SELECT count(*) FROM responses").fetchone()[0])

    def rows(self) -> Iterator[tuple[str, dict[str, Any], Response]]:
        """All (key, request, response), sorted by key, read as they are asked for."""
        for key, request, response, stated in self._texts():
            read = self._read(key, request, response, stated)
            yield key, json.loads(request), read

    def verify(self) -> list[str]:
        """Check every row against its key and digest; returns the keys of those that were changed, sorted."""
        return [row[0] for row in self._texts() if not _is_sound(*row)]

    def _texts(self) -> Iterator[tuple[str, str, str, str]]:
        last = ""
        while True:
            with self._guarded() as db:
                page = db.execute(
                    "SELECT key, request, response, digest FROM responses WHERE key > ? ORDER BY key LIMIT ?",
                    (last, _PAGE),
                ).fetchall()
            yield from page
            if len(page) < _PAGE:
                return
            last = page[-1][0]

    def export_jsonl(self, path: str | Path, keys: set[str] | None = None) -> int:
        """Write the responses (those under `keys`, or all) as JSON lines sorted by key; xz-compressed for `.xz` names.

        Returns the number of lines. The same responses give the same bytes. Raises StoreError at one that was changed.
        """
        chosen = (row for row in self._texts() if keys is None or row[0] in keys)
        return write_recording(Path(path), (row for row in chosen if self._read(*row)))

    def import_jsonl(self, path: str | Path, *, max_unpacked: int = MAX_UNPACKED) -> Imported:
        """Add the responses of an export, all or none; `max_unpacked` is in bytes.

        Raises StoreError naming the file, and the line where one is malformed, its key or digest is not its own, or
        its key had another response in a line before.
        """
        check_manifest(Path(path))
        added = present = unchecked = 0
        with self._transaction() as db:
            db.execute("CREATE TEMP TABLE IF NOT EXISTS seen (key TEXT PRIMARY KEY, digest TEXT) WITHOUT ROWID")
            db.execute("DELETE FROM seen")
            for number, key, request, response, found, checked in read_recording(path, max_unpacked=max_unpacked):
                unchecked += not checked
                if not db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?)", (key, found)).rowcount:
                    if db.execute("SELECT digest FROM seen WHERE key = ?", (key,)).fetchone()[0] != found:
                        raise StoreError(f"{path}, line {number}: another response to a request that has one before")
                    continue
                row = (key, request, response, found)
                new = db.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?)", row).rowcount
                added, present = added + new, present + 1 - new
            db.execute("DELETE FROM seen")
        return Imported(added, present, unchecked)

    def _read(self, key: str, request: str, response: str, stated: str) -> Response:
        try:
            if digest(key, request, response) != stated:
                raise InputError("it was changed after it was stored")
            return response_of(json.loads(response))
        except ValueError as error:
            raise StoreError(
                f"{self.path}: the response under {key} cannot be used ({error}); delete it to have it asked anew: "
                f"rag-notes store drop {self.path} {key}"
            ) from None

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise self._explain(error) from None

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._guarded() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # the error that led here is the one to tell
                self._db.execute("ROLLBACK")

    def _explain(self, error: sqlite3.Error) -> StoreError:
        match _code(error):
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                what, then = "another process holds it", "end it or name another file"
            case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR:
                what, then = f"the disk is full or failing ({error})", "make room; the same command continues"
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM:
                what, then = f"cannot be written ({error})", "make file and folder writable or name another file"
            case sqlite3.SQLITE_CORRUPT:
                what, then = f"damaged ({error})", "restore it from a copy or move it away"
            case _:
                what, then = f"not a response store ({error})", "move it away or name another file"
        return StoreError(f"{self.path}: {what}; {then}")


def _code(error: sqlite3.Error) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte, without the extended reason


def _machine() -> str:
    """What a process id is unique in: this machine, and on Linux this namespace of processes."""
    with contextlib.suppress(OSError):
        return f"{socket.gethostname()}/{Path('/proc/self/ns/pid').readlink()}".replace(" ", "")
    return socket.gethostname().replace(" ", "")


def _is_alive(owner: str) -> bool:
    """Whether the process of a claim may still be there; of one on another machine only the lease can tell."""
    machine, process, _ = owner.split(" ")
    if machine != _machine() or os.name != "posix":
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _is_sound(key: str, request: str, response: str, stated: str) -> bool:
    try:
        response_of(json.loads(response))
        return request_key(json.loads(request)) == key and digest(key, request, response) == stated
    except (ValueError, TypeError, AttributeError):
        return False
