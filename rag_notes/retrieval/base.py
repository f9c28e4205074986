"""What every retriever offers, and the checksum by which an index knows its corpus."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from rag_notes.datasets.corpus import passage_line
from rag_notes.types import Hit, InputError, Passage


class RetrieverError(RuntimeError):
    """A search that every further one would share the fate of (nobody there, no such index): the run stops."""


class Retriever(Protocol):
    """Something that ranks the passages of one corpus for a question.

    `name` is the name that records and tables show.
    """

    name: str

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query.

        Returns one list a query, in the order of `queries`, with at most `top_k` hits, best first. It is shorter
        where fewer passages match: a hit that says nothing (score 0) is never returned, but for dense retrieval, where
        every passage has a score and 0 means nothing special. Equal scores are in the order of the passage ids.
        Raises `ValueError` if `top_k` is below 1.
        """
        ...

    def describe(self) -> dict[str, Any]:
        """What determines the rankings, for the record of a run: name, settings, size and checksum of the corpus."""
        ...


class IndexedRetriever(Retriever, Protocol):
    """A retriever whose index is made by `rag-notes index`, not on first use."""

    def build_index(self, *, progress: bool = True) -> str:
        """Index the corpus, or what is missing of it, and return a line that says what was done."""
        ...


class Corpus(NamedTuple):
    """How many passages, and the SHA-256 of them as `corpus_checksum` has it."""

    passages: int
    sha256: str


def measure(corpus: Iterable[Passage]) -> Corpus:
    """Read a corpus once for its size and checksum."""
    counted = Counted(corpus)
    for _ in counted:
        pass
    return counted.seen()


class Counted:
    """Iterates over passages and knows how many went by, with their checksum."""

    def __init__(self, corpus: Iterable[Passage]) -> None:
        self._corpus = corpus
        self._digest = hashlib.sha256()
        self._count = 0

    def __iter__(self) -> Iterator[Passage]:
        for passage in self._corpus:
            self._digest.update(passage_line(passage).encode())
            self._count += 1
            yield passage

    def seen(self) -> Corpus:
        """Of the passages so far."""
        return Corpus(self._count, self._digest.hexdigest())


def corpus_checksum(passages: Iterable[Passage]) -> str:
    """Return the SHA-256 (hexadecimal) of the passages in their order, each as its `passage_line` in UTF-8."""
    return measure(passages).sha256


def id_ranks(passages: Iterable[Passage]) -> npt.NDArray[np.int64]:
    """Return the place of each passage in the order of the ids, by which equal scores are told apart.

    Raises `ValueError` if two passages share an id.
    """
    ids = [passage.id for passage in passages]
    by_id = sorted(range(len(ids)), key=ids.__getitem__)
    for before, after in pairwise(by_id):
        if ids[before] == ids[after]:
            raise InputError(f"two passages of the corpus have the id {ids[after]!r}; ids must differ")
    ranks = np.empty(len(by_id), dtype=np.int64)
    ranks[by_id] = np.arange(len(by_id))
    return ranks
