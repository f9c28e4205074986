"""How probable an answer is to a model in this process; torch is loaded only when that is asked."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from rag_notes.extras import needed
from rag_notes.files import checksum_of
from rag_notes.llm.store import Response, ResponseStore, request_key
from rag_notes.types import InputError


def log_probability(model: str, prompt: list[dict[str, str]], answer: str, store: ResponseStore) -> float:
    """The natural logarithm of the probability that a model gives to `answer` after the messages of `prompt`.

    `model` is a folder or a name on the Hugging Face Hub. A value is computed once and kept in the store, under the
    model's name and the checksum of its weights. Raises InputError without torch, and as `load_tokenizer`.
    """
    request = {"model": f"{model}@{weights_checksum(model)}", "messages": prompt, "log_probability_of": answer}
    if (stored := store.get(request_key(request))) is None or stored.logprobs is None:
        pairs = _token_log_probabilities(model, prompt, answer)
        stored = store.put(request, Response("", "scored", 0, len(pairs), seconds=0.0, logprobs=pairs))
    return sum(value for _, value in stored.logprobs or ())


@cache
def weights_checksum(model: str) -> str:
    """A hash of the weight files of a model's folder; the name itself where it is none."""
    files = sorted(Path(model).glob("*.safetensors"))
    return hashlib.sha256("".join([*map(checksum_of, files)] or [model]).encode()).hexdigest()


def load_tokenizer(model: str) -> Any:
    """A model's tokenizer. Raises InputError where it has no chat template, and without transformers."""
    tokenizer = needed("transformers", "train").AutoTokenizer.from_pretrained(model)
    if tokenizer.chat_template is None:
        raise InputError(
            f"{model}: has no chat template, and all prompts are chat messages; take an instruction model, or put a "
            "chat_template.jinja into the folder"
        )
    return tokenizer


def _token_log_probabilities(model: str, prompt: list[dict[str, str]], answer: str) -> tuple[tuple[str, float], ...]:
    loaded, tokenizer = _load(model)
    import torch  # noqa: PLC0415

    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    before, after = (
        tokenizer(part, add_special_tokens=False, return_tensors="pt")["input_ids"] for part in (text, answer)
    )
    with torch.no_grad():
        logits = loaded(torch.cat([before, after], dim=1).to(loaded.device)).logits[0, before.shape[1] - 1 : -1]
    values = logits.float().log_softmax(-1).gather(1, after[0].to(loaded.device).unsqueeze(1)).squeeze(1)
    return tuple(zip(tokenizer.convert_ids_to_tokens(after[0]), (min(float(v), 0.0) for v in values), strict=True))


@cache
def _load(model: str) -> tuple[Any, Any]:
    tokenizer = load_tokenizer(model)
    import torch  # noqa: PLC0415
    from transformers import AutoModelForCausalLM  # noqa: PLC0415

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AutoModelForCausalLM.from_pretrained(model, dtype="auto", use_safetensors=True).to(device).eval(), tokenizer
