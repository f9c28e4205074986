"""Retrievers that are made of parts: encoders, indexes and retrievers, each a choice with settings of its own."""

import inspect
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import build_datasets, build_retriever, load_config
from rag_notes.options import choices
from rag_notes.parts import ConfigError
from rag_notes.types import InputError
from tests.composed import composed, target


def nested(settings: dict[str, Any], prefix: str = "") -> list[str]:
    """The paths of the parts that a retriever is made of."""
    parts = {f"{prefix}{name}": value for name, value in settings.items() if "_target_" in str(value)}
    return [path for part, inner in parts.items() for path in (part, *nested(inner, f"{part}."))]


PARTS = [(choice, path) for choice in choices("retriever") for path in nested(composed("retriever", choice))]


@pytest.mark.parametrize(("choice", "path"), PARTS, ids=str)
def test_every_part_of_a_retriever_has_the_settings_of_its_signature(choice: str, path: str) -> None:
    settings = composed("retriever", choice)
    for name in path.split("."):
        settings = settings[name]
    passed = int(settings.get("_partial_", False))  # with the corpus or the vectors, by its owner
    parameters = list(inspect.signature(target(settings)).parameters)[passed:]
    assert sorted(settings.keys() - {"_target_", "_partial_"}) == sorted(parameters)


@pytest.mark.parametrize("encoder", ["onnx", "onnx_zh", "bge_base_zh", "gtr_t5_xxl", "embeddings_api"])
def test_the_encoder_of_a_dense_retriever_is_a_choice(encoder: str) -> None:
    direct = load_config(["retriever=dense", f"retriever/encoder={encoder}"]).retriever["encoder"]
    inside = load_config(["retriever=hybrid", f"retriever/encoder@retriever.second.encoder={encoder}"]).retriever
    assert direct == inside["second"]["encoder"]
    if encoder in choices("retriever"):
        assert direct == load_config([f"retriever={encoder}"]).retriever["encoder"]


def test_both_retrievers_of_an_elasticsearch_are_parts_of_a_hybrid() -> None:
    options = ["retriever@retriever.first=elasticsearch", "retriever@retriever.second=elasticsearch_knn"]
    encoder = "retriever/encoder@retriever.second.encoder=gtr_t5_xxl"
    parts = load_config(["retriever=hybrid", *options, encoder, "retriever.second.index_type=flat"]).retriever
    assert parts["first"]["analyzer"] == "auto"
    assert parts["second"]["encoder"]["model"] == "sentence-transformers/gtr-t5-xxl"
    with pytest.raises(ConfigError, match=r"retriever.m: .*greater than or equal to 2"):
        load_config(["retriever=elasticsearch_knn", "retriever.m=1"])


def test_a_part_of_a_hybrid_can_be_another_retriever() -> None:
    options = ["retriever=hybrid", "retriever@retriever.first=bge_base_en", "retriever@retriever.second=embeddings_api"]
    retriever = load_config([*options, "retriever.second.encoder.base_url=http://127.0.0.1:8000/v1"]).retriever
    assert retriever["first"]["encoder"]["model"] == "BAAI/bge-base-en-v1.5"
    assert retriever["second"]["encoder"]["base_url"] == "http://127.0.0.1:8000/v1"


def test_parts_are_built_with_their_settings_and_paths_mean_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["dataset=mini", "retriever=hybrid", "retriever@retriever.second=bm25", "retriever.depth=7"]
    config = load_config(
        [*options, "retriever.first.cache=null", "retriever.second.cache=null", "retriever.second.stemming=false"]
    )
    (dataset,) = build_datasets(config)
    retriever = build_retriever(config, dataset.corpus)
    described = retriever.describe()
    stemming = [described[part]["tokenizer"]["stemming"] for part in ("first", "second")]
    assert (described["depth"], stemming) == (7, [True, False])
    assert len(retriever.search(["Carmen"], 2)[0]) == 2
    (tmp_path / "mine" / "model").mkdir(parents=True)  # of no model
    options = ["retriever=dense", "retriever.encoder.model=mine/model"]
    pytest.importorskip("onnxruntime", reason="the ONNX encoder needs the extra `dense`")
    with pytest.raises(InputError, match=f"{tmp_path}/mine/model: an ONNX encoder needs"):
        build_retriever(load_config(options), dataset.corpus)
