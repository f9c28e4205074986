"""One client for every OpenAI-compatible endpoint (OpenAI, vLLM, Ollama, llama.cpp), in front of a response store."""

import asyncio
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pydantic import InstanceOf

from rag_notes.llm import errors
from rag_notes.llm.completion import Price, Usage, read_body, read_completion, read_usage
from rag_notes.llm.errors import FatalLLMError, LLMError, RecordingMissError, SpendingLimitError
from rag_notes.llm.store import Response, ResponseStore, request_key
from rag_notes.types import InputError, NonNegative, Positive

__all__ = ["LLM", "FatalLLMError", "LLMError", "RecordingMissError", "SpendingLimitError"]

PAUSE = 0.5  # seconds before a request whose answer was unusable is sent again; doubled each time, to 8
MAX_REFUSALS = 5  # so many requests refused with one status, and none answered, end the run
_DATE = r"(?:-\d{4}(?:-?\d{2}-?\d{2})?)?"  # which vendors append to the name of a model
_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-f:]+\])(:[1-9]\d*)?(/\S*)?")


class LLM:
    """A chat model, asked one user message at a time; use it with `async with`.

    A response that the store has costs nothing; identical requests in flight are sent once, by whichever process claims
    them first; errors are never stored. `model` names the model in keys, records and tables, `served_as` is what the
    endpoint calls it. `base_url` is an OpenAI-compatible endpoint, or "local" for a GGUF file served in this process.
    Without it, and with `recordings` (exports of a store, unpacked below `cache`), the network is forbidden. What
    may pass is tried again up to `max_retries` times, by openai's client or, where an answer is empty or none, by this.
    Prices are US dollars per million tokens, `max_cost` is what this object may spend. A setting of None is not sent.
    Temperature 0.1 and a fixed seed are DeepNote's (section C.1); top_p 0.9 and 1280 new tokens are in its authors'
    public code only. `system` is a message put before the prompt, `extra_body` further fields of the request.
    """

    def __init__(
        self,
        model: str,
        *,
        store: InstanceOf[ResponseStore] | str = ".cache/responses.sqlite",
        recordings: list[str] | None = None,
        cache: str | None = ".cache/recordings",
        lease: float = 5.0,
        base_url: str | None = None,
        api_key_variable: str = "OPENAI_API_KEY",
        served_as: str | None = None,
        n_ctx: Positive = 8192,
        threads: Positive | None = None,
        concurrency: Positive = 16,
        timeout: float = 600.0,
        max_retries: NonNegative = 5,
        prompt_price: float | None = None,
        completion_price: float | None = None,
        max_cost: float | None = None,
        temperature: float | None = 0.1,
        top_p: float | None = 0.9,
        seed: int | None = 42,
        max_tokens: int | None = 1280,
        max_completion_tokens: int | None = None,
        reasoning_effort: str | None = None,
        system: str | None = None,
        extra_body: dict[str, Any] | None = None,
    ) -> None:
        if (prompt_price is None) != (completion_price is None):
            raise InputError("set both llm.prompt_price and llm.completion_price, or neither")
        self.price = Price(prompt_price, completion_price or 0.0) if prompt_price is not None else None
        if max_cost is not None and self.price is None:
            raise InputError(f"max_cost needs the price of {model!r}: set llm.prompt_price and llm.completion_price")
        basic = {"temperature": temperature, "top_p": top_p, "seed": seed, "max_tokens": max_tokens}
        more = {"max_completion_tokens": max_completion_tokens, "reasoning_effort": reasoning_effort, "system": system}
        for name in sorted((extra_body or {}).keys() & {*basic, *more, "model", "messages", "stop", "stream"}):
            raise InputError(f"llm.extra_body.{name}: set llm.{name} where there is one, not in extra_body")
        set_only: dict[str, Any] = more | {"extra_body": extra_body}
        self.sampling = basic | {name: value for name, value in set_only.items() if value}
        if recordings is not None:
            store, base_url = ResponseStore.of_recordings(recordings, cache=cache), None
        self.store = ResponseStore(store, lease=lease) if isinstance(store, str) else store
        self._is_local = base_url == "local"
        self.model = Path(model).stem if self._is_local else model
        self.base_url, self.max_cost, self.concurrency = base_url, max_cost, concurrency
        if not (self._is_local or base_url is None or _ADDRESS.fullmatch(base_url)):  # which may hold a secret
            raise InputError("llm.base_url: expected for example http://127.0.0.1:8000/v1, without user or password")
        self.endpoint = "llama.cpp in this process" if self._is_local else base_url and base_url.split("/")[2]
        self.usage, self.trained, self.stages = Usage(), dict[str, str | None](), dict[str, LLM]()
        self._served_as, self._key_variable = served_as or self.model, api_key_variable
        self._timeout, self._max_retries, self._resources = timeout, max_retries, AsyncExitStack()
        self._engine: dict[str, Any] = {"name": model, "n_ctx": n_ctx, "threads": threads}
        self._client: Any = None
        self._server: Any = None
        self._in_flight: dict[str, asyncio.Task[Response]] = {}
        self._fatal: FatalLLMError | None = None
        self._refusals, self._unmetered = Counter[int](), False

    async def __aenter__(self) -> Self:
        if self.base_url is not None:
            import openai  # noqa: PLC0415 - half a second that a replay does without

            base_url, key = self.base_url, os.environ.get(self._key_variable, "").strip()
            if self._is_local:
                from rag_notes.llm.local import serve  # noqa: PLC0415

                self._server = serve(n_parallel=self.concurrency, **self._engine)
                base_url = f"{self._server.listening_address}/v1"
            elif not (key.isascii() and key.isprintable()) or (not key and self.endpoint == "api.openai.com"):
                raise InputError(
                    f"llm=openai needs a key: set the environment variable {self._key_variable} (letters, digits and "
                    "signs), or name your own server with llm.base_url=http://127.0.0.1:8000/v1"
                )
            transport: Any = openai.DefaultAioHttpClient()  # half the work a call of the default transport
            settings: Any = {"base_url": base_url, "api_key": key or "none", "timeout": self._timeout}
            endpoint = openai.AsyncOpenAI(http_client=transport, **settings)
            self._client = await self._resources.enter_async_context(endpoint)
        for other in self.stages.values():
            other.usage = self.usage
            await self._resources.enter_async_context(other)
        if self._client is not None:
            self._slots, self._fatal = asyncio.Semaphore(self.concurrency), None
            self._resources.enter_context(self.store.renewing())
        return self

    async def __aexit__(self, *error: object) -> None:
        calls = list(self._in_flight.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._resources.aclose()
        self._client, self._server = None, None

    def of(self, stage: str) -> "LLM":
        """The LLM that answers a stage: another one where `stages` names it, else this one."""
        return self.stages.get(stage, self)

    def request(
        self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0
    ) -> dict[str, Any]:
        """What determines the answer to `prompt`, and so its key: model, messages, sampling, repeat index."""
        settings = dict(self.sampling)
        texts = {"system": settings.pop("system", ""), "user": prompt}
        messages = [{"role": role, "content": errors.encodable(texts[role])} for role in texts if texts[role]]
        request = {"model": self.model, "messages": messages, **settings, "logprobs": logprobs, "repeat": repeat}
        return request | ({"stop": list(stop)} if stop else {})

    async def ask(self, prompt: str, **options: Any) -> Response:
        """The response to a prompt; `options` are those of `request`. Raises as `answer`."""
        request = self.request(prompt, **options)
        return await self.answer(request, request_key(request))

    async def answer(self, request: dict[str, Any], key: str) -> Response:
        """The response to what `request` gave, `key` being its `request_key`. Raises RecordingMissError where the
        network is forbidden and the store has no answer, FatalLLMError where no further call can help, else LLMError.
        """
        if (stored := self._stored(key)) is not None:
            return stored
        if self._client is None:
            raise RecordingMissError("no recorded response, and the network is forbidden; go live by llm=openai")
        if (call := self._in_flight.get(key)) is None:
            call = self._in_flight[key] = asyncio.create_task(self._obtain(request, key))
            call.add_done_callback(lambda done: self._in_flight.pop(key) and (done.cancelled() or done.exception()))
        else:
            self.usage.stored += 1
        return await asyncio.shield(call)  # one who gives up does not take the answer from the others

    def _stored(self, key: str) -> Response | None:
        if (stored := self.store.get(key)) is not None:
            self.usage.stored += 1
            if self.endpoint and stored.endpoint and stored.endpoint != self.endpoint:
                text = f"is not where the stored answers that are used are from, {stored.endpoint}"
                self._warn(f"{text}; another llm.model or llm.store would keep them apart")
        return stored

    async def _obtain(self, request: dict[str, Any], key: str) -> Response:
        """Make the call, or wait for the process that is making it and take its answer from the store."""
        wait = 0.02
        while True:
            async with self._slots:
                if self._fatal is not None:  # nothing more is sent
                    raise type(self._fatal)(*self._fatal.args)
                try:
                    with self.store.claim(key) as claimed:
                        if claimed:
                            return self.store.put(request, await self._send(request))
                except FatalLLMError as error:
                    self._fatal = error
                    raise
            if (stored := self._stored(key)) is not None:
                return stored
            await asyncio.sleep(wait)
            wait = min(2 * wait, 0.5)

    async def _send(self, request: dict[str, Any]) -> Response:
        import aiohttp  # noqa: PLC0415
        import httpx2  # noqa: PLC0415
        import openai  # noqa: PLC0415

        body = {name: value for name, value in request.items() if value is not None and (value or name != "logprobs")}
        body |= body.pop("extra_body", {}) | {"model": self._served_as}
        if (repeat := body.pop("repeat")) and "seed" in body:
            body["seed"] += repeat
        start, failures, empty, most = time.perf_counter(), 0, 0, self._max_retries
        while True:
            if self.max_cost is not None and (self._unmetered or self.usage.cost >= self.max_cost):
                unknown = "no token usage is reported, so that none can be kept; " if self._unmetered else ""
                text = f"{unknown}{self.usage.cost:.4f} of max_cost={self.max_cost} dollars are spent in this command"
                advice = "the same command continues with as much again"
                raise SpendingLimitError(f"spending limit reached: {text}; {advice}")
            options = {"max_retries": most - failures}
            try:
                # Not chat.completions.create: checking 35 arguments against their types takes as long as all the rest.
                raw = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body, options=options)
                failures += int(raw.request.headers.get("x-stainless-retry-count", 0))
                response = self._read(raw.content, body)
                # An empty answer may be a passing fault; one that used up its tokens (in reasoning) is not.
                if response.text.strip() or response.finish_reason == "length" or empty == most:
                    served: Any = {"endpoint": self.endpoint, "served_as": self._served_as, "retries": failures + empty}
                    return replace(response, seconds=round(time.perf_counter() - start, 3), **served)
                empty += 1
                continue
            except openai.APIStatusError as error:
                failure = self._explained(error.status_code, error.body, body)
                wait = error.response.headers.get("retry-after", "")
                if wait.isdigit() and int(wait) > 120:  # openai's client waits no longer
                    failure = FatalLLMError(f"asks to wait {wait} s; the same command continues")
            except openai.APIError as error:
                failure = errors.explain_connection(error)
            except LLMError as error:
                failure = error
            except (ValueError, TypeError, AttributeError, LookupError, RecursionError, aiohttp.ClientError) as error:
                if failures < most:
                    await asyncio.sleep(min(PAUSE * 2**failures, 8.0))
                    failures += 1
                    continue
                text = f"{type(error).__name__}: {error}"
                failure = LLMError(f"answered something that is not a chat completion ({text})")
            raise type(failure)(self._clean(f"{self.base_url}: {failure}"))

    def _read(self, content: bytes, body: dict[str, Any]) -> Response:
        """The response in the body of an answer, which is paid whether or not it can be used."""
        completion, usage = read_body(content), self.usage
        if counts := read_usage(completion):
            usage.prompt_tokens += counts[0]
            usage.completion_tokens += counts[1]
            usage.cost += self.price.of(*counts[:2]) if self.price else 0.0
        if completion.get("error") and not completion.get("choices"):
            message, code, _ = errors.read_error(completion)
            if code in ("400", "401", "402", "403", "404", "422"):
                raise self._explained(int(code), completion, body)
            raise InputError(message)
        response = read_completion(completion)
        usage.sent += 1
        if counts is None:
            self._unmetered = True
            self._warn("reports no token usage: costs are unknown, and tokens count as 0")
        if response.model and not re.fullmatch(f"{re.escape(self._served_as)}{_DATE}", response.model):
            text = f"was asked for {self._served_as} and {response.model} answered"
            self._warn(f"{text}; if it is the same, set llm.served_as to that name")
        return response

    def _explained(self, status: int, refusal: Any, body: dict[str, Any]) -> LLMError:
        error = errors.explain(status, refusal, body.keys() - {"model", "messages", "logprobs"})
        self._refusals[status] += 400 <= status < 500 and status != 429
        if not self.usage.sent and self._refusals[status] >= (1 if status == 404 else MAX_REFUSALS):
            return FatalLLMError(f"{error}; no request was answered: check llm.model={self.model} and the settings")
        return error

    def _warn(self, text: str) -> None:
        warnings.warn(self._clean(f"{self.base_url}: {text}"), RuntimeWarning, stacklevel=2)

    def _clean(self, text: str) -> str:
        key = re.escape(os.environ.get(self._key_variable, "").strip() or "sk-")
        return errors.printable(re.sub(rf"{key}|\b(sk|key)-[\w*.-]{{6,}}", "[key]", text))
