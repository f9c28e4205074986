"""The official files of data sets and corpora (conf/downloads.yaml): from where, whether here, and unpacked."""

import bz2
import gzip
import lzma
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Annotated

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from rag_notes.fetch import LARGEST, WAITS, FetchError, fetch, mismatch
from rag_notes.files import DiskFullError, checksum_of, part_of, replacing
from rag_notes.types import InputError, NonNegative, Positive

_CHECKSUM = r"^(sha256:[0-9a-f]{64}|md5:[0-9a-f]{32})$"
_DAMAGE = (  # what the standard library raises for archives that are cut, mutated, encrypted or of an unknown method
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
    OverflowError,
)


class DownloadError(InputError):
    """A table that does not hold what it should, or an option that names nothing in it."""


def _inside(path: str) -> str:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise InputError("expected a relative path without '..'")
    return path


RelativePath = Annotated[str, AfterValidator(_inside)]
Checksum = Annotated[str, Field(pattern=_CHECKSUM)]


class Member(BaseModel):
    """A file to take out of an archive: `name` is how its path in the archive ends (a .gz has one, of any name)."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    path: RelativePath
    size: NonNegative | None = None
    checksum: Checksum | None = None


class File(BaseModel):
    """A file: its addresses in the order to try them (none: by hand only), where it goes, size in bytes, checksum."""

    model_config = ConfigDict(extra="forbid", strict=True)

    urls: list[str]
    path: RelativePath
    size: NonNegative | None
    checksum: Checksum | None
    members: list[Member] = []


class Entry(BaseModel):
    """The files of a data set or corpus, their licence, and the page where a person finds them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    licence: Annotated[str, Field(min_length=1)]
    page: str
    files: Annotated[list[File], Field(min_length=1)]


class Downloads(BaseModel):
    """The table; `largest` is how many bytes a file or member of unknown size may have."""

    model_config = ConfigDict(extra="forbid", strict=True)

    dataset: dict[str, Entry]
    corpus: dict[str, Entry]
    largest: Positive = LARGEST

    def entries(self) -> Iterator[tuple[str, Entry]]:
        """All entries with the option that names each."""
        for group in ("dataset", "corpus"):
            for name, entry in getattr(self, group).items():
                yield f"{group}={name}", entry


def load_downloads(path: Path) -> Downloads:
    """Read and check a table; raises `DownloadError` naming the file and the field."""
    try:
        with path.open(encoding="utf-8") as stream:  # whose name stands in YAML's errors
            return Downloads.model_validate(yaml.safe_load(stream))
    except ValidationError as error:
        problems = [f"{path}, {'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise DownloadError("\n".join(problems)) from None
    except yaml.YAMLError as error:
        raise DownloadError(f"{path}: not valid YAML: {error}") from None


def chosen(table: Downloads, options: Sequence[str]) -> list[tuple[str, Entry]]:
    """The entries that options such as `dataset=hotpotqa` or `corpus=[hotpotqa,musique]` name, each once."""
    known = dict(table.entries())
    names = []
    for option in options:
        group, equals, value = option.partition("=")
        names += [f"{group}{equals}{name.strip()}" for name in value.strip("[]").split(",")]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.4) or known
            raise DownloadError(f"{name}: nothing to download by that name; there is {', '.join(near)}")
    return [(name, known[name]) for name in dict.fromkeys(names)]


