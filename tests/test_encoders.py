"""Encoders: an endpoint that misbehaves, a real model in ONNX, and packages that are missing."""

import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_notes.retrieval.encoders import OnnxEncoder, SentenceTransformersEncoder
from rag_notes.retrieval.endpoint import EndpointEncoder
from rag_notes.retrieval.vectors import encode_corpus, open_vectors
from rag_notes.types import Passage
from tests.embeddings import DIMENSIONS, EmbeddingServer, vector

TEXTS = ["heron", "oak", "河", "", "coffee with milk"]
BGE = Path(os.environ.get("RAG_NOTES_BGE", "~/.cache/rag-notes/models/bge-small-en-v1.5")).expanduser()
INSTRUCTION = "Represent this sentence for searching relevant passages: "


def endpoint(server: EmbeddingServer, **options: Any) -> EndpointEncoder:
    return EndpointEncoder("some-model", **{"base_url": server.base_url, "normalize": False, **options})


# an OpenAI-compatible endpoint


@pytest.mark.parametrize("fault", ["ok", "shuffled"])
def test_vectors_come_in_the_order_of_the_texts_whatever_that_of_the_answer(fault: str) -> None:
    with EmbeddingServer([fault] * 3) as server:
        encoded = endpoint(server, batch_size=2).encode_passages(TEXTS)
    np.testing.assert_array_equal(encoded.vectors, np.array([vector(text) for text in TEXTS], np.float32))
    assert (encoded.vectors.dtype.name, encoded.truncated, encoded.retries) == ("float32", 0, 0)
    assert [request["input"] for request in server.seen] == [TEXTS[:2], TEXTS[2:4], TEXTS[4:]]
    assert {request["model"] for request in server.seen} == {"some-model"}


def test_vectors_have_length_one_unless_told_otherwise() -> None:
    with EmbeddingServer() as server:
        vectors = EndpointEncoder("m", base_url=server.base_url).encode_queries(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(vectors[0] * np.linalg.norm(vector("heron")), vector("heron"), rtol=1e-6)


def test_instructions_precede_and_the_switch_leaves_that_of_queries_out() -> None:
    options = {"query_instruction": "find: ", "passage_instruction": "passage: "}
    with EmbeddingServer() as server:
        encoder = endpoint(server, **options)
        encoder.encode_queries(["oak"])
        encoder.encode_passages(["heron"])
        plain = endpoint(server, **options, instruct_queries=False)
        plain.encode_queries(["oak"])
    assert [request["input"] for request in server.seen] == [["find: oak"], ["passage: heron"], ["oak"]]
    assert encoder.describe()["query_instruction"] == "find: "
    assert plain.describe()["query_instruction"] == ""


def test_what_fails_for_a_while_is_tried_again_and_counted() -> None:
    with EmbeddingServer(["429", "500", "half"]) as server:
        encoded = endpoint(server).encode_passages(TEXTS)
    assert encoded.retries == 3
    np.testing.assert_array_equal(encoded.vectors, np.array([vector(text) for text in TEXTS], np.float32))


def test_retries_are_shown_while_a_corpus_is_encoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddingServer(["500", "429"]) as server:
        encode_corpus([Passage("p", "", "oak")], endpoint(server), tmp_path)
    assert "2 retries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("garbage", "answered something that is not the vectors asked for (JSONDecodeError"),
        ("halfjson", "answered something that is not the vectors asked for (JSONDecodeError"),
        ("stranger", "answered something that is not the vectors asked for (KeyError: 'data')"),
        ("few", "4 vectors with the indices [0, 1, 2, 3]... for 5 texts"),
        ("twice", "5 vectors with the indices [0, 1, 2, 3]... for 5 texts"),
        ("ragged", "answered something that is not the vectors asked for"),
        ("null", "not one list of finite numbers for each text"),
    ],
)
def test_an_answer_that_is_not_the_vectors_is_refused(fault: str, message: str) -> None:
    with EmbeddingServer([fault]) as server, pytest.raises(OSError) as error:
        endpoint(server).encode_passages(TEXTS)
    assert message in str(error.value)
    assert server.base_url in str(error.value)
    assert len(server.seen) == 1


