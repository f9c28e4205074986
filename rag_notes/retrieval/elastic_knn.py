"""Dense retrieval in an Elasticsearch server or cluster: kNN over vectors that `rag-notes index` has put there."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from pydantic import Field

from rag_notes.retrieval.elastic_index import kept
from rag_notes.retrieval.elastic_search import ElasticsearchRetriever, IndexOptions, command_line
from rag_notes.retrieval.elastic_server import Server
from rag_notes.retrieval.encoders import Encoder
from rag_notes.retrieval.vectors import VectorFile, cached_vectors, describe_passages
from rag_notes.types import InputError, NonNegative, Passage, Positive

_FIELD = "vector"
_MOST = 10_000  # candidates that the server takes


class VectorOptions(NamedTuple):
    """How and where the vectors of passages are kept, as `rag_notes.retrieval.dense.dense` describes."""

    dtype: Literal["float16", "float32"]
    batch_size: int
    folder: str | None
    cache: str


@dataclass(frozen=True, slots=True)
class KNNSettings:
    """How vectors are searched: made by `encoder`, kept as `dtype`, compared as `index_options` of a `dense_vector`."""

    encoder: dict[str, Any]
    dtype: str
    index_options: dict[str, Any]
    kind: ClassVar[str] = "knn"

    @property
    def similarity(self) -> str:
        """The server's name of the inner product: one for vectors of length 1, which it checks, and one for others."""
        return "dot_product" if self.encoder.get("normalize") else "max_inner_product"

    def describe(self) -> dict[str, Any]:
        """As `rag_notes.retrieval.elastic_index.Kind.describe`."""
        return {
            "encoder": self.encoder,
            "dtype": self.dtype,
            "similarity": self.similarity,
            "index_options": self.index_options,
        }

    def inner_product(self, score: float) -> float:
        """The inner product that the server made its score of, which is never negative.

        Source: Elasticsearch's reference, `similarity` of `dense_vector`: (1 + p) / 2 for `dot_product`; for
        `max_inner_product` p + 1, or 1 / (1 - p) where p is negative.
        """
        if self.similarity == "dot_product":
            return 2 * score - 1
        return score - 1 if score >= 1 else 1 - 1 / score


@dataclass(frozen=True, slots=True)
class KNNContent:
    """What an index holds of a vector file, as `rag_notes.retrieval.elastic_index.Content` describes."""

    settings: KNNSettings
    file: VectorFile
    kind: ClassVar[str] = KNNSettings.kind
    chunk: ClassVar[int] = 250  # 20 MB of vectors of 4096 dimensions; the server refuses a request above 100 MB

    def describe(self) -> dict[str, Any]:
        """As `Content.describe`: what a search must know of the vectors, too."""
        made = {name: self.file.meta[name] for name in ("truncated", "sha256")}
        return self.settings.describe() | {"vectors": {"dimensions": self.file.vectors.shape[1], **made}}

    def index_settings(self) -> dict[str, Any]:
        """As `Content.index_settings`."""
        return {}

    def properties(self) -> dict[str, Any]:
        """As `Content.properties`: index options are always given, as the server's own would quantise the vectors."""
        vector = {
            "type": "dense_vector",
            "dims": self.file.vectors.shape[1],
            "index": True,
            "similarity": self.settings.similarity,
            "index_options": self.settings.index_options,
        }
        return kept("title", "text") | {_FIELD: vector}

    def document(self, position: int, passage: Passage) -> dict[str, Any]:
        """As `Content.document`."""
        return {"title": passage.title, "text": passage.text, _FIELD: self.file.vectors[position].tolist()}


