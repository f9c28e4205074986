"""One file over HTTP: continued where it was cut, and checked before it gets its name."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import httpx2
from filelock import FileLock, Timeout
from tqdm import tqdm

from rag_notes.files import checksum_of, part_of, replacing, saying_full

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further attempt in a row that brings nothing."""

LARGEST = 64_000_000_000
"""Bytes that a file of unknown size may have: several times the largest corpus."""

_AGAIN = {408, 425, 429, 500, 502, 503, 504}
_LONGEST_WAIT = 60
_PAGE = (b"<!doctype html", b"<html")


class FetchError(OSError):
    """A file that could not be had; the message says why and what is kept."""


class _Wanted(NamedTuple):
    """Where a file goes, and how one knows it: its bytes (None: at most `largest`) and its checksum."""

    path: Path
    size: int | None
    checksum: str | None
    largest: int


class _TryAgain(Exception):  # noqa: N818 - no error: it ends one attempt of several
    """One attempt that ended without the whole file; `wait` is what the server asks for, in seconds."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


def fetch(
    urls: Sequence[str],
    path: Path,
    *,
    size: int | None = None,
    checksum: str | None = None,
    largest: int = LARGEST,
    waits: Sequence[float] = WAITS,
    timeout: float = 60.0,
) -> None:
    """Download a file to `path` from the first of `urls` that gives it.

    It grows as `path`.part, which a later call continues by a range request if the server still has the same file (by
    its ETag or date of change), and begins again if not. `path` appears when `size` (bytes) and `checksum`
    ("sha256:..." or "md5:...") hold. No more than `size` bytes are read, or `largest` where the size is not known.
    `timeout` is that of a single read, in seconds. Raises `FetchError` naming each address and what it answered,
    `DiskFullError` where the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    wanted = _Wanted(path, size, checksum, largest)
    agent = {"User-Agent": "rag-notes"}
    try:
        with (
            FileLock(path.with_name(f".{path.name}.lock"), timeout=0),
            saying_full(path),
            httpx2.Client(timeout=timeout, follow_redirects=True, headers=agent) as client,
        ):
            failures = []
            for url in urls:
                try:
                    _fetch_from(client, url, wanted, waits)
                except FetchError as error:
                    failures.append(str(error))
                else:
                    _accept(wanted)
                    return
            raise FetchError("\n".join(failures))
    except Timeout:
        raise FetchError(f"{path}: another process is downloading it; wait for it or end it") from None


def _fetch_from(client: httpx2.Client, url: str, wanted: _Wanted, waits: Sequence[float]) -> None:
    """Bring all bytes, in any number of attempts that bring some and few in a row that do not."""
    part = part_of(wanted.path)
    fruitless = 0
    most = part.stat().st_size if part.exists() else 0
    while True:
        try:
            _attempt(client, url, wanted)
        except (_TryAgain, httpx2.TransportError) as error:
            after = part.stat().st_size if part.exists() else 0
            fruitless = 0 if after > most else fruitless + 1
            most = max(most, after)
            if fruitless > len(waits):
                why = str(error) if isinstance(error, _TryAgain) else f"{type(error).__name__}: {error}"
                kept = f"; {after:,} bytes are kept and the same command continues there" if after else ""
                raise FetchError(f"{url}: {why}, after {fruitless} attempts in a row{kept}") from None
            asked = error.wait if isinstance(error, _TryAgain) else 0.0
            time.sleep(max(waits[max(fruitless - 1, 0)], asked))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise FetchError(f"{url}: {type(error).__name__}: {error}") from None
        else:
            return


