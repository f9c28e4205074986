"""A file of lines as a sequence of what they say, each line read when it is asked for."""

import weakref
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, TypeVar, overload

from rag_notes.files import replacing

Key = tuple[str, str]
T = TypeVar("T")

_AT_HAND = 1024
"""How many lines of a file stay in memory once read, so that a small file is read once."""


class Lines(Sequence[T]):
    """What the lines of a file say: in memory are their keys, where they begin, and those read last.

    `keys` are a pair of names for each line, `starts` the bytes at which they begin. Equal to a sequence of the same.
    """

    def __init__(self, read: Callable[[int], T], keys: Sequence[Key], starts: Sequence[int]) -> None:
        self.keys = keys
        self._read, self._starts = read, starts

    def at(self, places: Iterable[int]) -> "Lines[T]":
        """Those at these places."""
        chosen = list(places)
        return Lines(self._read, [self.keys[i] for i in chosen], array("q", [self._starts[i] for i in chosen]))

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "Lines[T]": ...
    def __getitem__(self, place: int | slice) -> "T | Lines[T]":
        if isinstance(place, slice):
            return self.at(range(len(self))[place])
        return self._read(self._starts[place])

    def __len__(self) -> int:
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment] # as of a list


def reader(file: BinaryIO, parse: Callable[[bytes], T]) -> Callable[[int], T]:
    """What reads the line that begins at a byte: of the file as it is now, also when another has taken its place."""

    @lru_cache(_AT_HAND)
    def read(start: int) -> T:
        file.seek(start)
        return parse(file.readline())

    weakref.finalize(read, file.close)
    return read


def sort_lines(path: Path, written: Iterable[Key], order: Iterable[Key]) -> tuple[list[Key], Sequence[int]]:
    """Put the lines of a file, whose keys are `written`, in the order of `order`, atomically; others are left out.

    Returns the keys of the lines that are there now, and where they begin.
    """
    keys: list[Key] = []
    starts, end = array("q"), 0
    with path.open("rb") as file:
        before: dict[Key, int] = {}
        for key, line in zip(written, file, strict=True):
            before[key], end = end, end + len(line)
        end = 0
        with replacing(path) as target:
            for key in order:
                if key in before:
                    file.seek(before[key])
                    keys.append(key)
                    starts.append(end)
                    end += target.write(file.readline())
    return keys, starts
