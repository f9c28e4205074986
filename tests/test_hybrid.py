"""Reciprocal rank fusion of any two retrievers, searches that are stored, and the names of retrievers."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config
from rag_notes.llm.store import ResponseStore
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.cached import cached
from rag_notes.retrieval.hybrid import Hybrid
from rag_notes.running.run import label
from rag_notes.types import Hit, Passage
from tests.corpora import BIRDS


class Ranking:
    """A retriever that gives the same ranking for every query, and fails at the query "fail"."""

    slow = True

    def __init__(self, ranking: Sequence[str], name: str = "ranking") -> None:
        self.name, self.ranking, self.searches = name, ranking, list[tuple[list[str], int]]()

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.searches.append((list(queries), top_k))
        if "fail" in queries:
            raise RuntimeError("nobody there")
        hits = [Hit(Passage(name, "青瓷", name), 9 - rank / 3) for rank, name in enumerate(self.ranking)]
        return [hits[:top_k] for _ in queries]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "ranking": list(self.ranking)}


def joined(first: Retriever, second: Retriever, **options: int) -> Hybrid:
    return Hybrid([], first=lambda _: first, second=lambda _: second, **options)


@pytest.mark.parametrize(
    ("first", "second", "top_k", "fused"),
    [("abc", "bda", 10, "badc"), ("ba", "ab", 5, "ab"), ("zx", "yw", 4, "yzwx"), ("zx", "yw", 1, "y")],
)
def test_ranks_are_fused_with_ties_in_the_order_of_the_ids(first: str, second: str, top_k: int, fused: str) -> None:
    (hits,) = joined(Ranking(first), Ranking(second)).search(["?"], top_k)
    assert "".join(hit.passage.id for hit in hits) == fused
    if first == "abc":  # k = 60: b 1/62 + 1/61, a 1/61 + 1/63, d 1/62, c 1/63
        assert [hit.score for hit in hits] == pytest.approx([0.0325225, 0.0322665, 0.0161290, 0.0158730], abs=1e-7)


def test_both_parts_are_searched_once_as_deep_as_set() -> None:
    first, second = Ranking("ab", "one"), Ranking("bc", "two")
    retriever: Retriever = joined(first, second, depth=30)
    assert [len(hits) for hits in retriever.search(["x", "y"], 2)] == [2, 2]
    retriever.search(["z"], 50)
    assert first.searches == second.searches == [(["x", "y"], 30), (["z"], 50)]
    parts = {"first": first.describe(), "second": second.describe()}
    assert retriever.describe() == {"name": retriever.name, "k": 60, "depth": 30, **parts}
    real = Hybrid(BIRDS, first=partial(bm25, cache=None), second=partial(bm25, stemming=False, cache=None))
    (hits,) = real.search(["the oak and its acorns"], 3)
    assert [(hit.passage.id, hit.score) for hit in hits] == [("p3", 2 / 61)]
    assert real.describe()["second"]["tokenizer"]["stemming"] is False


def test_a_second_start_searches_for_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "store" / "responses.sqlite"
    first, second, other, plain = Ranking("xyz"), Ranking("xyz"), Ranking("abc"), Ranking("xyz")
    hits = cached(first, path).search(["a", "b", "a"], 2)
    assert hits == plain.search(["a", "b", "a"], 2)
    assert first.searches == [(["a", "b"], 2)]
    again = cached(second, path)
    assert again.search(["b", "c", "a"], 2) == plain.search(["b", "c", "a"], 2)
    assert len(again.search(["a"], 3)[0]) == 3
    for _ in range(2):  # a failure is not stored
        with pytest.raises(RuntimeError, match="nobody there"):
            again.search(["fail"], 1)
    assert second.searches == [(["c"], 2), (["a"], 3), (["fail"], 1), (["fail"], 1)]
    assert (again.name, again.describe()) == ("ranking", first.describe())
    assert cached(other, path).search(["a"], 1)[0][0].passage.text == "a"
    assert len(ResponseStore(path)) == 0  # responses and searches do not mix


def test_a_fast_retriever_is_not_stored_and_a_hybrid_is_as_slow_as_its_parts(tmp_path: Path) -> None:
    fast, slow, path = bm25(BIRDS, cache=None), Ranking("xyz"), tmp_path / "x.sqlite"
    hybrid = joined(fast, fast)
    assert (cached(fast, path), cached(slow, None), cached(hybrid, path)) == (fast, slow, hybrid)
    stored = cached(joined(fast, slow), path)
    assert stored.search(["acorns"], 1) == stored.search(["acorns"], 1)
    assert len(slow.searches) == 1


@pytest.mark.parametrize("choice", ["bm25", "dense", "hybrid", "elasticsearch", "elasticsearch_knn"])
def test_files_of_a_study_are_named_by_its_retriever(choice: str) -> None:
    name = label(load_config([f"retriever={choice}", "dataset=mini", "llm.model=tiny"]))
    assert name == ("mini-tiny" if choice == "bm25" else f"mini-tiny-{choice}")