def test_vectors_of_another_dimension_are_refused(tmp_path: Path) -> None:
    with EmbeddingServer(["narrow"]) as server:
        with pytest.raises(OSError, match="2 dimensions where 3 were asked for"):
            endpoint(server, dimensions=3).encode_queries(["a"])
        assert endpoint(server, dimensions=3).encode_queries(["a"]).shape == (1, 3)
    other = r"vectors of \[2, 6\] dimensions to one list of texts"
    with EmbeddingServer(["ok", "narrow"]) as server, pytest.raises(OSError, match=other):
        endpoint(server, batch_size=3).encode_passages(TEXTS)
    passages = [Passage(f"p{number}", "", "x" * number) for number in range(4)]
    other = rf"shape \(2, 2\), expected \(2, {DIMENSIONS}\)"
    with EmbeddingServer(["ok", "narrow"]) as server, pytest.raises(ValueError, match=other):
        encode_corpus(passages, endpoint(server), tmp_path, batch_size=2, progress=False)
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path)


@pytest.mark.parametrize("status", ["401", "500"])
def test_a_refusal_is_said_without_the_key(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "very-secret-1234")
    with (
        EmbeddingServer([status] * 3) as server,
        pytest.raises(OSError, match="failed to embed with 'some-model'") as error,
    ):
        endpoint(server, api_key_variable="MY_KEY", max_retries=2).encode_passages(TEXTS)
    assert "very-secret" not in str(error.value)
    assert "[key]" in str(error.value)
    assert len(server.seen) == (1 if status == "401" else 3)


def test_nobody_there_is_said() -> None:
    with EmbeddingServer() as server:
        base_url = server.base_url
    with pytest.raises(OSError, match=r"failed to embed with 'm' \(APIConnectionError"):
        EndpointEncoder("m", base_url=base_url, max_retries=0).encode_queries(["oak"])


def test_openais_own_endpoint_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ValueError, match="set the environment variable MY_KEY"):
        EndpointEncoder("text-embedding-3-small", api_key_variable="MY_KEY")


# packages and models that are not there


@pytest.mark.parametrize(
    ("missing", "encoder", "line"),
    [
        ("onnxruntime", OnnxEncoder, 'pip install "rag-notes[dense]"'),
        ("tokenizers", OnnxEncoder, 'pip install "rag-notes[dense]"'),
        ("sentence_transformers", SentenceTransformersEncoder, 'pip install "rag-notes[sentence-transformers]"'),
    ],
)
def test_a_missing_package_is_an_error_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, missing: str, encoder: Any, line: str
) -> None:
    for name in ("onnxruntime", "tokenizers", "sentence_transformers"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else types.ModuleType(name))
    with pytest.raises(ImportError) as error:
        encoder("some/model")
    assert missing in str(error.value)
    assert line in str(error.value)


class Hub(types.ModuleType):
    """Stands for the Hub's client: gives a folder, or fails as without a network."""

    def __init__(self, folder: Path | None) -> None:
        super().__init__("huggingface_hub")
        self.folder = folder
        self.asked: list[tuple[str, str | None]] = []

    def snapshot_download(self, name: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append((name, revision))
        assert "tokenizer.json" in allow_patterns
        if self.folder is None:
            raise ConnectionError("no route to host")
        return str(self.folder)


@pytest.fixture
def onnx_packages() -> None:
    pytest.importorskip("onnxruntime", reason="the ONNX encoder needs the extra `dense`")
    pytest.importorskip("tokenizers", reason="the ONNX encoder needs the extra `dense`")


@pytest.mark.usefixtures("onnx_packages")
def test_a_model_that_is_not_there_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such folder, and no name on the Hub \(owner/name\)"):
        OnnxEncoder(str(tmp_path / "nothing"))
    with pytest.raises(FileNotFoundError, match=r"needs model\.onnx \(or onnx/model\.onnx\) and tokenizer\.json"):
        OnnxEncoder(str(tmp_path))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"pip install huggingface_hub\. Without a network: put model\.onnx"):
        OnnxEncoder("BAAI/bge-small-en-v1.5")
    monkeypatch.setitem(sys.modules, "huggingface_hub", Hub(None))
    with pytest.raises(OSError, match=r"gives no \S+ \(no route to host\)\. Offline: put model\.onnx"):
        OnnxEncoder("BAAI/bge-small-en-v1.5", revision="abc")
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_text("not a model")
    with pytest.raises(ValueError, match="cannot read the model"):
        OnnxEncoder(str(tmp_path))


