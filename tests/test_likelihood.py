"""The probability of an answer under a model, and what is chosen by it."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.client import RecordingMissError
from rag_notes.llm.store import ResponseStore
from rag_notes.prompts.templates import Templates
from rag_notes.training.content_filter import content_filter
from rag_notes.training.data import Data, make_examples
from rag_notes.training.likelihood import log_probability, weights_checksum
from rag_notes.types import InputError, Question
from tests.scripted import ScriptedLLM, ScriptedRetriever
from tests.tiny_model import need_training, write_tiny_model

need_training()

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("tiny"))


def test_log_probabilities_are_those_of_the_answer_s_tokens_and_are_kept(tiny: Path, tmp_path: Path) -> None:
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    store, prompt = ResponseStore(tmp_path / "s.sqlite"), [{"role": "user", "content": "Who?"}]
    value = log_probability(str(tiny), prompt, "Bell", store)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny)
    network = transformers.AutoModelForCausalLM.from_pretrained(tiny)
    ids = tokenizer("<|user|>Who?<|end|><|assistant|>Bell", return_tensors="pt")["input_ids"]
    labels = ids.clone()
    labels[:, :-4] = -100  # the four bytes of the answer count
    with torch.no_grad():
        assert value == pytest.approx(-4 * network(ids, labels=labels).loss.item(), abs=1e-4)
    assert len(store) == 1
    assert log_probability(str(tiny), prompt, "Bell", store) == value
    assert log_probability(str(tiny), prompt, "Bell", store, stored_only=True) == value
    with pytest.raises(RecordingMissError, match="is not stored"):
        log_probability(str(tiny), prompt, "Watt", store, stored_only=True)
    store.close()
    recording = ResponseStore(tmp_path / "s.sqlite", read_only=True)
    assert log_probability(str(tiny), prompt, "Watt", recording) < 0
    assert len(recording) == 1  # nothing is written to what is read only


def test_a_name_on_the_hub_has_the_checksum_of_its_weights(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub  # noqa: PLC0415

    def cached(name: str, *, allow_patterns: list[str]) -> Path:
        assert (name, allow_patterns) == ("somebody/tiny", ["*.safetensors"])
        return tiny

    monkeypatch.setattr(huggingface_hub, "snapshot_download", cached)
    assert weights_checksum("somebody/tiny") == weights_checksum(str(tiny))
    with pytest.raises(InputError, match="has no weights as safetensors, and nothing else is read"):
        weights_checksum(str(tiny.parent))


def test_sentences_are_chosen_by_how_much_they_raise_the_probability_of_the_answer(tiny: Path) -> None:
    question = Question("q", "Who?", ("Bell",), gold_ids=("a",))
    retriever = ScriptedRetriever(lambda _: ["a"])

    def chosen(threshold: float) -> tuple[list[str], list[float]]:
        settings: dict[str, Any] = {"labels": "gold", "sentences": "cxmi", "scorer": str(tiny), "threshold": threshold}
        data, llm = Data(partial(content_filter, **settings), out="unused"), ScriptedLLM(lambda _: "")
        batch = asyncio.run(make_examples(data, [question], retriever, llm, Templates()))
        examples = [example for _, example in batch.examples if "sentence" in example["stage"]]
        return [example["completion"][0]["content"] for example in examples], batch.values

    (_, (gain,)) = chosen(0.0)
    assert chosen(gain) == (["Text of a."], [gain])
    assert chosen(gain + 0.001) == ([], [gain])
