"""Dense retrieval: exact rankings, vectors that a kill does not lose, and approximate search that is measured."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("faiss", reason="dense retrieval needs the extra `dense`")

from rag_notes.retrieval import dense
from rag_notes.retrieval.base import Retriever, measure
from rag_notes.retrieval.dense import DenseRetriever
from rag_notes.retrieval.encoders import Vectors, passage_text
from rag_notes.types import Passage
from tests.corpora import ids
from tests.encoding import WordEncoder, corpus

QUERIES = ["a heron at the river", "coffee with milk", "kiln", "acorn oak canal", "nothing known", ""]


def make(passages: Sequence[Passage], folder: Path, **options: Any) -> DenseRetriever:
    return DenseRetriever(passages, **{"encoder": WordEncoder(), "cache": str(folder), "batch_size": 8, **options})


def ranking(passages: Sequence[Passage], query: str, dtype: str = "float32") -> list[tuple[str, float]]:
    """Every passage with its score, straight from the definition, best first, ties by id."""
    (expected,) = WordEncoder().encode_queries([query]).astype(np.float64)
    scores = []
    for passage in passages:
        (vector,) = WordEncoder().encode_passages([passage_text(passage)]).astype(dtype)
        score = round(sum(float(a) * float(b) for a, b in zip(vector, expected, strict=True)), 6)
        scores.append((passage.id, score))
    return sorted(scores, key=lambda pair: (-pair[1], pair[0]))


def distinct(size: int) -> list[Passage]:
    """Passages of three words, no two of the same."""
    return [Passage(f"d{n}", "", f"w{n} w{n * 7 % size} w{n * 13 % size}") for n in range(size)]


@pytest.mark.parametrize(("dtype", "top_k"), [("float32", 5), ("float32", 500), ("float16", 5)])
def test_rankings_are_by_definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, top_k: int) -> None:
    monkeypatch.setattr(dense, "_BLOCK", 17)  # vectors compared together
    passages, encoder = corpus(60), WordEncoder()
    retriever: Retriever = make(passages, tmp_path, dtype=dtype, encoder=encoder)
    for query, hits in zip(QUERIES, retriever.search(QUERIES, top_k), strict=True):
        expected = ranking(passages, query, dtype)[:top_k]
        assert ids(hits) == [name for name, _ in expected]
        assert [hit.score for hit in hits] == pytest.approx([score for _, score in expected], abs=1.1e-6)
        assert retriever.search([query], top_k) == [hits]
    assert retriever.search([], top_k) == []
    size = {"passages": 60, "sha256": measure(passages).sha256}
    described = {"name": "dense", "dtype": dtype, "index_factory": None, "encoder": encoder.describe(), "corpus": size}
    assert retriever.describe() == described


@dataclass
class BadEncoder(WordEncoder):
    """Changes the vectors of queries, or those of the second batch of passages."""

    passages: Callable[[Vectors], Vectors] = lambda vectors: vectors
    queries: Callable[[Vectors], Vectors] = lambda vectors: vectors

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        vectors = super().encode_passages(texts)
        return self.passages(vectors) if len(self.batches) == 2 else vectors

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        return self.queries(super().encode_queries(queries))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": BadEncoder(queries=lambda vectors: vectors[:, :7])}, r"shape \(1, 7\), not \(1, 24\)"),
        ({"encoder": BadEncoder(queries=lambda vectors: vectors * np.nan)}, "finite numbers"),
        ({"encoder": BadEncoder(passages=lambda vectors: vectors * np.nan)}, "'d[0-9]+' is not finite in float32"),
        (
            {"encoder": BadEncoder(passages=lambda vectors: vectors * 1e6), "dtype": "float16"},
            "in float16; use another",
        ),
        ({"encoder": BadEncoder(passages=lambda vectors: vectors[:, 4:])}, r"arrays of \[\(8, 24\), \(8, 20\)"),
        ({"encoder": BadEncoder(passages=lambda vectors: vectors[1:])}, r"20 texts arrays of"),
        ({"index_factory": "HNWS32"}, "retriever.index_factory='HNWS32' cannot be built"),
        ({"index_factory": "SQ8", "search_parameters": {"efSearch": 9}}, r"search_parameters=\{'efSearch': 9\}"),
        ({"passages": [*corpus(9), corpus(9)[0]]}, f"id '{corpus(9)[0].id}' is already used"),
    ],
)
def test_vectors_corpora_and_settings_that_do_not_fit_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**{"passages": corpus(20), "folder": tmp_path} | options).search(["heron"], 2)


def test_vectors_are_encoded_once_in_batches_of_similar_length(tmp_path: Path) -> None:
    encoder, again = WordEncoder(), WordEncoder()
    first = make(corpus(50), tmp_path, encoder=encoder).search(QUERIES, 5)
    lengths = [len(text) for batch in encoder.batches for text in batch]
    assert lengths == sorted(lengths, reverse=True)
    assert make(corpus(50), tmp_path, encoder=again).search(QUERIES, 5) == first
    assert again.batches == []
    make(corpus(50), tmp_path, encoder=WordEncoder(instruction="find: "))  # that of queries changes no passage
    for options in ({"encoder": WordEncoder(model="other")}, {"dtype": "float16"}, {"batch_size": 9}):
        make(corpus(50), tmp_path, **options)
    make(corpus(49), tmp_path)
    assert len(list(tmp_path.iterdir())) == 5  # a folder for each corpus, encoder and setting


@pytest.mark.parametrize(("batches", "encoded"), [(1, 10), (7, 9), (49, 1)])
def test_a_killed_encoding_goes_on_with_its_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int, encoded: int
) -> None:
    """Ten chunks of 20 passages, each of five batches: what is written of a chunk is not encoded again."""
    command = [sys.executable, "-m", "tests.encoding", str(tmp_path / "killed"), "200", str(batches)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False)
    assert process.returncode == -signal.SIGKILL
    monkeypatch.setattr(dense, "_CHUNK", 20)
    encoder = WordEncoder()
    make(corpus(200), tmp_path / "killed", encoder=encoder, batch_size=4)
    assert len(encoder.batches) == 5 * encoded
    make(corpus(200), tmp_path / "whole", batch_size=4)
    resumed, whole = (next(tmp_path.glob(f"{name}/*/vectors.npy")) for name in ("killed", "whole"))
    assert resumed.read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("factory", ["IVF8,Flat", "HNSW16", "SQ8"])
def test_approximate_search_says_what_it_misses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], factory: str
) -> None:
    passages = distinct(600)
    retriever = make(passages, tmp_path / "a", index_factory=factory)
    recall = retriever.describe()["recall@10"]
    assert f"{factory} {{}}: recall@10 {recall:.4f} against exact search" in capsys.readouterr().err
    queries = [passage.text for passage in passages[:50]]
    exact, near = make(passages, tmp_path / "a").search(queries, 10), retriever.search(queries, 10)
    shared = [len(set(ids(a)) & set(ids(b))) for a, b in zip(exact, near, strict=True)]
    assert 0.1 < sum(shared) / 500 == pytest.approx(recall, abs=0.15)
    scores = dict(ranking(passages, queries[0]))
    assert [hit.score for hit in near[0]] == pytest.approx([scores[hit.passage.id] for hit in near[0]], abs=1.1e-6)
    assert near[0] == sorted(near[0], key=lambda hit: (-hit.score, hit.passage.id))
    assert make(passages, tmp_path / "a", index_factory=factory).search(queries, 10) == near
    assert "recall" not in capsys.readouterr().err
    make(passages, tmp_path / "b", index_factory=factory)
    first, second = (next(tmp_path.glob(f"{name}/*/*.faiss")).read_bytes() for name in "ab")
    assert first == second


def test_search_parameters_trade_time_for_recall(tmp_path: Path) -> None:
    recalls = []
    for probes in (1, 8, 32):
        options: dict[str, Any] = {"index_factory": "IVF32,Flat", "search_parameters": {"nprobe": probes}}
        recalls.append(make(distinct(600), tmp_path, **options).describe()["recall@10"])
    assert recalls[0] < recalls[1] < recalls[2] == 1
