"""Reciprocal rank fusion of any two retrievers."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.hybrid import Hybrid
from rag_notes.types import Hit, Passage


class Given:
    """A retriever that gives the same ranking for every query."""

    def __init__(self, ranking: Sequence[str], name: str = "given") -> None:
        self.name, self.ranking = name, ranking
        self.asked: list[tuple[list[str], int]] = []

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        self.asked.append((list(queries), top_k))
        hits = [Hit(Passage(name, "", name), 9.0 - place) for place, name in enumerate(self.ranking)]
        return [hits[:top_k] for _ in queries]

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "ranking": list(self.ranking)}


def joined(first: Retriever, second: Retriever, **options: int) -> Hybrid:
    return Hybrid([], first=lambda _: first, second=lambda _: second, **options)


def fused(first: Sequence[str], second: Sequence[str], top_k: int, **options: int) -> list[tuple[str, float]]:
    (hits,) = joined(Given(first), Given(second), **options).search(["?"], top_k)
    return [(hit.passage.id, hit.score) for hit in hits]


def test_by_hand() -> None:
    """k = 60: b 1/62 + 1/61, a 1/61 + 1/63, d 1/62, c 1/63."""
    found = fused("abc", "bda", 10)
    assert [name for name, _ in found] == ["b", "a", "d", "c"]
    assert [score for _, score in found] == pytest.approx([0.0325225, 0.0322665, 0.0161290, 0.0158730], abs=1e-7)


def test_ties_are_in_the_order_of_the_ids() -> None:
    assert [name for name, _ in fused("ba", "ab", 5)] == ["a", "b"]
    assert [name for name, _ in fused("zx", "yw", 4)] == ["y", "z", "w", "x"]
    assert [name for name, _ in fused("zx", "yw", 1)] == ["y"]


def test_both_parts_are_asked_once_as_deep_as_set() -> None:
    first, second = Given("ab", "one"), Given("bc", "two")
    retriever: Retriever = joined(first, second, depth=30)
    assert [len(hits) for hits in retriever.search(["x", "y"], 2)] == [2, 2]
    retriever.search(["z"], 50)
    assert first.asked == second.asked == [(["x", "y"], 30), (["z"], 50)]
    assert retriever.name == "one+two"
    assert retriever.describe() == {
        "name": "one+two",
        "k": 60,
        "depth": 30,
        "first": first.describe(),
        "second": second.describe(),
    }


def test_two_real_retrievers_of_one_corpus() -> None:
    corpus = [
        Passage("p1", "Heron", "A heron waits."),
        Passage("p2", "Oak", "Oaks drop acorns."),
        Passage("p3", "", "x"),
    ]
    first, second = partial(bm25, cache=None), partial(bm25, stemming=False, cache=None)
    retriever = Hybrid(corpus, first=first, second=second)
    (hits,) = retriever.search(["the oak and its acorns"], 3)
    assert [(hit.passage.id, hit.score) for hit in hits] == [("p2", 2 / 61)]
    assert retriever.describe()["second"]["tokenizer"]["stemming"] is False