def overview(table: Downloads, root: Path) -> str:
    """What there is, a line an entry: its name, size, whether it is below `root`, licence and page."""
    rows = [("what", "size", "here", "licence", "page")]
    for name, entry in table.entries():
        known = sum(file.size or 0 for file in entry.files)
        unknown = any(file.size is None for file in entry.files)
        size = f"{_megabytes(known)} and more" if known and unknown else "?" if unknown else _megabytes(known)
        here = sum(_is_here(file, root) for file in entry.files)
        by_hand = ", by hand" if any(not file.urls for file in entry.files) else ""
        there = "yes" if here == len(entry.files) else f"{here} of {len(entry.files)} files" if here else "no"
        rows.append((name, size, there + by_hand * (there != "yes"), entry.licence, entry.page))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def download(
    entries: Sequence[tuple[str, Entry]],
    root: Path,
    *,
    largest: int = LARGEST,
    waits: Sequence[float] = WAITS,
    timeout: float = 60.0,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Bring the files of entries below `root`, unpack them and say what was done; return what could not be done.

    What is there already is checked, not downloaded. A file or member of unknown size has at most `largest` bytes. A
    file that fails does not keep the others from being fetched, but for a full disk: then `DiskFullError` is raised.
    """
    get = partial(fetch, largest=largest, waits=waits, timeout=timeout)
    failures = []
    for name, entry in entries:
        say(f"{name} (licence: {entry.licence})")
        for file in entry.files:
            try:
                _bring(file, root, largest, get, say)
            except DiskFullError:
                raise
            except OSError as error:
                wanted = f"{root / file.path}"
                failures.append(
                    f"{name}: {error}\n  by hand: get {Path(file.path).name} from {entry.page}, put it at {wanted}, "
                    "and run the same command again to check it" + (" and unpack it" if file.members else "")
                )
                say(failures[-1])
    return failures


def _bring(file: File, root: Path, largest: int, get: Callable[..., None], say: Callable[[str], None]) -> None:
    path = root / file.path
    if file.members and not path.exists() and _members_are_here(file, root):
        for member in file.members:
            _check(root / member.path, member.size, member.checksum)
            say(f"  {member.path}: is here")
        return
    record = path.with_name(f".{path.name}.sha256")
    checksum = file.checksum or (_recorded(record) if record.exists() else None)
    try:
        if file.urls and not path.exists():
            get(file.urls, path, size=file.size, checksum=checksum)
            say(f"  {file.path}: downloaded, {path.stat().st_size:,} bytes")
        else:
            _check(path, file.size, checksum)
            say(f"  {file.path}: is here")
    except FetchError as error:
        if file.checksum is None and checksum is not None and checksum in str(error):
            raise FetchError(
                f"{error}\n  that checksum is of an earlier download; delete {record} to forget it"
            ) from None
        raise
    _unpack(file, root, largest, say)
    if checksum is None:  # known to be sound, as far as that can be known
        checksum = f"sha256:{checksum_of(path)}"
        with replacing(record) as out:
            out.write(f"{checksum}  {path.name}\n".encode())
        say(f"  no checksum is published for it; it has {checksum}, recorded in {record.name} for later downloads")


def _recorded(record: Path) -> str:
    checksum = record.read_bytes().partition(b" ")[0].decode("ascii", "replace")
    if not re.match(_CHECKSUM, checksum):
        raise FetchError(f"{record}: expected the checksum of an earlier download; delete it to forget that")
    return checksum


def _check(path: Path, size: int | None, checksum: str | None) -> None:
    if not path.exists():
        raise FetchError(f"{path}: no program can download it")
    problem = mismatch(path, size, checksum)
    if problem is not None:
        raise FetchError(f"{path}: {problem}; move it away, and the same command downloads it anew")


def _is_here(file: File, root: Path) -> bool:
    if file.members:
        return _members_are_here(file, root)
    path = root / file.path
    return path.is_file() and file.size in (None, path.stat().st_size)


def _members_are_here(file: File, root: Path) -> bool:
    paths = [(root / member.path, member.size) for member in file.members]
    return all(path.is_file() and size in (None, path.stat().st_size) for path, size in paths)


def _unpack(file: File, root: Path, largest: int, say: Callable[[str], None]) -> None:
    """Write the members that the table names, to where the table says; nothing else of an archive is looked at."""
    archive = root / file.path
    for member in file.members:
        target = root / member.path
        if target.exists():
            _check(target, member.size, member.checksum)
            say(f"  {member.path}: is here")
            continue
        most = largest if member.size is None else member.size
        with replacing(target) as out:
            for block in _blocks(archive, member.name):
                out.write(block)
                if out.tell() > most:
                    raise FetchError(
                        f"{archive}: {member.name} has more than {most:,} bytes, and nothing is kept of it; "
                        "if that is right, correct its `size`, or `largest`, in the table of downloads"
                    )
            out.flush()
            problem = mismatch(part_of(target), member.size, member.checksum)
            if problem is not None:
                raise FetchError(f"{archive}: {member.name} {problem}; nothing is kept of it, delete the archive")
        say(f"  {member.path}: unpacked, {target.stat().st_size:,} bytes")


def _blocks(archive: Path, name: str) -> Iterator[bytes]:
    """What the member holds, as it is unpacked."""
    try:
        with _member(archive, name) as packed:
            while block := packed.read(1 << 20):
                yield block
    except FetchError:
        raise
    except (*_DAMAGE, OSError) as error:
        raise FetchError(
            f"{archive}: {name} cannot be unpacked ({error}); delete the archive, and the same command downloads it "
            "anew, or unpack it by another program"
        ) from None


@contextmanager
def _member(archive: Path, name: str) -> Iterator[IO[bytes]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed, packed.open(_only(packed.namelist(), name, archive)) as file:
            yield file
    elif archive.suffix in {".gz", ".bz2"} and not archive.stem.endswith(".tar"):
        with (gzip if archive.suffix == ".gz" else bz2).open(archive) as file:
            yield file
    else:
        with tarfile.open(archive) as tar:
            files = {member.name: member for member in tar if member.isfile()}
            found = tar.extractfile(files[_only(list(files), name, archive)])
            assert found is not None  # it is a regular file
            with found as file:
                yield file


def _only(names: list[str], wanted: str, archive: Path) -> str:
    """The one name that ends in `wanted`; macOS puts files of its own, with the same endings, in a folder beside."""
    found = [n for n in names if (n == wanted or n.endswith(f"/{wanted}")) and not n.startswith("__MACOSX/")]
    if len(found) != 1:
        there = ", ".join(sorted(names)[:10])
        raise FetchError(f"{archive}: {len(found)} members end in {wanted}, one is expected; there is {there}")
    return found[0]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
