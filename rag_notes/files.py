"""Files that are read compressed or not, known by their checksum, and written whole or not at all."""

import bz2
import errno
import gzip
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

_PACKAGED = Path(__file__).with_name("shipped")
SHIPPED = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).resolve().parents[1]
"""Where conf/, notebooks/ and the data that comes with them are: in an installed package, or at a checkout's top."""
PART = ".part"  # what the name of a file ends in until the file is whole
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DiskFullError(OSError):
    """No room for more bytes: no other file will fare better."""


def here() -> Path:
    """The folder that relative paths start from: the current one; the one above for a notebook opened in notebooks/."""
    folder = Path.cwd()
    return folder.parent if folder == SHIPPED / "notebooks" else folder


def here_or_shipped(path: str) -> str:
    """A path as it is, or that of the file of this name that came with the package, where there is none here."""
    shipped = SHIPPED / path
    return str(shipped) if shipped.exists() and not (here() / path).exists() else path


def open_binary(path: Path) -> IO[bytes]:
    """Open a file for reading, unpacked where its name ends in .gz or .bz2; damage to it is noticed while reading."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix, open)
    return cast(IO[bytes], opener(path, "rb"))


@contextmanager
def replacing(path: Path, part: Path | None = None) -> Iterator[BinaryIO]:
    """Write `path` as `part`, by default `path`.part, renamed when all is on disk. Raises `DiskFullError`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = part or part_of(path)
    with saying_full(path):
        try:
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def part_of(path: Path) -> Path:
    """Where `path` is until it is whole."""
    return path.with_name(path.name + PART)


def checksum_of(path: Path, kind: str = "sha256") -> str:
    """Return the checksum of a file's bytes, as hexadecimal digits; `kind` is a name that hashlib knows."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, kind).hexdigest()


@contextmanager
def saying_full(path: Path) -> Iterator[None]:
    """Turn the system's error for a full disk, while `path` is written, into `DiskFullError`."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        problem = f"the disk is full or its quota is used up ({error.strerror})"
        raise DiskFullError(f"{path}: {problem}; make room and run the same command again") from None


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def slug(text: str) -> str:
    """The text with everything but letters, digits, `.`, `+` and `_` replaced, so that it is one file's name."""
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", text).strip("-.")
