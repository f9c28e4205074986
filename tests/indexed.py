"""Retrievers over the Elasticsearch of the tests, and what they should find."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

from rag_notes.retrieval.elastic import ElasticsearchBM25, elasticsearch
from rag_notes.types import Hit, Passage
from tests.elastic import Secured
from tests.elastic_proxy import Forward

names = (f"test-{os.getpid()}-{number}" for number in itertools.count())


def make(server: Secured, corpus: Sequence[Passage], **settings: Any) -> ElasticsearchBM25:
    """A retriever over `corpus`, not indexed, with what the minimal build has."""
    where = {} if "hosts" in settings else {"hosts": [server.url], "ca_file": server.ca_file}
    standard: dict[str, Any] = {"analyzer": "standard", "replicas": 0}
    return elasticsearch(corpus, **standard | where | settings)


def indexed(server: Secured, corpus: Sequence[Passage], **settings: Any) -> ElasticsearchBM25:
    retriever = make(server, corpus, **{"index": next(names)} | settings)
    retriever.build_index(progress=False)
    return retriever


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def expected(corpus: Sequence[Passage], scores: Sequence[float], top_k: int) -> list[tuple[str, float]]:
    """The ids with their scores, best first, equal scores by id, none without a score."""
    ranked = sorted((-score, passage.id) for passage, score in zip(corpus, scores, strict=True) if score > 0)
    return [(name, -score) for score, name in ranked[:top_k]]


def passed_on(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
    return forward(body)
