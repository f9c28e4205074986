"""What every retriever offers, and the size and checksum by which an index knows its corpus."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from rag_notes.datasets.corpus import passage_line
from rag_notes.types import Hit, InputError, Passage


class RetrieverError(RuntimeError):
    """A search failed for a reason that every further search shares, such as no server: the run stops."""


class Retriever(Protocol):
    """Ranks the passages of one corpus. Where it has a true attribute `slow`, its hits are stored, see `cached`."""

    @property
    def name(self) -> str:
        """Its name in records and tables."""

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query: a list of at most `top_k` hits for each, best first, in the queries' order.

        A passage that shares no word with the query is never a hit. Dense retrieval has no such rule: every passage has
        a score there. Equal scores are in the order of the passage ids. Raises InputError if `top_k` is below 1.
        """

    def describe(self) -> dict[str, Any]:
        """What determines the rankings, as JSON values: name, settings, size and checksum of the corpus."""


class IndexedRetriever(Retriever, Protocol):
    """A retriever whose index `rag-notes index` makes."""

    def build_index(self, *, progress: bool = True) -> str:
        """Index the corpus, or what is missing of it, and return a line that says what was done."""


class CorpusSize(NamedTuple):
    """The number of passages, and the SHA-256 (hexadecimal) of their `passage_line` in UTF-8, in their order."""

    passages: int
    sha256: str


def measure(corpus: Iterable[Passage]) -> CorpusSize:
    """Read a corpus once for its size and checksum. Raises InputError where it is empty."""
    count, digest = 0, hashlib.sha256()
    for count, passage in enumerate(corpus, 1):  # noqa: B007 - counts
        digest.update(passage_line(passage).encode())
    if not count:
        raise InputError("the corpus is empty, nothing can be retrieved: set dataset.<name>.corpus to its passages")
    return CorpusSize(count, digest.hexdigest())


def check_search(queries: Sequence[str], top_k: int) -> None:
    """Raise TypeError for one string in place of a list of queries, and InputError for a `top_k` below 1."""
    if isinstance(queries, str):
        raise TypeError("queries is one string; pass a list of queries")
    if top_k < 1:
        raise InputError(f"top_k is {top_k}; it must be at least 1")
