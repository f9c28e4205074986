"""A model of random weights, small enough to be trained and asked in a test, and whether there is what that takes."""

import importlib.util
import os
from pathlib import Path

import pytest

CHAT = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def need_training() -> None:
    """Skip the tests of a module where the packages of training are missing, unless they are required."""
    missing = [name for name in ("torch", "transformers", "trl", "peft") if importlib.util.find_spec(name) is None]
    if missing and os.environ.get("RAG_NOTES_REQUIRE_TRAINING") != "1":
        pytest.skip(f'no {", ".join(missing)}: pip install "rag-notes[train]"', allow_module_level=True)


def write_tiny_model(folder: Path) -> Path:
    """Write a Qwen2 of random weights and a tokenizer of bytes into a folder; returns it."""
    import tokenizers  # noqa: PLC0415
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415

    torch.set_num_threads(1)  # nothing here is large enough to be shared out
    vocabulary = {character: n for n, character in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    bytes_only = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    bytes_only.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_only,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|system|>"],
    )
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.Qwen2Config(
        vocab_size=len(tokenizer), num_key_value_heads=1, eos_token_id=tokenizer.eos_token_id, **shape
    )
    transformers.Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder
