"""The probability that a model gives to an answer, asked of an endpoint or computed in this process by torch."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from rag_notes.extras import needed
from rag_notes.files import checksum_of
from rag_notes.llm.client import LLM
from rag_notes.llm.completion import SCORED
from rag_notes.llm.errors import FatalLLMError, LLMError, RecordingMissError
from rag_notes.llm.store import Response, ResponseStore, request_key
from rag_notes.types import InputError


async def served_log_probability(llm: LLM, prompt: str, answer: str) -> float:
    """Return the log-probability, in nats, that an endpoint's model gives to `answer` after a user's message.

    The answer is sent as the beginning of the model's message, and the log-probabilities of the prompt are asked for,
    as vLLM understands it; the response is kept in the store. Raises FatalLLMError where the endpoint gives none,
    LLMError where its tokens do not spell the answer, and as `LLM.answer`.
    """
    request = llm.request(prompt)
    limit = "max_tokens" if request.get("max_completion_tokens") is None else "max_completion_tokens"
    request |= {"prompt_logprobs": 0, "add_generation_prompt": False, "continue_final_message": True, limit: 1}
    request["messages"] = [*request["messages"], {"role": "assistant", "content": answer}]
    response = await llm.answer(request, request_key(request))
    if response.finish_reason != SCORED:
        raise FatalLLMError(
            f"the endpoint of {llm.model} gives no log-probabilities of prompts (vLLM does); name a model for this "
            "process instead: training_data.scorer=FOLDER_OR_HUB_NAME"
        )
    text, total = "", 0.0
    for token, value in reversed(response.logprobs or ()):
        text, total = token + text, total + value
        if text.strip() == answer.strip():
            return total
    raise LLMError(f"the last tokens of the prompt of {llm.model} do not spell the answer {answer!r}")


def log_probability(
    model: str, prompt: list[dict[str, str]], answer: str, store: ResponseStore, *, stored_only: bool = False
) -> float:
    """Return the log-probability, in nats, that a model gives to `answer` after the messages of `prompt`.

    `model` is a folder or a name on the Hugging Face Hub. The value is kept in the store, unless that is read only,
    under the model's name and the checksum of its weights. Raises InputError without torch, as `load_tokenizer`, and
    with `stored_only` RecordingMissError where the store does not have it.
    """
    request = {"model": f"{model}@{weights_checksum(model)}", "messages": prompt, "log_probability_of": answer}
    response = store.get(request_key(request))
    if response is None or response.logprobs is None:
        if stored_only:
            raise RecordingMissError(f"a log-probability of {model} is not stored")
        tokens = _token_log_probabilities(model, prompt, answer)
        response = Response("", SCORED, 0, len(tokens), seconds=0.0, logprobs=tokens)
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


def load_tokenizer(model: str) -> Any:
    """Load a model's tokenizer. Raises InputError where it has no chat template, and without transformers."""
    tokenizer = needed("transformers", "train").AutoTokenizer.from_pretrained(model)
    if tokenizer.chat_template is None:
        raise InputError(
            f"{model}: has no chat template, and all prompts are chat messages; take an instruction model, or put a "
            "chat_template.jinja into the folder"
        )
    return tokenizer


def _token_log_probabilities(model: str, prompt: list[dict[str, str]], answer: str) -> tuple[tuple[str, float], ...]:
    network, tokenizer = _load(model)
    text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
    before, after = (
        tokenizer(part, add_special_tokens=False, return_tensors="pt")["input_ids"].to(network.device)
        for part in (text, answer)
    )
    torch = needed("torch", "train")
    with torch.no_grad():
        logits = network(torch.cat([before, after], dim=1), logits_to_keep=after.shape[1] + 1).logits[0, :-1]
    values = logits.float().log_softmax(-1).gather(1, after[0].unsqueeze(1)).squeeze(1)
    return tuple(zip(tokenizer.convert_ids_to_tokens(after[0]), (min(float(v), 0.0) for v in values), strict=True))


@cache
def _load(model: str) -> tuple[Any, Any]:
    tokenizer, load = load_tokenizer(model), needed("transformers", "train").AutoModelForCausalLM.from_pretrained
    device = "cuda" if needed("torch", "train").cuda.is_available() else "cpu"
    return load(model, dtype="auto", use_safetensors=True).to(device).eval(), tokenizer
