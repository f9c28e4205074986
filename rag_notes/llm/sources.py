"""Where answers come from: an OpenAI-compatible endpoint, or recordings; `rag_notes.llm.local` is the third."""

import os

from rag_notes.llm.client import LLM
from rag_notes.llm.recording import MAX_UNPACKED
from rag_notes.llm.sampling import Sampling, with_sampling
from rag_notes.llm.store import ResponseStore
from rag_notes.llm.usage import Price
from rag_notes.types import InputError


@with_sampling
def openai_compatible(
    *,
    model: str,
    sampling: Sampling,
    base_url: str = "https://api.openai.com/v1",
    api_key_variable: str = "OPENAI_API_KEY",
    served_as: str | None = None,
    store: str = ".cache/responses.sqlite",
    lease: float = 5.0,
    concurrency: int = 16,
    timeout: float = 600.0,
    max_retries: int = 5,
    max_wait: float = 120.0,
    prompt_price: float | None = None,
    completion_price: float | None = None,
    max_cost: float | None = None,
) -> LLM:
    """A model behind any OpenAI-compatible endpoint; the key comes from the environment variable named.

    Prices are dollars per million tokens. Entering it raises InputError where the endpoint is OpenAI's own and the
    variable is empty (a server of one's own usually wants no key).
    """
    api_key = os.environ.get(api_key_variable)
    llm = LLM(
        model,
        store=ResponseStore(store, lease=lease),
        base_url=base_url,
        api_key=api_key,
        served_as=served_as,
        concurrency=concurrency,
        timeout=timeout,
        max_retries=max_retries,
        max_wait=max_wait,
        price=_price(prompt_price, completion_price),
        max_cost=max_cost,
        sampling=sampling,
    )
    if not api_key and "api.openai.com" in base_url:
        llm.lacks = (
            f"llm=openai needs a key: set the environment variable {api_key_variable}, or name your own server with "
            "llm.base_url=http://127.0.0.1:8000/v1"
        )
    return llm


@with_sampling
def recorded(
    *,
    model: str,
    recordings: list[str],
    sampling: Sampling,
    cache: str | None = ".cache/recordings",
    max_unpacked: int = MAX_UNPACKED,
    prompt_price: float | None = None,
    completion_price: float | None = None,
) -> LLM:
    """A model that answers only from recordings (JSON lines as `ResponseStore.export_jsonl` writes them).

    They are read once and kept below the folder `cache` (None: read into memory every time); `max_unpacked` is in
    bytes. Raises StoreError where a recording is missing, malformed or edited.
    """
    store = ResponseStore.of_recordings(recordings, cache=cache, max_unpacked=max_unpacked)
    return LLM(model, store=store, price=_price(prompt_price, completion_price), sampling=sampling)


def _price(prompt: float | None, completion: float | None) -> Price | None:
    if prompt is None and completion is None:
        return None
    if prompt is None or completion is None:
        raise InputError("set both llm.prompt_price and llm.completion_price, or neither")
    return Price(prompt, completion)
