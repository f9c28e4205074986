"""Dense retrieval keeps the contract of a retriever, exactly, and approximate search says what it misses."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("faiss", reason="dense retrieval needs the extra `dense`")

from rag_notes.retrieval import search as vector_search
from rag_notes.retrieval.base import Retriever, corpus_checksum
from rag_notes.retrieval.dense import DenseRetriever, dense
from rag_notes.retrieval.encoders import Vectors
from rag_notes.retrieval.search import exact, hnsw, ivf
from rag_notes.retrieval.vectors import VectorFile, encode_corpus, passage_text
from rag_notes.types import Hit, Passage
from tests.encoding import WordEncoder, corpus

QUERIES = ["a heron at the river", "coffee with milk", "kiln", "acorn oak canal", "nothing known", ""]


def made(passages: Sequence[Passage], folder: Path, **options: Any) -> DenseRetriever:
    return dense(passages, **{"encoder": WordEncoder(), "cache": str(folder), "batch_size": 8, **options})


def ids(hits: Sequence[Hit]) -> list[str]:
    return [hit.passage.id for hit in hits]


def ranked(passages: Sequence[Passage], query: str, dtype: str = "float32") -> list[tuple[str, float]]:
    """Every passage with its score, straight from the definition, best first, ties by id."""
    encoder = WordEncoder()
    (wanted,) = encoder.encode_queries([query]).astype(np.float64)
    scored = []
    for passage in passages:
        (vector,) = encoder.encode_passages([passage_text(passage)]).vectors.astype(dtype)
        score = round(sum(float(a) * float(b) for a, b in zip(vector, wanted, strict=True)), 6)
        scored.append((passage.id, score))
    return sorted(scored, key=lambda pair: (-pair[1], pair[0]))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("top_k", [1, 5, 60, 500])
def test_rankings_are_those_of_the_definition(tmp_path: Path, dtype: str, top_k: int) -> None:
    passages = corpus(80)
    retriever: Retriever = made(passages, tmp_path, dtype=dtype)
    for query, hits in zip(QUERIES, retriever.search(QUERIES, top_k), strict=True):
        expected = ranked(passages, query, dtype)[:top_k]
        assert ids(hits) == [name for name, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1.1e-6)
        assert all(hit.passage in passages for hit in hits)


def test_ties_are_in_the_order_of_the_ids_however_many(tmp_path: Path) -> None:
    names = [f"p{number:03}" for number in np.random.default_rng(0).permutation(300)]
    passages = [Passage(name, "", "oak and acorn") for name in names] + corpus(20)
    (hits,) = made(passages, tmp_path).search(["oak and acorn"], 7)
    assert ids(hits) == [f"p{number:03}" for number in range(7)]
    assert {hit.score for hit in hits} == {1.0}


def test_a_query_has_the_same_hits_whatever_it_is_searched_with(tmp_path: Path) -> None:
    retriever = made(corpus(300), tmp_path)
    together = retriever.search(QUERIES * 10, 9)
    for query, hits in zip(QUERIES, together, strict=False):
        assert retriever.search([query], 9) == [hits]
    assert together[: len(QUERIES)] == together[-len(QUERIES) :]


def test_blocks_do_not_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = corpus(100)
    whole = made(passages, tmp_path).search(QUERIES, 10)
    monkeypatch.setattr(vector_search, "BLOCK", 7)
    assert made(passages, tmp_path, dtype="float32").search(QUERIES, 10) == whole


def test_there_are_as_many_hits_as_asked_for_or_passages(tmp_path: Path) -> None:
    retriever = made(corpus(12), tmp_path)
    assert [len(hits) for hits in retriever.search(["qwertyuiop", ""], 5)] == [5, 5]
    assert [len(hits) for hits in retriever.search(QUERIES, 99)] == [12] * len(QUERIES)
    assert retriever.search([], 5) == []


def test_describe_says_everything_that_decides_the_ranking(tmp_path: Path) -> None:
    passages = corpus(30)
    described = made(passages, tmp_path, encoder=WordEncoder(instruction="find: ")).describe()
    assert described["name"] == "dense"
    assert described["encoder"]["query_instruction"] == "find: "
    assert described["index"] == {"kind": "exact"}
    assert described["corpus"] == {"passages": 30, "sha256": corpus_checksum(passages)}
    assert (described["vectors"]["dtype"], described["vectors"]["truncated"]) == ("float32", 0)
    assert len(described["vectors"]["sha256"]) == 64


def test_the_cache_has_a_folder_for_each_corpus_encoder_and_dtype(tmp_path: Path) -> None:
    made(corpus(30), tmp_path)
    encoder = WordEncoder(instruction="find: ")
    made(corpus(30), tmp_path, encoder=encoder)
    assert (encoder.batches, len(list(tmp_path.iterdir()))) == ([], 1)
    made(corpus(31), tmp_path)
    made(corpus(30), tmp_path, dtype="float16")
    made(corpus(30), tmp_path, encoder=WordEncoder(model="other"))
    assert len(list(tmp_path.iterdir())) == 4


def test_a_folder_of_vectors_that_is_named_must_fit(tmp_path: Path) -> None:
    made(corpus(30), tmp_path, vectors=str(tmp_path / "mine"))
    encoder = WordEncoder()
    made(corpus(30), tmp_path, vectors=str(tmp_path / "mine"), encoder=encoder)
    assert encoder.batches == []
    with pytest.raises(ValueError, match=r"corpus\.passages: 30, but 31 is asked for"):
        made(corpus(31), tmp_path, vectors=str(tmp_path / "mine"))


def test_bad_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the corpus is empty"):
        made([], tmp_path)
    passages = corpus(10)
    with pytest.raises(ValueError, match=f"two passages of the corpus have the id '{passages[0].id}'"):
        made([*passages, passages[0]], tmp_path)
    retriever = made(passages, tmp_path)
    with pytest.raises(ValueError, match="top_k is 0"):
        retriever.search(["oak"], 0)
    with pytest.raises(TypeError, match="pass a list"):
        retriever.search("oak", 5)


class Unfit(WordEncoder):
    """Encodes queries otherwise than passages."""

    def __init__(self, vectors: Callable[[int], Vectors]) -> None:
        super().__init__()
        self.vectors = vectors

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return self.vectors(len(queries))


def test_query_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    retriever = made(corpus(10), tmp_path, encoder=Unfit(lambda count: np.ones((count, 7), np.float32)))
    with pytest.raises(ValueError, match=r"gives queries 7 dimensions, the vectors in .* have 24"):
        retriever.search(["oak"], 5)
    retriever = made(corpus(10), tmp_path, encoder=Unfit(lambda count: np.full((count, 24), np.nan, np.float32)))
    with pytest.raises(ValueError, match="not finite"):
        retriever.search(["oak"], 5)


# approximate search


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> VectorFile:
    """Vectors of 1,500 texts, many of them alike."""
    return encode_corpus(corpus(1500), WordEncoder(), tmp_path_factory.mktemp("vectors"), progress=False)


def recall_at_10(file: VectorFile, found: Callable[[Vectors, int], np.ndarray[Any, Any]]) -> float:
    """By inner products in numpy: the share of the ten nearest of 200 passages that are among those found."""
    rows = np.linspace(0, len(file.vectors) - 1, 200).astype(int)
    shares = []
    for row in rows:
        products = file.vectors.astype(np.float32) @ file.vectors[row].astype(np.float32)
        hits = found(file.vectors[row : row + 1].astype(np.float32), 11)[0]
        tenth = np.sort(np.delete(products, row))[-10]
        others = [hit for hit in hits if hit not in (row, -1)]
        # A passage as near as the tenth counts: which of equal ones is called the tenth says nothing of the index.
        shares.append(min(10, sum(products[hit] >= tenth - 1e-6 for hit in others)) / 10)
    return float(np.mean(shares))


def test_all_lists_searched_is_exact_and_few_are_not(file: VectorFile) -> None:
    whole = ivf(file, lists=20, probes=20)
    some = ivf(file, lists=20, probes=1)
    assert recall_at_10(file, lambda q, k: whole.search(q, k).rows) == 1.0
    assert recall_at_10(file, lambda q, k: some.search(q, k).rows) < 1.0
    assert some.describe()["recall@10"] < whole.describe()["recall@10"] <= 1.0
    assert whole.describe()["sha256"] == some.describe()["sha256"]  # one index, searched in two ways


def distinct(tmp_path: Path) -> VectorFile:
    """Vectors of texts that all differ, so that the ten nearest are no matter of opinion."""
    passages = [Passage(f"d{number}", "", f"w{number} w{number // 7} w{number // 50}") for number in range(600)]
    return encode_corpus(passages, WordEncoder(), tmp_path / "distinct", progress=False)


def test_recall_is_that_of_an_independent_count(tmp_path: Path) -> None:
    file = distinct(tmp_path)
    for index in (ivf(file, lists=30, probes=2), hnsw(file, links=4, ef_construction=8, ef_search=8), ivf(file)):
        counted = recall_at_10(file, lambda q, k, index=index: index.search(q, k).rows)  # type: ignore[misc]
        assert index.describe()["recall@10"] == pytest.approx(counted, abs=0.005)
    assert (
        hnsw(file).describe()["recall@10"] > hnsw(file, links=4, ef_construction=8, ef_search=8).describe()["recall@10"]
    )


def test_recall_is_printed_once_for_each_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = distinct(tmp_path)
    first = hnsw(file, links=8).describe()
    shown = f"kind=hnsw, links=8, ef_construction=200, ef_search=128: recall@10 {first['recall@10']:.4f} against exact"
    assert shown in capsys.readouterr().err
    assert hnsw(file, links=8).describe() == first
    assert capsys.readouterr().err == ""
    assert hnsw(file, links=8, ef_search=16).describe()["sha256"] == first["sha256"]
    assert "ef_search=16: recall@10" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [ivf, hnsw])
def test_the_same_vectors_give_the_same_index(tmp_path: Path, kind: Callable[[VectorFile], Any]) -> None:
    first = kind(distinct(tmp_path / "a")).describe()
    assert kind(distinct(tmp_path / "b")).describe() == first


@pytest.mark.parametrize("kind", [ivf, hnsw])
def test_a_damaged_index_is_named(tmp_path: Path, kind: Callable[[VectorFile], Any]) -> None:
    file = distinct(tmp_path)
    kind(file)
    (path,) = file.folder.glob("*.faiss")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValueError, match=rf"{path.name} is damaged .*; delete it and .*\.json to build it again"):
        kind(file)


def test_more_lists_than_passages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"retriever.index.lists=601, but the corpus has 600 passages"):
        ivf(distinct(tmp_path), lists=601)


@pytest.mark.parametrize("index", [exact, ivf, hnsw])
def test_approximate_search_keeps_the_contract(tmp_path: Path, index: Any) -> None:
    passages = corpus(60)
    retriever = made(passages, tmp_path, index=index)
    for query, hits in zip(QUERIES, retriever.search(QUERIES, 5), strict=True):
        assert len(hits) == len(set(ids(hits))) == 5
        assert [(-hit.score, hit.passage.id) for hit in hits] == sorted((-hit.score, hit.passage.id) for hit in hits)
        scores = dict(ranked(passages, query))
        assert all(hit.score == pytest.approx(scores[hit.passage.id], abs=1.1e-6) for hit in hits)
    assert retriever.describe()["index"]["kind"] == index.__name__
