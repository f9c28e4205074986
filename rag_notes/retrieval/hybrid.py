"""Hybrid retrieval: the rankings of two retrievers merged by reciprocal rank fusion."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rag_notes.retrieval.base import Retriever, check_search
from rag_notes.types import Hit, NonNegative, Passage, Positive


class Hybrid:
    """Ranks passages by the sum of 1 / (k + rank) over two rankings, ranks from 1, each `depth` hits deep.

    Source: Cormack, Clarke and Büttcher, Reciprocal Rank Fusion Outperforms Condorcet and Individual Rank Learning
    Methods, SIGIR 2009, section 2 (k = 60). A passage that a ranking does not hold gets nothing from it.
    """

    name = "hybrid"  # that of an object says which two it merges

    def __init__(
        self,
        corpus: Sequence[Passage],
        *,
        first: Callable[[Sequence[Passage]], Retriever],
        second: Callable[[Sequence[Passage]], Retriever],
        k: NonNegative = 60,
        depth: Positive = 100,
    ) -> None:
        """Build two retrievers over `corpus`; `first` and `second` are the settings of each."""
        self._parts, self._k, self._depth = (first(corpus), second(corpus)), k, depth
        self.name = "+".join(part.name for part in self._parts)
        self.slow = any(getattr(part, "slow", False) for part in self._parts)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes, from rankings of at least `top_k` hits."""
        check_search(queries, top_k)
        rankings = [part.search(queries, max(top_k, self._depth)) for part in self._parts]
        return [self._fuse(pair, top_k) for pair in zip(*rankings, strict=True)]

    def describe(self) -> dict[str, Any]:
        """Name, settings and the descriptions of both retrievers."""
        first, second = (part.describe() for part in self._parts)
        return {"name": self.name, "k": self._k, "depth": self._depth, "first": first, "second": second}

    def _fuse(self, rankings: Sequence[Sequence[Hit]], top_k: int) -> list[Hit]:
        scores: dict[Passage, float] = defaultdict(float)
        for ranking in rankings:
            for rank, hit in enumerate(ranking, 1):
                scores[hit.passage] += 1 / (self._k + rank)
        best = sorted(scores, key=lambda passage: (-scores[passage], passage.id))[:top_k]
        return [Hit(passage, scores[passage]) for passage in best]
