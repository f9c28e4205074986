"""Recordings, which are exports of a response store as JSON lines: read line by line, every line checked, cached."""

import hashlib
import json
import lzma
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from rag_notes.files import replacing
from rag_notes.llm.response import StoreError, canonical_json, digest, request_key, response_of, strict_json

MANIFEST = "MANIFEST.json"
MAX_UNPACKED = 4_000_000_000
"""Bytes that a recording may have unpacked."""
LONGEST_LINE = 16_000_000


class Line(NamedTuple):
    """A recorded response: its key, its request and response as canonical JSON, and whether its digest was there."""

    number: int
    key: str
    request: str
    response: str
    digest: str
    checked: bool


def read_recording(path: str | Path, *, max_unpacked: int = MAX_UNPACKED) -> Iterator[Line]:
    """The lines of a recording, unpacked as they are read.

    `max_unpacked` is in bytes. Raises StoreError naming the file, and the line where one is malformed, too long, or
    not what its key and digest say.
    """
    source, unpacked = Path(path), 0
    if not source.is_file():
        raise StoreError(f"{source.absolute()}: no such recording; export one with `rag-notes store export`")
    with lzma.open(source) if source.suffix == ".xz" else source.open("rb") as file:
        number = 0
        while True:
            try:
                line = file.readline(LONGEST_LINE + 1)
            except (lzma.LZMAError, EOFError, OSError) as error:
                raise StoreError(f"{source}: cannot be read ({error}); fetch it again") from None
            if not line:
                return
            number, unpacked = number + 1, unpacked + len(line)
            where = f"{source}, line {number}"
            if len(line) > LONGEST_LINE:
                raise StoreError(f"{where}: longer than {LONGEST_LINE:,} bytes, which no response is")
            if unpacked > max_unpacked:
                raise StoreError(
                    f"{where}: unpacks to more than {max_unpacked:,} bytes; raise llm.max_unpacked if it may"
                )
            yield _read(where, number, line)


def _read(where: str, number: int, line: bytes) -> Line:
    try:
        item = strict_json(line)
        key, request, stated = item["key"], item["request"], item.get("sha256")
        response = canonical_json(response_of(item["response"]).fields())
        request_text = canonical_json(request)
        strict_json(request_text)  # a number too large for a float has become Infinity
        expected = request_key(request)
        found = digest(expected, request_text, response)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{where}: not a recorded response ({str(error)[:200] or error!r})") from None
    if expected != key:
        raise StoreError(f"{where}: key {str(key)[:80]} is not the hash of its request; was it edited?")
    if stated not in (None, found):
        raise StoreError(f"{where}: the response is not the one that was recorded (its sha256 differs); was it edited?")
    return Line(number, expected, request_text, response, found, stated is not None)


def write_recording(path: Path, lines: Iterable[tuple[str, str, str, str]]) -> int:
    """Write (key, request, response, digest) as JSON lines, xz-compressed for `.xz` names; returns their number.

    A manifest in the same folder that names the file is brought up to date.
    """
    count = 0
    compress = path.suffix == ".xz"
    with replacing(path) as raw, lzma.open(raw, "wb", preset=9) if compress else nullcontext(raw) as file:
        for key, request, response, sha256 in lines:
            line = f'{{"key":"{key}","request":{request},"response":{response},"sha256":"{sha256}"}}\n'
            file.write(line.encode())
            count += 1
    manifest = _manifest(path)
    if path.name in manifest:
        manifest[path.name] = {"responses": count, "sha256": file_sha256(path)}
        with replacing(path.with_name(MANIFEST)) as new:
            new.write(f"{json.dumps(manifest, indent=1, sort_keys=True)}\n".encode())
    return count


def check_manifest(path: Path) -> str:
    """The SHA-256 of a recording. Raises StoreError where the manifest beside it says another one."""
    if not path.is_file():
        raise StoreError(f"{path.absolute()}: no such recording; export one with `rag-notes store export`")
    found = file_sha256(path)
    stated = _manifest(path).get(path.name)
    if stated is not None and stated.get("sha256") != found:
        raise StoreError(
            f"{path}: its SHA-256 is {found}, {path.with_name(MANIFEST)} says {stated.get('sha256')}; fetch both again"
        )
    return found


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _manifest(path: Path) -> dict[str, Any]:
    manifest = path.with_name(MANIFEST)
    try:
        read: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
        return {name: dict(entry) for name, entry in read.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError):
        raise StoreError(
            f"{manifest}: not a manifest of recordings; restore it, or delete it to go unchecked"
        ) from None
