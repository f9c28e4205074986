"""Dense retrieval: the passages whose vectors have the largest inner products with the query's."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rag_notes.retrieval.base import id_ranks
from rag_notes.retrieval.encoders import Encoder, Vectors
from rag_notes.retrieval.search import Index, exact
from rag_notes.retrieval.vectors import VectorFile, cached_vectors
from rag_notes.types import Hit, InputError, Passage, Positive

_DECIMALS = 6  # of scores
_SLACK = 1e-5  # what an inner product in single precision may be off, relative to the best one


class DenseRetriever:
    """Ranks passages by the inner product of their vectors with the query's (Karpukhin et al., 2020, section 3).

    An `index` finds candidates; they are scored again from the vector file in double precision, and scores are rounded
    to six decimals: equal texts then have equal scores, whatever they were encoded and searched together with, and are
    ranked by id as everywhere. Every passage has a score, so that there are always `top_k` hits where the corpus
    has as many: no score means "nothing in common" as 0 does in BM25.
    """

    name = "dense"

    def __init__(self, passages: Sequence[Passage], file: VectorFile, encoder: Encoder, index: Index) -> None:
        """Join passages with their vectors, in the same order; raises `ValueError` if two share an id."""
        self.passages = passages
        self._file, self._encoder, self._index = file, encoder, index
        self._vectors = np.asarray(file.vectors)
        self._id_rank = id_ranks(passages)

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        """Rank passages for each query, as `Retriever.search` describes, but for the rule about score 0.

        Raises `ValueError` where the encoder's vectors have not as many dimensions as the file's.
        """
        if isinstance(queries, str):
            raise TypeError("queries is one string; pass a list of queries")
        if top_k < 1:
            raise InputError(f"top_k is {top_k}; it must be at least 1")
        if not queries:
            return []
        vectors = self._encoder.encode_queries(queries)
        if vectors.shape != (len(queries), self._vectors.shape[1]):
            raise InputError(
                f"the encoder gives queries {vectors.shape[-1]} dimensions, the vectors in {self._file.folder} have "
                f"{self._vectors.shape[1]}"
            )
        if not np.isfinite(vectors).all():
            raise InputError("the encoder gives a query a vector that is not finite")
        candidates = self._candidates(vectors, top_k)
        return [self._rank(vector, rows, top_k) for vector, rows in zip(vectors, candidates, strict=True)]

    def describe(self) -> dict[str, Any]:
        """Name, encoder with its instructions, size and checksum of corpus and vectors, and the kind of index."""
        file = {name: self._file.meta[name] for name in ("dtype", "truncated", "sha256")}
        return {
            "name": self.name,
            "encoder": self._encoder.describe(),
            "index": self._index.describe(),
            "vectors": file,
            "corpus": self._file.meta["corpus"],
        }

    def _candidates(self, vectors: Vectors, top_k: int) -> NDArray[np.int64]:
        """Rows that hold the best `top_k` of each query and all that may tie with the last of them."""
        count = len(self.passages)
        k, wanted = min(2 * top_k + 16, count), min(top_k, count)
        while True:
            found = self._index.search(vectors, k)
            slack = _SLACK * np.maximum(1, np.abs(found.scores[:, 0]))
            if k == count or bool((found.scores[:, -1] < found.scores[:, wanted - 1] - slack).all()):
                return found.rows
            k = min(2 * k, count)

    def _rank(self, vector: Vectors, rows: NDArray[np.int64], top_k: int) -> list[Hit]:
        rows = rows[rows >= 0]
        # Row by row, not as a matrix product, whose rounding changes with the number of rows.
        products = self._vectors[rows].astype(np.float64) * vector.astype(np.float64)
        scores = products.sum(axis=1).round(_DECIMALS) + 0.0  # without the sign of zero
        order = np.lexsort((self._id_rank[rows], -scores))[:top_k]
        return [Hit(self.passages[row], score) for row, score in zip(rows[order], scores[order].tolist(), strict=True)]


def dense(
    corpus: Sequence[Passage],
    *,
    encoder: Encoder,
    index: Callable[[VectorFile], Index] = exact,
    dtype: Literal["float16", "float32"] = "float32",
    batch_size: Positive = 32,
    vectors: str | None = None,
    cache: str = ".cache/vectors",
) -> DenseRetriever:
    """Return dense retrieval over `corpus`, its vectors encoded where they are not on disk yet.

    They lie in the folder `vectors`, which must then be of this corpus and encoder, or in one below `cache` that is
    named by both. Raises as `encode_corpus`, and `ValueError` for an empty corpus.
    """
    file = cached_vectors(corpus, encoder, dtype=dtype, batch_size=batch_size, folder=vectors, cache=cache)
    return DenseRetriever(corpus, file, encoder, index(file))
