"""The probability that a model gives to an answer, computed in this process by torch."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from rag_notes.extras import needed
from rag_notes.files import checksum_of
from rag_notes.llm.errors import RecordingMissError
from rag_notes.llm.store import Response, ResponseStore, request_key
from rag_notes.types import InputError


def log_probability(
    model: str, prompt: list[dict[str, str]], answer: str, store: ResponseStore, *, stored_only: bool = False
) -> float:
    """Return the log-probability, in nats, that a model gives to `answer` after the messages of `prompt`.

    `model` is a folder or a name on the Hugging Face Hub. The value is kept in the store, unless that is read only,
    under the model's name and the checksum of its weights. Raises InputError without torch, and with
    `stored_only` RecordingMissError where the store does not have it.
    """
    request = {"model": f"{model}@{weights_checksum(model)}", "messages": prompt, "log_probability_of": answer}
    response = store.get(request_key(request))
    if response is None or response.logprobs is None:
        if stored_only:
            raise RecordingMissError(f"a log-probability of {model} is not stored")
        tokens = _token_log_probabilities(model, prompt, answer)
        response = Response("", "scored", 0, len(tokens), seconds=0.0, logprobs=tokens)
        if not store.read_only:  # recordings are
            response = store.put(request, response)
    return sum(value for _, value in response.logprobs or ())


@cache
def weights_checksum(model: str) -> str:
    """Return a hash of a model's weight files, those of the Hub's cache where a name is given.

    Raises InputError where there are none.
    """
    folder = Path(model)
    if not folder.is_dir():
        hub = needed("huggingface_hub", "train")
        folder = Path(hub.snapshot_download(model, allow_patterns=["*.safetensors"]))
    if not (files := sorted(folder.glob("*.safetensors"))):
        raise InputError(f"{model}: has no weights as safetensors, and nothing else is read")
    return hashlib.sha256("".join(map(checksum_of, files)).encode()).hexdigest()


def _token_log_probabilities(model: str, prompt: list[dict[str, str]], answer: str) -> tuple[tuple[str, float], ...]:
    torch, (network, tokenizer) = needed("torch", "train"), _load(model)
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    before, after = (
        tokenizer(part, add_special_tokens=False, return_tensors="pt")["input_ids"].to(network.device)
        for part in (text, answer)
    )
    with torch.no_grad():
        logits = network(torch.cat([before, after], dim=1), logits_to_keep=after.shape[1] + 1).logits[0, :-1]
    values = logits.float().log_softmax(-1).gather(1, after[0].unsqueeze(1)).squeeze(1)
    return tuple(zip(tokenizer.convert_ids_to_tokens(after[0]), (min(float(v), 0.0) for v in values), strict=True))


@cache
def _load(model: str) -> tuple[Any, Any]:
    transformers, torch = needed("transformers", "train"), needed("torch", "train")
    network = transformers.AutoModelForCausalLM.from_pretrained(model, dtype="auto", use_safetensors=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return network.to(device).eval(), transformers.AutoTokenizer.from_pretrained(model)