class ElasticsearchKNN(ElasticsearchRetriever):
    """Ranks passages by the inner product of their vectors with the query's, as `DenseRetriever`, but in a server.

    The score is that inner product in single precision. With `flat` it is exact. With `hnsw` the server follows the
    graph of each segment of a shard, `candidates` deep: some of the nearest may be missing, and which ones may change
    when segments are merged and from one copy of a shard to the other. Equal scores are ranked by id among the
    `candidates` best. Make one with `elasticsearch_knn`.
    """

    name = "elasticsearch_knn"
    _prefix = "rag-notes-knn"
    _besides = "dataset and encoder"

    def __init__(
        self,
        server: Server,
        corpus: Iterable[Passage],
        encoder: Encoder,
        settings: KNNSettings,
        options: IndexOptions,
        *,
        candidates: int,
        vectors: VectorOptions,
    ) -> None:
        """As `ElasticsearchRetriever`; `vectors` are made where the corpus is indexed, not for searching."""
        super().__init__(server, corpus, settings, options)
        self._settings = settings
        self._encoder = encoder
        self._candidates = candidates
        self._vectors = vectors

    def build_index(self, *, progress: bool = True) -> str:
        """Encode the corpus and index it, or what is missing of both, and return a line that says what was done.

        Passages that cannot be looked up by their place are held in memory for the encoder. Raises as
        `rag_notes.retrieval.vectors.encode_corpus` and `rag_notes.retrieval.elastic_index.build_index`.
        """
        self._server.versions()  # encoding can take hours
        passages = self._corpus if isinstance(self._corpus, Sequence) else list(self._corpus)
        file = cached_vectors(passages, self._encoder, **self._vectors._asdict(), progress=progress)
        return self._build(passages, KNNContent(self._settings, file), progress=progress)

    def describe(self) -> dict[str, Any]:
        """Name, encoder with its instructions, settings, version of the server, vectors and corpus by their checksums.

        Raises `RetrieverError` where the corpus is not indexed, or with other settings.
        """
        checked = self._check()
        return {
            "name": self.name,
            **checked.settings,
            "encoder": self._encoder.describe(),
            "candidates": self._candidates,
            "server": checked.version,
            "corpus": self._size._asdict(),
        }

    def _searches(self, queries: Sequence[str], top_k: int) -> list[dict[str, Any]]:
        if top_k > _MOST:
            raise InputError(f"top_k is {top_k}; Elasticsearch finds at most {_MOST} by their vectors")
        checked = self._check()
        vectors, dimensions = self._encoder.encode_queries(queries), checked.settings["vectors"]["dimensions"]
        if vectors.shape != (len(queries), dimensions):
            raise InputError(
                f"the encoder gives queries {vectors.shape[-1]} dimensions, the vectors in {checked.name} have "
                f"{dimensions}"
            )
        if not np.isfinite(vectors).all():
            raise InputError("the encoder gives a query a vector that is not finite")
        # All candidates are found, so that the server sorts by id what ties with the last of the hits.
        found = max(self._candidates, top_k)
        searched = {"field": _FIELD, "k": found, "num_candidates": found}
        return [{"knn": {"query_vector": vector, **searched}} for vector in vectors.tolist()]

    def _score(self, hit: Mapping[str, Any]) -> float:
        return self._settings.inner_product(float(hit["_score"]))


def elasticsearch_knn(
    corpus: Iterable[Passage],
    *,
    encoder: Encoder,
    hosts: Sequence[str] = ("http://127.0.0.1:9200",),
    index: str | None = None,
    index_type: Literal["hnsw", "flat"] = "hnsw",
    m: Annotated[int, Field(ge=2, le=512)] = 16,
    ef_construction: Annotated[int, Field(ge=1, le=3200)] = 100,
    candidates: Annotated[int, Field(ge=1, le=_MOST)] = 200,
    dtype: Literal["float16", "float32"] = "float32",
    batch_size: Positive = 32,
    vectors: str | None = None,
    cache: str = ".cache/vectors",
    shards: Positive = 1,
    replicas: NonNegative = 1,
    api_key_variable: str = "ELASTICSEARCH_API_KEY",
    user_variable: str = "ELASTICSEARCH_USER",
    password_variable: str = "ELASTICSEARCH_PASSWORD",
    ca_file: str | None = None,
    timeout: Annotated[float, Field(gt=0)] = 60.0,
    max_retries: NonNegative = 8,
) -> ElasticsearchKNN:
    """Dense retrieval in Elasticsearch over `corpus`, which `rag-notes index` must have put there.

    `index` is the alias to search (None: `rag-notes-knn-` and the beginning of the corpus's checksum). `flat` compares
    every vector with the query; `m` and `ef_construction` are of `hnsw`. A search has `candidates` of each shard, or as
    many as hits are wanted. `dtype`, `batch_size`, `vectors`, `cache` and the vector file are those of
    `rag_notes.retrieval.dense.dense`, the others those of `rag_notes.retrieval.elastic.elasticsearch`. Raises
    `ValueError` for settings that cannot be; nothing is asked of the server yet.
    """
    given = {name: value for name, value in locals().items() if name not in {"corpus", "encoder"}}
    server = Server(
        hosts,
        api_key_variable=api_key_variable,
        user_variable=user_variable,
        password_variable=password_variable,
        ca_file=ca_file,
        timeout=timeout,
        max_retries=max_retries,
    )
    graph = {"m": m, "ef_construction": ef_construction} if index_type == "hnsw" else {}
    return ElasticsearchKNN(
        server,
        corpus,
        encoder,
        KNNSettings(describe_passages(encoder), dtype, {"type": index_type, **graph}),
        IndexOptions(index, shards, replicas, command_line("elasticsearch_knn", elasticsearch_knn, given)),
        candidates=candidates,
        vectors=VectorOptions(dtype, batch_size, vectors, cache),
    )
