"""The terms of an index on disk, looked up where they lie: a dictionary of them takes more memory than a search."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_TERMS, _STARTS, _NUMBERS = "terms.txt", "term_starts.npy", "term_numbers.npy"


class Vocabulary:
    """The number of each term: the terms in the order of their UTF-8, found by bisection."""

    def __init__(self, folder: Path) -> None:
        """Open what `write_vocabulary` wrote, memory-mapped."""
        # Views of memory: taking an element of one costs a fraction of what it does from a np.memmap.
        terms: Any = np.memmap(folder / _TERMS, dtype=np.uint8, mode="r")
        self._terms = memoryview(terms)
        self._starts = memoryview(np.load(folder / _STARTS, mmap_mode="r"))
        self._numbers = memoryview(np.load(folder / _NUMBERS, mmap_mode="r"))

    def get(self, term: str) -> int | None:
        """The term's number, or None for one that no passage has."""
        wanted = term.encode()
        place = bisect_left(range(len(self._numbers)), wanted, key=self._term)
        found = place < len(self._numbers) and self._term(place) == wanted
        return self._numbers[place] if found else None

    def items(self) -> Iterator[tuple[str, int]]:
        """All terms with their numbers, in the order of their UTF-8."""
        for place, number in enumerate(self._numbers):
            yield self._term(place).decode(), number

    def _term(self, place: int) -> bytes:
        return bytes(self._terms[self._starts[place] : self._starts[place + 1]])


def write_vocabulary(folder: Path, items: Iterable[tuple[str, int]]) -> None:
    """Write terms and their numbers; the same ones give the same bytes. There must be one at least."""
    ordered = sorted((term.encode(), number) for term, number in items)
    (folder / _TERMS).write_bytes(b"".join(term for term, _ in ordered))
    np.save(folder / _STARTS, np.cumsum([0, *(len(term) for term, _ in ordered)], dtype=np.int64))
    np.save(folder / _NUMBERS, np.array([number for _, number in ordered], dtype=np.int32))
