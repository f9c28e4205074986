"""The official files of data sets and corpora (conf/downloads.yaml): downloaded, continued, checked and unpacked."""

import tarfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Annotated, Any

import httpx2
import msgspec
import yaml
from tqdm import tqdm

from rag_notes.files import checksum_of, open_binary, part_of, replacing, saying_full
from rag_notes.terminal import say
from rag_notes.types import InputError

WAITS = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]  # seconds before each further attempt
TIMEOUT = 60.0  # seconds of a single read
LARGEST = 64_000_000_000  # bytes that a file of unknown size may have: several times the largest corpus
TOO_LARGE = "has more than {:,} bytes; if that is right, correct its `size` in the table"
RETRIED = {408, 416, 425, 429, 500, 502, 503, 504}  # statuses after which another attempt may succeed


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
        actual, most = path.stat().st_size, self.size or LARGEST
        if actual > most:
            return TOO_LARGE.format(most)
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
    """Read a table, by the option that names each entry; raises `InputError` naming file, entry and field."""
    entries, location = {}, str(path)
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        for group, name in [(key, name) for key in ("dataset", "corpus") for name in table[key]]:
            location = f"{path}, {group}.{name}"
            entries[f"{group}={name}"] = msgspec.convert(table[group][name], Entry)
    except (msgspec.ValidationError, yaml.YAMLError) as error:
        raise InputError(f"{location}: {error}") from None
    return entries


def choose(entries: dict[str, Entry], options: Sequence[str]) -> dict[str, Entry]:
    """Return the entries that options such as `dataset=hotpotqa` or `corpus=[hotpotqa,musique]` name."""
    pairs = (option.partition("=")[::2] for option in options)
    names = [f"{group}={name.strip()}" for group, value in pairs for name in value.strip("[]").split(",")]
    for name in (name for name in names if name not in entries):
        near = get_close_matches(name, entries, n=3, cutoff=0.4) or entries
        raise InputError(f"{name}: nothing to download by that name; there is {', '.join(near)}")
    return {name: entries[name] for name in names}


def overview(entries: dict[str, Entry], root: Path) -> str:
    """Describe what there is, a line an entry: name, known size, how much of it is below `root`, licence and page."""
    lines = []
    for name, entry in entries.items():
        size = f"{sum(file.size or 0 for file in entry.files) / 1e6:,.1f} MB"
        here = f"{sum(file.is_present(root) for file in entry.files)} of {len(entry.files)} files are here"
        by_hand = "" if all(file.urls for file in entry.files) else " (by hand)"
        lines.append(f"{name:<26}{size:>12}  {here + by_hand:<32}{entry.licence}; {entry.page}")
    return "\n".join(lines)


def download(entries: dict[str, Entry], root: Path) -> list[str]:
    """Bring the files of entries below `root`, checked and unpacked; return what failed. Raises `DiskFullError`."""
    failures = []
    for name, entry in entries.items():
        say(f"{name} (licence: {entry.licence})")
        for file in entry.files:
            try:
                _bring(file, root)
            except FetchError as error:
                hint = f"get {Path(file.path).name} from {entry.page}, put it at {root / file.path}, and run this again"
                failures.append(f"{name}: {error}\n  by hand: {hint}")
                say(failures[-1])
    return failures


def _bring(file: File, root: Path) -> None:
    archive = root / file.path
    unpacked = file.members and not archive.exists() and file.is_present(root)
    for part in file.members if unpacked else [file, *file.members]:
        target = root / part.path
        if not target.exists():
            fetch(part, target) if part is file else _unpack(archive, part, target)
        elif problem := part.mismatch(target):
            raise FetchError(f"{target}: {problem}; move it away, and the same command brings it anew")
        checksum = part.checksum or f"sha256:{checksum_of(target)} (none is published)"
        say(f"  {part.path}: is here, {target.stat().st_size:,} bytes, {checksum}")


