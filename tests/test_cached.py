"""Searches of slow retrievers are stored, and searched for again only where something decisive changes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.store import ResponseStore, StoreError
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.cached import cached
from rag_notes.retrieval.hybrid import Hybrid
from rag_notes.types import Hit, Passage
from tests.corpora import BIRDS


class SlowRetriever:
    """Gives a hit whose score no decimal number is, and fails at the query "fail"."""

    name, slow = "slow", True

    def __init__(self, corpus: str = "birds") -> None:
        self.corpus, self.batches = corpus, list[tuple[list[str], int]]()

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "corpus": self.corpus}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.batches.append((list(queries), top_k))
        if "fail" in queries:
            raise RuntimeError("nobody there")
        return [[Hit(Passage(query, "青瓷", self.corpus), 1 / 3)] * top_k for query in queries]


def test_a_second_start_searches_for_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "store" / "responses.sqlite"
    ResponseStore(path)
    first, second = SlowRetriever(), SlowRetriever()
    hits = cached(first, path).search(["a", "b", "a"], 2)
    assert hits == first.search(["a", "b", "a"], 2)
    assert first.batches[0] == (["a", "b"], 2)
    again = cached(second, path)
    assert again.search(["b", "c", "a"], 2) == [hits[1], second.search(["c"], 2)[0], hits[0]]
    assert second.batches[0] == (["c"], 2)
    assert (again.name, again.describe()) == ("slow", first.describe())
    assert len(ResponseStore(path)) == 0  # responses and searches do not mix


def test_another_corpus_or_number_of_hits_is_searched_for_and_a_failure_is_not_stored(tmp_path: Path) -> None:
    path = tmp_path / "new" / "responses.sqlite"
    retriever = cached(SlowRetriever(), path)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="nobody there"):
            retriever.search(["fail"], 1)
    retriever.search(["a"], 1)
    other, deeper = SlowRetriever("fish"), SlowRetriever()
    assert cached(other, path).search(["a"], 1)[0][0].passage.text == "fish"
    assert len(cached(deeper, path).search(["a"], 3)[0]) == 3
    assert (len(other.batches), len(deeper.batches)) == (1, 1)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["a"], 0)


def test_a_fast_retriever_is_not_stored_and_a_hybrid_is_as_slow_as_its_parts(tmp_path: Path) -> None:
    fast = bm25(BIRDS, cache=None)
    assert cached(fast, tmp_path / "x.sqlite") is fast
    assert cached(SlowRetriever(), None).name == "slow"
    hybrid = Hybrid(BIRDS, first=lambda _: fast, second=lambda _: fast)
    assert cached(hybrid, tmp_path / "x.sqlite") is hybrid
    assert not (tmp_path / "x.sqlite").exists()
    slow = cached(Hybrid(BIRDS, first=lambda _: fast, second=lambda _: SlowRetriever()), tmp_path / "x.sqlite")
    assert slow.search(["acorns"], 1) == slow.search(["acorns"], 1)
    assert json.dumps(slow.describe())
    assert (tmp_path / "x.sqlite").exists()


def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    for path in (tmp_path / "text", tmp_path / "text" / "below.sqlite"):
        with pytest.raises(StoreError, match="searches cannot be stored"):
            cached(SlowRetriever(), path)
