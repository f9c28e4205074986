"""The official files of data sets and corpora (conf/downloads.yaml): downloaded, continued, checked and unpacked."""

import bz2
import gzip
import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Annotated

import httpx2
import msgspec
import yaml
from filelock import FileLock, Timeout
from tqdm import tqdm

from rag_notes.files import DiskFullError, checksum_of, part_of, replacing, saying_full
from rag_notes.terminal import say
from rag_notes.types import InputError

WAITS = [1.0, 2.0, 4.0, 8.0, 16.0]  # seconds before each further attempt in a row that brings nothing
TIMEOUT = 60.0  # seconds of a single read
LARGEST = 64_000_000_000  # bytes that a file of unknown size may have: several times the largest corpus
TOO_LARGE = "has more than {:,} bytes, and nothing is kept of it; if that is right, correct its `size` in the table"

_PASSING = {408, 425, 429, 500, 502, 503, 504}  # statuses after which another attempt may succeed


class DownloadError(InputError):
    """A table that does not hold what it should, or an option that names nothing in it."""


class FetchError(OSError):
    """A file that could not be had; the message says why and what is kept."""


class File(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file: its addresses in the order to try them (none: by hand only), where it goes, size in bytes, checksum.

    `members` are the files to take out of an archive: their `name` is how their path in it ends (a .gz has just one).
    """

    path: Annotated[str, msgspec.Meta(pattern=r"^(?!/)(?!(.*/)?\.\.(/|$)).+$")]  # relative, without ".."
    urls: list[str] = []
    size: Annotated[int, msgspec.Meta(ge=0)] | None = None
    checksum: Annotated[str, msgspec.Meta(pattern="^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$")] | None = None
    name: str = ""
    members: list["File"] = []

    def is_present(self, root: Path) -> bool:
        """Whether the file, or all members of an archive, are below `root`."""
        return all((root / file.path).is_file() for file in self.members or [self])

    def mismatch(self, path: Path) -> str | None:
        """Say how the file at `path` differs in size and checksum, None if it does not."""
        actual = path.stat().st_size
        if self.size not in (None, actual):
            return f"has {actual:,} bytes, {self.size:,} are expected"
        kind = (self.checksum or "").partition(":")[0]
        if kind and (checksum := f"{kind}:{checksum_of(path, kind)}") != self.checksum:
            return f"has the checksum {checksum}, {self.checksum} is expected"
        return None


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """The files of a data set or corpus, their licence, and the page where a person finds them."""

    licence: Annotated[str, msgspec.Meta(min_length=1)]
    page: str
    files: Annotated[list[File], msgspec.Meta(min_length=1)]


def load_downloads(path: Path) -> dict[str, Entry]:
    """Read a table, by the option that names each entry; raises `DownloadError` naming file, entry and field."""
    entries, location = {}, str(path)
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group, name in [(key, name) for key in ("dataset", "corpus") for name in table[key]]:
            location = f"{path}, {group}.{name}"
            entries[f"{group}={name}"] = msgspec.convert(table[group][name], Entry)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise DownloadError(f"{location}: {error}") from None
    return entries


def choose(entries: dict[str, Entry], options: Sequence[str]) -> dict[str, Entry]:
    """Return the entries that options such as `dataset=hotpotqa` or `corpus=[hotpotqa,musique]` name."""
    pairs = (option.partition("=")[::2] for option in options)
    names = [f"{group}={name.strip()}" for group, value in pairs for name in value.strip("[]").split(",")]
    for name in (name for name in names if name not in entries):
        near = get_close_matches(name, entries, n=3, cutoff=0.4) or entries
        raise DownloadError(f"{name}: nothing to download by that name; there is {', '.join(near)}")
    return {name: entries[name] for name in names}


def overview(entries: dict[str, Entry], root: Path) -> str:
    """Describe what there is, a line an entry: name, size, how much of it is below `root`, licence and page."""
    rows = [("what", "size", "here", "licence", "page")]
    for name, entry in entries.items():
        size = f"{sum(file.size or 0 for file in entry.files) / 1e6:,.1f} MB"
        size += " and more" * any(file.size is None for file in entry.files)
        present = sum(file.is_present(root) for file in entry.files)
        by_hand = ", by hand" * (present < len(entry.files) and any(not file.urls for file in entry.files))
        rows.append((name, size, f"{present} of {len(entry.files)} files{by_hand}", entry.licence, entry.page))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def download(entries: dict[str, Entry], root: Path) -> list[str]:
    """Bring the files of entries below `root`, checked and unpacked; return what failed. Raises `DiskFullError`."""
    failures = []
    for name, entry in entries.items():
        say(f"{name} (licence: {entry.licence})")
        for file in entry.files:
            try:
                _bring(file, root)
            except DiskFullError:
                raise
            except OSError as error:
                hint = f"get {Path(file.path).name} from {entry.page}, put it at {root / file.path}, and run this again"
                failures.append(f"{name}: {error}\n  by hand: {hint}")
                say(failures[-1])
    return failures


def _bring(file: File, root: Path) -> None:
    path = root / file.path
    record = path.with_name(f".{path.name}.sha256")  # what its first download had, where no checksum is published
    if record.exists() and not file.checksum:
        file = msgspec.structs.replace(file, checksum=record.read_text(encoding="utf-8"))
    unpacked = file.members and not path.exists() and file.is_present(root)
    for part in file.members if unpacked else [file, *file.members]:
        target = root / part.path
        if not target.exists():
            fetch(part, target) if part is file else _unpack(path, part, target)
        elif problem := part.mismatch(target):
            raise FetchError(f"{target}: {problem}; move it away, and the same command brings it anew")
        say(f"  {part.path}: is here, {target.stat().st_size:,} bytes")
    if file.checksum is None and path.exists():
        record.write_text(f"sha256:{checksum_of(path)}", encoding="utf-8")
        say(f"  no checksum is published for it; {record} keeps this one's for later; delete it to forget that")


def _unpack(archive: Path, member: File, target: Path) -> None:
    """Write a member of an archive to where the table says; nothing else of it is looked at."""
    most = LARGEST if member.size is None else member.size
    with replacing(target) as out:
        try:
            with _open_member(archive, member.name) as packed:
                while (block := packed.read(1 << 20)) and out.tell() <= most:
                    out.write(block)
        except Exception as error:  # each kind of damage to each kind of archive raises another one
            if isinstance(error, FetchError) or getattr(error, "errno", None):  # the latter comes from the disk
                raise
            hint = "delete the archive, and the same command downloads it anew"
            raise FetchError(f"{archive}: {member.name} cannot be unpacked ({error}); {hint}") from None
        out.flush()
        if problem := TOO_LARGE.format(most) if out.tell() > most else member.mismatch(part_of(target)):
            raise FetchError(f"{archive}: {member.name} {problem}")


@contextmanager
def _open_member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed, packed.open(_only(packed.namelist(), name, archive)) as file:
            yield file
    elif archive.suffix in {".gz", ".bz2"} and not archive.stem.endswith(".tar"):
        with (gzip if archive.suffix == ".gz" else bz2).open(archive) as file:
            yield file
    else:
        with tarfile.open(archive) as tar:
            regular = tar.extractfile(_only([member.name for member in tar if member.isfile()], name, archive))
            assert regular is not None  # no link and no folder
            yield regular


def _only(names: list[str], ending: str, archive: Path) -> str:
    """The one name that ends so; macOS puts files of its own, with the same endings, in a folder beside."""
    matches = [name for name in names if f"/{name}".endswith(f"/{ending}") and not name.startswith("__MACOSX/")]
    if len(matches) != 1:
        raise FetchError(f"{archive}: {len(matches)} members end in {ending}, one is expected: {sorted(names)[:10]}")
    return matches[0]


def fetch(file: File, path: Path) -> None:
    """Download a file to `path` from the first of its addresses that gives it.

    It grows as `path`.part, which a later call continues if a checksum is known or the server still has the same file
    by its ETag or date of change. Raises `FetchError` naming each address and its answer, and `DiskFullError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, tag = part_of(path), path.with_name(f".{path.name}.tag")  # hidden: a folder of texts is read as a whole
    problems = [] if file.urls else [f"{path}: no program can download it"]
    client = httpx2.Client(timeout=TIMEOUT, follow_redirects=True, headers={"Accept-Encoding": "identity"})
    try:
        with FileLock(path.with_name(f".{path.name}.lock"), timeout=0), saying_full(path), client:
            for url in file.urls:
                problem = _fetch_from(client, url, file, part, tag)
                if problem is None and (problem := file.mismatch(part)):
                    part.unlink()
                if problem is None:
                    part.replace(path)
                    return tag.unlink(missing_ok=True)
                problems.append(f"{url}: {problem}")
    except Timeout:
        raise FetchError(f"{path}: another process is downloading it; wait for it or end it") from None
    raise FetchError("\n".join(problems))


def _fetch_from(client: httpx2.Client, url: str, file: File, part: Path, tag: Path) -> str | None:
    """Bring all bytes, in any number of attempts that bring some and few in a row that do not; return what is wrong."""
    fruitless, problem = 0, ""
    while fruitless <= len(WAITS):
        size = _size(part)
        try:
            return _attempt(client, url, file, part, tag)
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
            fruitless = 0 if _size(part) > size else fruitless + 1
            time.sleep([0.0, *WAITS, 0.0][fruitless])
    return f"{problem}, {fruitless} times in a row; {_size(part):,} bytes are kept, which the same command continues"


def _attempt(client: httpx2.Client, url: str, file: File, part: Path, tag: Path) -> str | None:
    headers, size, most = {}, _size(part), LARGEST if file.size is None else file.size
    if size and (file.checksum or tag.exists()):  # which tell whether the pieces are of one file
        headers = {"Range": f"bytes={size}-"} | ({} if file.checksum else {"If-Range": tag.read_text("utf-8")})
    with client.stream("GET", url, headers=headers) as response:
        status, first = response.status_code, response.headers.get("content-range", "").partition("-")[0]
        if status in _PASSING:
            raise httpx2.TransportError(f"HTTP {status}")
        if status == 416 or (status == 206 and first != f"bytes {size}"):
            part.unlink()
            raise httpx2.TransportError(f"HTTP {status} for the rest of another file")
        if status not in (200, 206) or response.headers.get("content-type", "").startswith("text/html"):
            return f"HTTP {status}" if status >= 300 else "gives an HTML page instead of the file"
        if status == 200:
            size, etag = 0, response.headers.get("etag", "")
            part.unlink(missing_ok=True)
            tag.unlink(missing_ok=True)
            if name := etag if etag.startswith('"') else response.headers.get("last-modified"):  # not a weak ETag
                tag.write_text(name, encoding="utf-8")
        total = size + int(response.headers["content-length"]) if "content-length" in response.headers else None
        if (total or 0) > most:
            return TOO_LARGE.format(most)
        with part.open("ab") as out, tqdm(total=total, initial=size, unit="B", unit_scale=True, disable=None) as bar:
            for block in response.iter_raw():
                bar.update(out.write(block))
                if out.tell() > most:
                    part.unlink()
                    return TOO_LARGE.format(most)
    return None


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
