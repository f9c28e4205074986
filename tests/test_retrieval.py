"""BM25 rankings and scores, beside an independent implementation of the formula."""

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rag_notes.datasets.corpus import CorpusFile, passage_line
from rag_notes.retrieval import bm25 as module
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.bm25 import bm25
from rag_notes.types import Passage
from tests.corpora import (
    BIRDS,
    CHINESE,
    build,
    ids,
    kept_by_lucene,
    plain_bm25,
    plain_words,
    random_corpus,
)


@pytest.mark.parametrize("longest", [4, 60, 4000])
def test_scores_are_those_of_an_independent_bm25_of_lucene(longest: int) -> None:
    rng = random.Random(longest)
    corpus = [
        Passage(f"d{n}", "", " ".join(rng.choices("vwxyz", (1, 2, 4, 8, 80), k=rng.randint(0, longest))))
        for n in range(80)
    ]
    documents = [plain_words(passage.text) for passage in corpus]
    retriever = build(corpus, stemming=False, stop_words=False)
    for query in ("v", "w x", "z z y", "x unknown v", "v v v w"):
        scores = plain_bm25(documents, query.split())
        ranked = sorted((-round(score, 12), passage.id) for passage, score in zip(corpus, scores, strict=True) if score)
        found = retriever.search([query], 100)[0]
        assert ids(found) == [name for _, name in ranked]
        assert [hit.score for hit in found] == pytest.approx([-score for score, _ in ranked], rel=1e-9)
        assert retriever.search([query], 5)[0] == found[:5]


def test_lengths_are_kept_as_in_lucene() -> None:
    assert [module.lucene_length(length) for length in range(200_000)] == [kept_by_lucene(n) for n in range(200_000)]


@pytest.mark.parametrize("top_k", [1, 2, 3, 7, 20, 200])
def test_hits_are_exactly_the_best_with_ties_by_id(top_k: int) -> None:
    corpus = random_corpus(60, seed=2)
    retriever = build(corpus, stop_words=False)
    tied_at_the_border = False
    for query in ("v", "w", "x y"):
        everything = retriever.search([query], len(corpus))[0]
        assert everything == sorted(everything, key=lambda hit: (-hit.score, hit.passage.id))
        assert retriever.search([query], top_k)[0] == everything[:top_k]
        borders = {hit.score for hit in everything[top_k - 1 : top_k + 1]}
        tied_at_the_border |= len(everything) > top_k and len(borders) == 1
    assert tied_at_the_border or top_k > 7


def test_neither_threads_nor_segments_change_ranking_or_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(3)
    words = [f"w{number}" for number in range(30)]
    corpus = [Passage(f"d{n}", "", " ".join(rng.choices(words, k=rng.randint(0, 80)))) for n in range(1000)]
    queries = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(100)]
    found, segments = [], set()
    for threads, commit in ((1, 10**6), (1, 130), (4, 10**6), (3, 70)):
        monkeypatch.setattr(module, "_THREADS", threads)
        monkeypatch.setattr(module, "_COMMIT", commit)
        retriever = bm25(corpus, cache=str(tmp_path / f"{threads}-{commit}"))
        segments.add(retriever._searcher.num_segments)
        found.append(retriever.search(queries, 5))
    assert len(segments) > 1
    assert all(other == found[0] for other in found)


def test_queries_with_nothing_known_get_no_hits() -> None:
    assert build(BIRDS).search(["", "  ", "the of", "zebra", "fish"], 1)[:4] == [[], [], [], []]
    assert build(BIRDS).search([], 5) == []


def test_the_signs_of_a_query_language_mean_nothing() -> None:
    queries = ['"acorns', "(acorns]", "title: acorns", "acorns^2 AND", "+acorns -drop*", "acorns~1 \\", "[a TO acorns}"]
    assert [ids(hits)[:1] for hits in build(BIRDS).search(queries, 3)] == [["p3"]] * len(queries)


def test_bad_arguments_of_search_are_refused() -> None:
    retriever: Retriever = build(BIRDS)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["fish"], 0)
    with pytest.raises(TypeError, match="list of queries"):
        retriever.search("fish", 1)


def test_a_batch_gives_what_single_queries_give_also_from_threads(tmp_path: Path) -> None:
    corpus = [passage for passage in random_corpus(60, seed=3) if passage.text]
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(map(passage_line, corpus)), encoding="utf-8")
    retriever = bm25(CorpusFile(str(path), "corpus"), stop_words=False, cache=str(tmp_path / "cache"))
    queries = ["v w", "x", "y z z", "w", "nothing"] * 20
    batch = retriever.search(queries, 5)
    assert batch == [retriever.search([query], 5)[0] for query in queries]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: retriever.search([query], 5)[0], queries)) == batch


def test_chinese_retrieval() -> None:
    retriever = build(CHINESE)
    assert retriever.tokenizer.language == "zh"
    found = retriever.search(["青瓷的釉色是什么？", "大运河有多少公里", "transformer", "水稻"], 1)
    assert [ids(hits) for hits in found] == [["z1"], ["z2"], ["z3"], []]


@pytest.mark.parametrize("cached", [True, False])
def test_corpora_that_cannot_be_indexed_are_refused(tmp_path: Path, cached: bool) -> None:
    cache = str(tmp_path) if cached else None
    with pytest.raises(ValueError, match=r"set dataset\.<name>\.corpus"):
        bm25([], cache=cache)
    with pytest.raises(ValueError, match="no passage of the corpus has a word"):
        bm25([Passage("a", "", "the...")], cache=cache)
    with pytest.raises(ValueError, match="id 'p1' is already used"):
        bm25([BIRDS[0], BIRDS[1], BIRDS[0]], cache=cache)
