"""Files that are read compressed or not, and written whole or not at all."""

import bz2
import gzip
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO, cast

_BLOCK = 1 << 20


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacked where its name ends in .gz or .bz2.

    A file that is cut off or not compressed at all is noticed only while reading, as `EOFError`, `OSError` or
    `zlib.error`.
    """
    if path.suffix == ".gz":
        return buffered(gzip.open(path))
    if path.suffix == ".bz2":
        return buffered(bz2.open(path))
    return path.open("rb")


def buffered(file: IO[bytes] | gzip.GzipFile | bz2.BZ2File) -> BinaryIO:
    """Read a decompressing file by blocks, since its own lines are cut in Python, one call a line."""
    return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, file), _BLOCK))


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write `path` by way of `path`.part, which is renamed when all is on disk and removed where writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8, whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())


def slug(text: str) -> str:
    """The text with everything but letters, digits, `.`, `+` and `_` replaced, so that it is one file's name."""
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", text).strip("-.")
