"""Hybrid retrieval: the rankings of two retrievers merged by reciprocal rank fusion."""

from collections.abc import Callable, Sequence
from typing import Any

from rag_notes.retrieval.base import Retriever
from rag_notes.types import Hit, InputError, NonNegative, Passage, Positive


class Hybrid:
    """Ranks passages by the sum of 1 / (k + rank) over two rankings, ranks from 1, each `depth` hits deep.

    Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning
    Methods, SIGIR 2009, section 2 (k = 60). What one ranking does not hold has nothing from it.
    """

    def __init__(self, first: Retriever, second: Retriever, *, k: int = 60, depth: int = 100) -> None:
        self.name = f"{first.name}+{second.name}"
        self._parts = (first, second)
        self._k, self._depth = k, depth

    @property
    def retries(self) -> int:
        """How many searches the parts sent again since they were made."""
        return sum(getattr(part, "retries", 0) for part in self._parts)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes; where `top_k` is above the depth, as deep."""
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        rankings = [part.search(queries, max(top_k, self._depth)) for part in self._parts]
        return [self._fuse(pair, top_k) for pair in zip(*rankings, strict=True)]

    def describe(self) -> dict[str, Any]:
        """Name, settings and what both parts say of themselves."""
        first, second = (part.describe() for part in self._parts)
        return {"name": self.name, "k": self._k, "depth": self._depth, "first": first, "second": second}

    def _fuse(self, rankings: Sequence[Sequence[Hit]], top_k: int) -> list[Hit]:
        scores: dict[str, float] = {}
        passages = {hit.passage.id: hit.passage for ranking in rankings for hit in ranking}
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                scores[hit.passage.id] = scores.get(hit.passage.id, 0.0) + 1 / (self._k + rank)
        best = sorted(scores, key=lambda name: (-scores[name], name))[:top_k]
        return [Hit(passages[name], scores[name]) for name in best]


def hybrid(
    corpus: Sequence[Passage],
    *,
    first: Callable[[Sequence[Passage]], Retriever],
    second: Callable[[Sequence[Passage]], Retriever],
    k: NonNegative = 60,
    depth: Positive = 100,
) -> Hybrid:
    """Return two retrievers over `corpus` with their rankings merged; each is a retriever's settings."""
    return Hybrid(first(corpus), second(corpus), k=k, depth=depth)
