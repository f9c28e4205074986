"""Reciprocal rank fusion of any two retrievers."""

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.bm25 import bm25
from rag_notes.retrieval.hybrid import Hybrid, hybrid
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


def fused(first: Sequence[str], second: Sequence[str], top_k: int, **options: int) -> list[tuple[str, float]]:
    (hits,) = Hybrid(Given(first), Given(second), **options).search(["?"], top_k)
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


@pytest.mark.parametrize(("k", "depth"), [(60, 100), (0, 100), (60, 10), (7, 3)])
def test_against_another_implementation(k: int, depth: int) -> None:
    """The sum over both rankings in exact fractions, from a table of ranks."""
    rng = random.Random(k + depth)
    for _ in range(30):
        rankings = [rng.sample("abcdefghijklmnopqrst", rng.randint(0, 20)) for _ in range(2)]
        top_k = rng.randint(1, depth)
        table = [{name: rank for rank, name in enumerate(ranking[:depth], 1)} for ranking in rankings]
        total = {
            name: sum((Fraction(1, k + ranks[name]) for ranks in table if name in ranks), Fraction(0))
            for name in {*table[0], *table[1]}
        }
        expected = sorted(total.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        found = fused(rankings[0], rankings[1], top_k, k=k, depth=depth)
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert [score for _, score in found] == pytest.approx([float(score) for _, score in expected])


def test_what_neither_finds_is_not_found() -> None:
    assert fused("", "", 5) == []
    assert [name for name, _ in fused("", "a", 5)] == ["a"]


def test_both_parts_are_asked_once_as_deep_as_set() -> None:
    first, second = Given("ab", "one"), Given("bc", "two")
    retriever: Retriever = Hybrid(first, second, depth=30)
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


def test_bad_input_is_refused() -> None:
    retriever = Hybrid(Given("a"), Given("b"))
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["x"], 0)
    with pytest.raises(TypeError, match="pass a list"):
        retriever.search("x", 1)


def test_two_real_retrievers_of_one_corpus() -> None:
    corpus = [
        Passage("p1", "Heron", "A heron waits."),
        Passage("p2", "Oak", "Oaks drop acorns."),
        Passage("p3", "", "x"),
    ]
    first, second = partial(bm25, cache=None), partial(bm25, stemming=False, cache=None)
    retriever = hybrid(corpus, first=first, second=second)
    (hits,) = retriever.search(["the oak and its acorns"], 3)
    assert [(hit.passage.id, hit.score) for hit in hits] == [("p2", 2 / 61)]
    assert retriever.describe()["second"]["tokenizer"]["stemming"] is False