# a real model


@pytest.fixture(scope="module")
def bge() -> OnnxEncoder:
    pytest.importorskip("onnxruntime", reason="the ONNX encoder needs the extra `dense`")
    if not BGE.is_dir():
        pytest.skip(f"{BGE} is not there; RAG_NOTES_BGE names a folder with bge-small-en-v1.5 in ONNX")
    return OnnxEncoder(str(BGE), query_instruction=INSTRUCTION, max_length=64, threads=1)


def test_a_real_model_finds_what_is_meant(bge: OnnxEncoder) -> None:
    texts = [
        "A bird that stands in shallow water and waits for fish.",
        "The bakery sells bread and cakes from seven in the morning.",
        "Parliament passed the law by a narrow majority.",
    ]
    queries = ["Which animal hunts in ponds?", "Where can I buy a loaf?", "How was the vote?"]
    similar = bge.encode_queries(queries) @ bge.encode_passages(texts).vectors.T
    assert similar.argmax(axis=1).tolist() == [0, 1, 2]
    assert similar.shape == (3, 3)


def test_padding_changes_a_vector_by_rounding_only(bge: OnnxEncoder) -> None:
    texts = ["Oak.", "A much longer text, so that the first one is padded: " + "acorns and leaves " * 5, ""]
    together = bge.encode_passages(texts).vectors
    alone = np.concatenate([bge.encode_passages([text]).vectors for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert together.shape == (3, 384)


def test_a_text_longer_than_the_model_reads_is_cut_and_counted(bge: OnnxEncoder) -> None:
    words = ["oak"] * 300
    assert bge.encode_passages([" ".join(words), "oak", " ".join(words[:62])]).truncated == 1
    np.testing.assert_array_equal(
        bge.encode_passages([" ".join(words)]).vectors, bge.encode_passages([" ".join(words[:62])]).vectors
    )
    with pytest.warns(RuntimeWarning, match="longer than the 64 tokens that the model reads"):
        bge.encode_queries([" ".join(words)])


def test_the_instruction_is_a_switch_and_says_so(bge: OnnxEncoder) -> None:
    plain = OnnxEncoder(str(BGE), query_instruction=INSTRUCTION, instruct_queries=False, max_length=64, threads=1)
    assert (bge.describe()["query_instruction"], plain.describe()["query_instruction"]) == (INSTRUCTION, "")
    with_it, without = bge.encode_queries(["oak"]), plain.encode_queries(["oak"])
    np.testing.assert_array_equal(with_it, bge.encode_passages([f"{INSTRUCTION}oak"]).vectors)
    np.testing.assert_array_equal(without, bge.encode_passages(["oak"]).vectors)
    assert abs(with_it - without).max() > 0.01


def test_the_files_are_known_by_their_checksums_wherever_they_lie(
    bge: OnnxEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = Hub(BGE)
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    from_hub = OnnxEncoder(f"BAAI/{BGE.name}", revision="abc", query_instruction=INSTRUCTION, max_length=64)
    assert hub.asked == [(f"BAAI/{BGE.name}", "abc")]
    assert from_hub.describe() == bge.describe()
    assert {len(digest) for digest in bge.describe()["sha256"].values()} == {64}


def test_pooling_must_fit_the_output(bge: OnnxEncoder) -> None:
    mean = OnnxEncoder(str(BGE), pooling="mean", max_length=64, threads=1)
    assert (
        abs(mean.encode_passages(["oak and acorn"]).vectors - bge.encode_passages(["oak and acorn"]).vectors).max()
        > 0.01
    )
    with pytest.raises(ValueError, match=r"the first output has 3 axes, which does not fit pooling=none"):
        OnnxEncoder(str(BGE), pooling="none")
