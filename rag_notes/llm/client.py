"""One client for every OpenAI-compatible endpoint (OpenAI, vLLM, Ollama, llama.cpp), in front of a response store."""

import asyncio
import os
import re
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx2
import openai

from rag_notes.llm.store import Response, ResponseStore, request_key

NOT_RECORDED = "no recorded response"  # what the error of a miss says
NO_CONNECTION = (httpx2.ConnectError, httpx2.ConnectTimeout)  # the aiohttp transport calls a refusal a time-out


class LLMError(RuntimeError):
    """A call that gave no usable response; the question that needed it fails, the run goes on."""


class RecordingMissError(LLMError):
    """The network is forbidden and the store has no response to this request."""


class FatalLLMError(LLMError):
    """An error that every further call would meet too (no such model, key refused, nobody there): the run stops."""


class SpendingLimitError(FatalLLMError):
    """The spending limit is reached; what is already answered is kept."""


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars for so many tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(slots=True)
class Usage:
    """What an LLM object has done: calls sent, store hits, and tokens, retries and dollars of the calls sent."""

    sent: int = 0
    stored: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    errors: int = 0
    cost: float = 0.0


class LLM:
    """A chat model behind an OpenAI-compatible endpoint, asked one user message at a time.

    Use it as an async context manager. A response that the store has costs nothing; identical requests in flight are
    sent once; errors are never stored. `model` names the model in keys, records and tables, `served_as` is what the
    endpoint calls it (default: the same). `base_url=None` means the network is forbidden and only the store answers.
    The defaults are DeepNote's: temperature 0.1 and a fixed seed (section C.1); top_p 0.9 and up to 1280 new tokens are
    in the authors' public code alone.
    `timeout` is in seconds. `max_cost` is in US dollars, counts from the start of this object and needs a `price`;
    calls already under way when it is reached are finished and kept. `stages` may name other LLMs for single stages;
    they are entered with this one and share its `usage`.
    """

    def __init__(
        self,
        model: str,
        *,
        store: ResponseStore,
        base_url: str | None = None,
        api_key: str | None = None,
        served_as: str | None = None,
        temperature: float = 0.1,
        top_p: float = 0.9,
        seed: int | None = 42,
        max_tokens: int = 1280,
        concurrency: int = 16,
        timeout: float = 600.0,
        max_retries: int = 5,
        price: Price | None = None,
        max_cost: float | None = None,
    ) -> None:
        if max_cost is not None and price is None:
            raise ValueError(
                f"max_cost needs the price of {model!r}: set llm.prompt_price and llm.completion_price "
                "(dollars per million tokens), or leave max_cost empty"
            )
        if concurrency < 1:
            raise ValueError(f"llm.concurrency must be at least 1, not {concurrency}")
        self.model = model
        self.store = store
        self.base_url = base_url
        self.price = price
        self.max_cost = max_cost
        self.concurrency = concurrency
        self.sampling = {"temperature": temperature, "top_p": top_p, "seed": seed, "max_tokens": max_tokens}
        self.usage = Usage()
        self.stages: dict[str, LLM] = {}
        self.resources = AsyncExitStack()  # what must live as long as this object: an engine in this process
        self._served_as = served_as or model
        self._api_key = api_key
        self._client: openai.AsyncOpenAI | None = None
        self._timeout = timeout
        self._max_retries = max_retries
        self._slots = asyncio.Semaphore(concurrency)
        self._in_flight: dict[str, asyncio.Future[Response]] = {}

    async def __aenter__(self) -> Self:
        if self.base_url is not None:
            self._client = openai.AsyncOpenAI(
                base_url=self.base_url,
                api_key=self._api_key or "none",
                timeout=self._timeout,
                max_retries=self._max_retries,
                http_client=openai.DefaultAioHttpClient(),  # half the work a call of the default transport
            )
        for other in self.stages.values():
            other.usage = self.usage
            await self.resources.enter_async_context(other)
        return self

    def of(self, stage: str) -> "LLM":
        """The LLM that answers a stage: another one where `stages` names it, else this one."""
        return self.stages.get(stage, self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
        await self.resources.aclose()

    def request(
        self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0
    ) -> dict[str, Any]:
        """What determines the answer to `prompt`, and so its key: model, message, sampling, repeat index."""
        return ({"stop": list(stop)} if stop else {}) | {
            "model": self.model,
            "messages": [{"role": "user", "content": prompt}],
            **self.sampling,
            "logprobs": logprobs,
            "repeat": repeat,
        }

    async def ask(self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0) -> Response:
        """The model's response to one user message, ended before the first of the strings in `stop`.

        Raises RecordingMissError where the network is forbidden and the store has no answer, SpendingLimitError and
        other FatalLLMErrors where no further call makes sense, LLMError for everything else that went wrong.
        """
        request = self.request(prompt, stop=stop, logprobs=logprobs, repeat=repeat)
        key = request_key(request)
        if (stored := self.store.get(key)) is not None:
            self.usage.stored += 1
            return stored
        if (pending := self._in_flight.get(key)) is not None:
            self.usage.stored += 1
            return await asyncio.shield(pending)
        future = self._in_flight[key] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else may be waiting
        try:
            response = self.store.put(request, await self._send(request))
        except BaseException as error:
            future.set_exception(
                error if isinstance(error, LLMError) else LLMError(f"the call was given up: {error!r}")
            )
            raise
        else:
            future.set_result(response)
            return response
        finally:
            del self._in_flight[key]

    async def _send(self, request: dict[str, Any]) -> Response:
        if self._client is None:
            raise RecordingMissError(
                f"{NOT_RECORDED}, and the network is forbidden; to go live choose another model source, for "
                "example llm=openai or llm=local"
            )
        body = {name: value for name, value in request.items() if name != "repeat" and value is not None}
        body["model"] = self._served_as
        if request["repeat"] and request["seed"] is not None:
            body["seed"] = request["seed"] + request["repeat"]
        async with self._slots:
            self._check_budget()
            start = time.perf_counter()
            try:
                # Not chat.completions.create: checking 35 arguments against their types takes as long as all the rest.
                raw = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
                retries = int(raw.request.headers.get("x-stainless-retry-count", 0))
                response = _read(raw.json(), time.perf_counter() - start, retries)
            except openai.APIError as error:
                self.usage.errors += 1
                raise self._explain(error) from None
            except (ValueError, TypeError, AttributeError, LookupError) as error:  # a body that is not a completion
                self.usage.errors += 1
                raise LLMError(
                    self._redact(f"{self.base_url} answered something that is not a chat completion: {error!r}")
                ) from None
            except LLMError:
                self.usage.errors += 1
                raise
        self.usage.sent += 1
        self.usage.prompt_tokens += response.prompt_tokens
        self.usage.completion_tokens += response.completion_tokens
        self.usage.retries += response.retries
        if self.price is not None:
            self.usage.cost += self.price.of(response.prompt_tokens, response.completion_tokens)
        return response

    def _check_budget(self) -> None:
        if self.max_cost is not None and self.usage.cost >= self.max_cost:
            raise SpendingLimitError(
                f"spending limit reached: {self.usage.cost:.4f} of max_cost={self.max_cost} dollars are spent since "
                "this command began; the same command continues with as much again"
            )

    def _explain(self, error: openai.APIError) -> LLMError:
        text = self._redact(f"{type(error).__name__}: {error.message}")
        match error:
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                return FatalLLMError(
                    f"{self.base_url} refused the API key ({text}); check the key's environment variable"
                )
            case openai.NotFoundError():
                return FatalLLMError(f"{self.base_url} does not know model {self._served_as!r} or the path ({text})")
            case openai.BadRequestError() if "logprob" in text:
                return FatalLLMError(f"{self.base_url} gives no log-probabilities of tokens ({text})")
            case openai.APIConnectionError() if isinstance(error.__cause__, NO_CONNECTION) and not self.usage.sent:
                return FatalLLMError(f"nobody answers at {self.base_url} ({text}); is the server running?")
            case openai.APITimeoutError():
                return LLMError(
                    f"{self.base_url} did not answer in time ({text}); raise llm.timeout or lower llm.concurrency"
                )
        return LLMError(f"{self.base_url} failed ({text})")

    def _redact(self, text: str) -> str:
        if self._api_key:
            text = text.replace(self._api_key, "[key]")
        return re.sub(r"\b(sk|key)-[\w*.-]{6,}", "[key]", text)[:500]


def _read(completion: Any, seconds: float, retries: int) -> Response:
    choice = completion["choices"][0]
    text, reason = choice["message"].get("content") or "", choice.get("finish_reason")
    if not isinstance(text, str):
        raise TypeError(f"the content is {text!r}")
    if reason is None:
        raise LLMError("the answer was cut off before the model finished")
    if reason == "content_filter":
        raise LLMError("the endpoint's content filter withheld the answer")
    usage = completion.get("usage") or {}
    prompt_tokens, completion_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (isinstance(prompt_tokens, int) and isinstance(completion_tokens, int)):
        raise LLMError("the endpoint reports no token usage, which the cost metrics need")
    logprobs = (choice.get("logprobs") or {}).get("content")
    return Response(
        text=text.encode("utf-8", "replace").decode(),  # half a surrogate pair cannot be stored
        finish_reason=reason,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        seconds=round(seconds, 3),
        retries=retries,
        logprobs=None if logprobs is None else tuple((item["token"], item["logprob"]) for item in logprobs),
    )


def openai_compatible(
    *,
    model: str,
    base_url: str = "https://api.openai.com/v1",
    api_key_variable: str = "OPENAI_API_KEY",
    served_as: str | None = None,
    store: str = ".cache/responses.sqlite",
    temperature: float = 0.1,
    top_p: float = 0.9,
    seed: int | None = 42,
    max_tokens: int = 1280,
    concurrency: int = 16,
    timeout: float = 600.0,
    max_retries: int = 5,
    prompt_price: float | None = None,
    completion_price: float | None = None,
    max_cost: float | None = None,
) -> LLM:
    """A model behind any OpenAI-compatible endpoint; the key comes from the environment variable named.

    Prices are dollars per million tokens. Raises ValueError where the endpoint is OpenAI's own and the variable is
    empty (a server of one's own usually wants no key).
    """
    api_key = os.environ.get(api_key_variable)
    if not api_key and "api.openai.com" in base_url:
        raise ValueError(
            f"llm=openai needs a key: set the environment variable {api_key_variable}, or name your own server with "
            "llm.base_url=http://127.0.0.1:8000/v1"
        )
    return LLM(
        model,
        store=ResponseStore(store),
        base_url=base_url,
        api_key=api_key,
        served_as=served_as,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        max_tokens=max_tokens,
        concurrency=concurrency,
        timeout=timeout,
        max_retries=max_retries,
        price=_price(prompt_price, completion_price),
        max_cost=max_cost,
    )


def recorded(
    *,
    model: str,
    recordings: list[str],
    temperature: float = 0.1,
    top_p: float = 0.9,
    seed: int | None = 42,
    max_tokens: int = 1280,
    prompt_price: float | None = None,
    completion_price: float | None = None,
) -> LLM:
    """A model that answers only from recordings (JSON lines as `ResponseStore.export_jsonl` writes them).

    Raises StoreError where a recording is missing, malformed or edited.
    """
    store = ResponseStore(":memory:")
    for path in recordings:
        store.import_jsonl(path)
    return LLM(
        model,
        store=store,
        temperature=temperature,
        top_p=top_p,
        seed=seed,
        max_tokens=max_tokens,
        price=_price(prompt_price, completion_price),
    )


def _price(prompt: float | None, completion: float | None) -> Price | None:
    if prompt is None and completion is None:
        return None
    if prompt is None or completion is None:
        raise ValueError("set both llm.prompt_price and llm.completion_price, or neither")
    return Price(prompt, completion)