def _unpack(archive: Path, member: File, target: Path) -> None:
    """Write a member of an archive to where the table says; nothing else of it is looked at."""
    with replacing(target) as out:
        try:
            alone = archive.suffix == ".gz" and not archive.stem.endswith(".tar")
            with open_binary(archive) if alone else _open_member(archive, member.name) as packed:
                while (block := packed.read(1 << 20)) and out.tell() <= (member.size or LARGEST):
                    out.write(block)
        except Exception as error:  # each kind of damage to each kind of archive raises another one
            if isinstance(error, FetchError) or getattr(error, "errno", None):  # the latter comes from the disk
                raise
            hint = "delete the archive, and the same command downloads it anew"
            raise FetchError(f"{archive}: {member.name} cannot be unpacked ({error}); {hint}") from None
        out.flush()
        if problem := member.mismatch(part_of(target)):
            raise FetchError(f"{archive}: {member.name} {problem}")


@contextmanager
def _open_member(archive: Path, ending: str) -> Iterator[IO[bytes]]:
    zipped = archive.suffix == ".zip"
    open_archive: Any = zipfile.ZipFile if zipped else tarfile.open
    with open_archive(archive) as packed:
        names = packed.namelist() if zipped else [item.name for item in packed if item.isfile()]
        # macOS puts files of its own, with the same endings, in a folder beside.
        matches = [name for name in names if f"/{name}".endswith(f"/{ending}") and not name.startswith("__MACOSX/")]
        if len(matches) != 1:
            problem = f"{len(matches)} members end in {ending}, one is expected: {sorted(names)[:10]}"
            raise FetchError(f"{archive}: {problem}")
        with packed.open(matches[0]) if zipped else packed.extractfile(matches[0]) as file:
            yield file


def fetch(file: File, path: Path) -> None:
    """Download a file to `path` from the first of its addresses that gives it.

    It grows as `path`.part, which a later call continues if the server still has the same file (If-Range).
    Raises `FetchError` naming each address and its answer, and `DiskFullError`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part, tag = part_of(path), path.with_name(f".{path.name}.tag")  # hidden: a folder of texts is read as a whole
    problems = [] if file.urls else [f"{path}: no program can download it"]
    client = httpx2.Client(timeout=TIMEOUT, follow_redirects=True, headers={"Accept-Encoding": "identity"})
    with saying_full(path), client:
        for url in file.urls:
            problem = _fetch_from(client, url, file, part, tag)
            if problem is None:
                part.replace(path)
                return tag.unlink(missing_ok=True)
            problems.append(f"{url}: {problem}")
    raise FetchError("\n".join(problems))


def _fetch_from(client: httpx2.Client, url: str, file: File, part: Path, tag: Path) -> str | None:
    """Bring all bytes, in as many attempts as there are waits and one more; return what is wrong."""
    problem = ""
    for wait in [*WAITS, 0.0]:
        try:
            return _attempt(client, url, file, part, tag)
        except httpx2.HTTPError as error:
            problem = str(error) or type(error).__name__
            time.sleep(wait)
    return f"{problem}, after {len(WAITS)} further attempts; the same command continues what is in {part.name}"


def _attempt(client: httpx2.Client, url: str, file: File, part: Path, tag: Path) -> str | None:
    version = tag.read_text(encoding="utf-8") if tag.exists() else ""  # which tells whether the pieces are of one file
    size = part.stat().st_size if version and part.exists() else 0
    headers = {"Range": f"bytes={size}-", "If-Range": version} if size else {}
    with client.stream("GET", url, headers=headers) as response:
        status, answer, most = response.status_code, response.headers, file.size or LARGEST
        if status in RETRIED:
            if status == 416:
                part.unlink(missing_ok=True)  # it is not shorter than the file
            raise httpx2.TransportError(f"HTTP {status}")
        if status not in {200, 206} or answer.get("content-type", "").startswith("text/html"):
            return f"HTTP {status}" if status >= 300 else "gives an HTML page instead of the file"
        if status == 200:
            part.unlink(missing_ok=True)
            size, etag = 0, answer.get("etag", "")
            tag.write_text(etag if etag.startswith('"') else answer.get("last-modified", ""), encoding="utf-8")
        total = size + int(answer.get("content-length", 0)) or None
        if (total or 0) > most:
            return TOO_LARGE.format(most)
        with part.open("ab") as out, tqdm(total=total, initial=size, unit="B", unit_scale=True, disable=None) as bar:
            for block in response.iter_raw():
                bar.update(out.write(block))
                if out.tell() > most:
                    break
    if problem := file.mismatch(part):
        part.unlink()
    return problem