def _attempt(client: httpx2.Client, url: str, wanted: _Wanted) -> None:
    path, size = wanted.path, wanted.size
    part = part_of(path)
    headers, have, begun = _continuation(url, path, wanted.checksum)
    with client.stream("GET", url, headers={"Accept-Encoding": "identity", **headers}) as response:
        status, tag = response.status_code, _tag(response)
        if status == 416 and response.headers.get("content-range") == f"bytes */{have}":
            return  # an earlier process ended between the last byte and the check
        if status == 416 or (status == 206 and (_first_byte(response) != have or begun not in ("", tag))):
            _discard(path)
            raise _TryAgain(f"HTTP {status} for the rest of another file")
        if status in _AGAIN:
            after = _number(response.headers.get("retry-after", "")) or 0
            raise _TryAgain(f"HTTP {status}", min(after, _LONGEST_WAIT))
        if status not in (200, 206):
            raise FetchError(f"{url}: HTTP {status}")
        have = have if status == 206 else 0
        total = have + int(response.headers["content-length"]) if "content-length" in response.headers else None
        blocks = _blocks(response, url)
        if size is not None and total not in (None, size):
            raise FetchError(f"{url}: the file there has {total:,} bytes, {size:,} are expected: it was changed")
        most = wanted.largest if size is None else size
        if total is not None and total > most:
            raise FetchError(_too_large(url, most))
        if not have:
            _discard(path)
            with replacing(_state(path)) as file:
                file.write(json.dumps({"url": url, "tag": tag}).encode())
        with (
            part.open("ab", buffering=0) as out,
            tqdm(total=total, initial=have, unit="B", unit_scale=True, desc=path.name, disable=None) as progress,
        ):
            for block in blocks:
                have += len(block)
                if have > most:
                    _discard(path)
                    raise FetchError(_too_large(url, most))
                rest = memoryview(block)
                while rest:  # unbuffered, so that nothing that came is lost when the disk is full
                    rest = rest[out.write(rest) :]
                progress.update(len(block))
    if size is not None and part.stat().st_size < size:
        raise _TryAgain(f"the connection ended after {part.stat().st_size:,} of {size:,} bytes")


def _continuation(url: str, path: Path, checksum: str | None) -> tuple[dict[str, str], int, str]:
    """Return the request's headers, the bytes that are there, and the tag that a continuation must have ("": any)."""
    try:
        begun = json.loads(_state(path).read_text(encoding="utf-8"))
        begun_at, tag, have = begun["url"], begun["tag"], part_of(path).stat().st_size
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return {}, 0, ""
    if have and begun_at == url and tag:
        return {"Range": f"bytes={have}-", "If-Range": tag}, have, tag
    if have and checksum is not None:  # which will tell whether the pieces are of one file
        return {"Range": f"bytes={have}-"}, have, ""
    return {}, 0, ""


def _tag(response: httpx2.Response) -> str:
    """What tells that a file is still the same, byte by byte: a strong ETag or the date of its change, "" for none."""
    tag = response.headers.get("etag", "")
    return tag if tag.startswith('"') else response.headers.get("last-modified", "")


def _first_byte(response: httpx2.Response) -> int | None:
    return _number(response.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0])


def _number(header: str) -> int | None:
    return int(header) if header.isdecimal() and len(header) < 20 else None


def _too_large(url: str, most: int) -> str:
    return (
        f"{url}: gives more than {most:,} bytes, and nothing is kept of it; if that is right, correct its `size`, or "
        "`largest`, in the table of downloads"
    )


def _blocks(response: httpx2.Response, url: str) -> Iterator[bytes]:
    """The body as it comes, without a page of HTML that some servers answer with instead of a file."""
    blocks = response.iter_raw()
    first = next(blocks, b"")
    kind = response.headers.get("content-type", "")
    if kind.startswith("text/html") or first.lstrip()[:16].lower().startswith(_PAGE):
        raise FetchError(f"{url}: gives an HTML page instead of the file")
    return chain([first], blocks)


def _accept(wanted: _Wanted) -> None:
    """Give the file its name if it is the right one; else it is set aside, where it cannot be continued."""
    path, part = wanted.path, part_of(wanted.path)
    problem = mismatch(part, wanted.size, wanted.checksum)
    if problem is not None:
        rejected = path.with_name(f"{path.name}.rejected")
        part.replace(rejected)
        _state(path).unlink(missing_ok=True)
        raise FetchError(f"{path}: {problem}; it is set aside as {rejected.name}, the same command downloads it anew")
    part.replace(path)
    _state(path).unlink(missing_ok=True)


def mismatch(path: Path, size: int | None, checksum: str | None) -> str | None:
    """Say how a file differs from its size in bytes and its checksum, None if it does not."""
    actual = path.stat().st_size
    if size is not None and actual != size:
        return f"has {actual:,} bytes, {size:,} are expected"
    if checksum is not None:
        kind = checksum.partition(":")[0]
        if (found := f"{kind}:{checksum_of(path, kind)}") != checksum:
            return f"has the checksum {found}, {checksum} is expected"
    return None


def _state(path: Path) -> Path:
    # Hidden, since a folder of texts is read with all files in it that are not.
    return path.with_name(f".{path.name}.state")


def _discard(path: Path) -> None:
    part_of(path).unlink(missing_ok=True)
    _state(path).unlink(missing_ok=True)
