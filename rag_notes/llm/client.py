"""One client for every OpenAI-compatible endpoint (OpenAI, vLLM, Ollama, llama.cpp), in front of a response store."""

import asyncio
import contextlib
import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rag_notes.llm.completion import SCORED, is_same_model, read_completion
from rag_notes.llm.errors import (
    FatalLLMError,
    LLMError,
    PausedError,
    RecordingMissError,
    SpendingLimitError,
    printable,
)
from rag_notes.llm.faults import FailedCallError, endpoint_of, failed_call, pause
from rag_notes.llm.response import strict_json
from rag_notes.llm.sampling import Sampling, messages
from rag_notes.llm.store import Response, ResponseStore, StoreError, request_key
from rag_notes.llm.usage import Price, Usage
from rag_notes.types import InputError

if TYPE_CHECKING:
    import openai

__all__ = [
    "LLM",
    "NOT_RECORDED",
    "FatalLLMError",
    "LLMError",
    "PausedError",
    "Price",
    "RecordingMissError",
    "SpendingLimitError",
]

NOT_RECORDED = "no recorded response"  # what the error of a miss says
POLLS = (0.02, 0.5)
"""Seconds between looks at whether another process has the answer: the first and the longest."""


class LLM:
    """A chat model behind an OpenAI-compatible endpoint, asked one user message at a time.

    Use it as an async context manager. A response that the store has costs nothing; identical requests in flight are
    sent once, by whichever process claims them first; errors are never stored. `model` names the model in keys,
    records and tables, `served_as` is what the endpoint calls it (default: the same). `base_url=None` means the
    network is forbidden and only the store answers. `settings` are those of `Sampling` that differ from `sampling`.

    What may pass is tried again up to `max_retries` times: no connection, no answer within `timeout` seconds, status
    408, 409, 429 and 500 upwards, a body that is no whole completion, and an empty answer, which is kept where it
    stays empty. It is asked again with the same seed, as the key under which it is kept names that seed. The server's
    Retry-After is obeyed up to `max_wait` seconds; a longer one ends the run. `max_cost` is in US dollars, counts from
    the start of this object and needs a `price`; calls already under way when it is reached are finished and kept.
    `stages` may name other LLMs for single stages; they are entered with this one and share its `usage`.
    """

    def __init__(
        self,
        model: str,
        *,
        store: ResponseStore,
        base_url: str | None = None,
        api_key: str | None = None,
        served_as: str | None = None,
        concurrency: int = 16,
        timeout: float = 600.0,
        max_retries: int = 5,
        max_wait: float = 120.0,
        price: Price | None = None,
        max_cost: float | None = None,
        sampling: Sampling | None = None,
        **settings: Any,
    ) -> None:
        if max_cost is not None and price is None:
            raise InputError(
                f"max_cost needs the price of {model!r}: set llm.prompt_price and llm.completion_price "
                "(dollars per million tokens), or leave max_cost empty"
            )
        if concurrency < 1:
            raise InputError(f"llm.concurrency must be at least 1, not {concurrency}")
        self.model = model
        self.store = store
        self.base_url = base_url
        self.endpoint = None if base_url is None else endpoint_of(base_url)
        self.price = price
        self.max_cost = max_cost
        self.concurrency = concurrency
        self.sampling = replace(sampling or Sampling(), **settings).settings()
        self.usage = Usage()
        self.lacks = ""  # what must be there before anything can be asked
        self.stages: dict[str, LLM] = {}
        self.trained: dict[str, str | None] = {}  # what records say of how the model came to be
        self.resources = AsyncExitStack()  # what must live as long as this object: an engine in this process
        self._served_as = served_as or model
        self._api_key = api_key
        self._client: openai.AsyncOpenAI | None = None
        self._timeout = timeout
        self._max_retries = max_retries
        self._max_wait = max_wait
        self._slots = asyncio.Semaphore(concurrency)
        self._in_flight: dict[str, asyncio.Future[Response]] = {}
        self._unsaved: list[tuple[dict[str, Any], Response]] = []  # paid, and the store could not be written
        self._warned: set[str] = set()

    async def __aenter__(self) -> Self:
        if self.base_url is not None:
            if self.lacks:
                raise InputError(self.lacks)
            import openai  # noqa: PLC0415 - half a second that a replay does without

            self._client = openai.AsyncOpenAI(
                base_url=self.base_url,
                api_key=self._api_key or "none",
                timeout=self._timeout,
                max_retries=0,  # `_send` retries, for more reasons and obeying any Retry-After: twice would multiply
                http_client=openai.DefaultAioHttpClient(),  # half the work a call of the default transport
            )
        for other in self.stages.values():
            other.usage = self.usage
            await self.resources.enter_async_context(other)
        return self

    def of(self, stage: str) -> "LLM":
        """The LLM that answers a stage: another one where `stages` names it, else this one."""
        return self.stages.get(stage, self)

    def taken(self, keys: Sequence[str]) -> dict[str, tuple[float, int]]:
        """The seconds and retries of stored responses by key, as `ResponseStore.taken`, of all stages."""
        stores = {id(llm.store): llm.store for llm in (self, *self.stages.values())}
        return {key: value for store in stores.values() for key, value in store.taken(keys).items()}

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(StoreError):  # there may be room again; that there was none has been said
            while self._unsaved:
                self.store.put(*self._unsaved[-1])
                self._unsaved.pop()
        if self._client is not None:
            await self._client.close()
            self._client = None
        await self.resources.aclose()

    def request(
        self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0
    ) -> dict[str, Any]:
        """What determines the answer to `prompt`, and so its key: model, messages, sampling, repeat index."""
        settings = {name: value for name, value in self.sampling.items() if name != "system"}
        return ({"stop": list(stop)} if stop else {}) | {
            "model": self.model,
            "messages": messages(prompt, self.sampling.get("system")),
            **settings,
            "logprobs": logprobs,
            "repeat": repeat,
        }

    async def ask(self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0) -> Response:
        """The response to one user message, ended before the first of the strings in `stop`; raises as `answer`."""
        request = self.request(prompt, stop=stop, logprobs=logprobs, repeat=repeat)
        return await self.answer(request, request_key(request))

    async def answer(self, request: dict[str, Any], key: str) -> Response:
        """The response to what `request` gave, `key` being its `request_key`.

        Raises RecordingMissError where the network is forbidden and the store has no answer, SpendingLimitError and
        other FatalLLMErrors where no further call makes sense (a store that cannot be written among them), LLMError for
        everything else that went wrong.
        """
        if (stored := self._stored(key)) is not None:
            return stored
        if (pending := self._in_flight.get(key)) is not None:
            self.usage.stored += 1
            return await asyncio.shield(pending)
        future = self._in_flight[key] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody else may be waiting
        try:
            response = await self._obtain(key, request)
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

    def _stored(self, key: str) -> Response | None:
        with _fatal_store():
            stored = self.store.get(key)
        if stored is not None:
            self.usage.stored += 1
            if self.endpoint and stored.endpoint and (stored.endpoint, stored.served_as) != self._server():
                self._warn(
                    "stored",
                    f"stored answers of {self.model} from {stored.endpoint} (as {stored.served_as}) are used; the "
                    f"endpoint now is {self.endpoint} (as {self._served_as}); give another llm.model or llm.store to "
                    "keep them apart",
                )
        return stored

    async def _obtain(self, key: str, request: dict[str, Any]) -> Response:
        """Make the call, or wait for the process that is making it and take its answer from the store."""
        if self._client is None:
            raise RecordingMissError(
                f"{NOT_RECORDED}, and the network is forbidden; to go live choose another model source, for "
                "example llm=openai or llm=local"
            )
        wait, longest = POLLS
        while True:
            with _fatal_store():
                async with self._slots:
                    if self.store.claim(key):
                        try:
                            return self._keep(request, await self._send(request))
                        finally:
                            self.store.release(key)
            if (stored := self._stored(key)) is not None:
                return stored
            await asyncio.sleep(wait)
            wait = min(2 * wait, longest)

    def _keep(self, request: dict[str, Any], response: Response) -> Response:
        try:
            return self.store.put(request, response)
        except StoreError as error:
            self._unsaved.append((request, response))
            raise StoreError(f"{error} (an answer was paid that could not be stored; nothing more is asked)") from None

    async def _send(self, request: dict[str, Any]) -> Response:
        body = {name: value for name, value in request.items() if name != "repeat" and value is not None}
        body |= body.pop("extra_body", {}) | {"model": self._served_as}
        if request["repeat"] and request["seed"] is not None:
            body["seed"] = request["seed"] + request["repeat"]
        start, failures, empty = time.perf_counter(), 0, 0
        while True:
            if self._unsaved:
                raise FatalLLMError(f"{self.store.path}: the last answer could not be stored; nothing more is asked")
            self._check_budget()
            try:
                response = await self._call(body, start, failures + empty)
            except FailedCallError as failure:
                wait = pause(failures) if failure.asked is None else failure.asked
                if failure.passing and wait > self._max_wait:
                    raise PausedError(
                        f"paused: {self.base_url} asks to wait {wait:.0f} s, longer than llm.max_wait="
                        f"{self._max_wait:g} ({failure}); the same command continues"
                    ) from None
                if not failure.passing or failures == self._max_retries:
                    self.usage.errors += 1
                    raise failure.error from None
                failures += 1
            else:
                self._count(response)
                # An empty answer may be a passing fault; one that used up its tokens (in reasoning) is not.
                whole = response.text.strip() or response.finish_reason in ("length", SCORED)
                if whole or empty == self._max_retries:
                    return response
                empty, wait = empty + 1, 0.0
            self.usage.retries += 1
            await asyncio.sleep(wait)

    async def _call(self, body: dict[str, Any], start: float, tries: int) -> Response:
        import httpx2  # noqa: PLC0415
        import openai  # noqa: PLC0415

        assert self._client is not None
        try:
            # Not chat.completions.create: checking 35 arguments against their types takes as long as all the rest.
            raw = await self._client.post("/chat/completions", cast_to=httpx2.Response, body=body)
            response = read_completion(
                strict_json(raw.content),
                seconds=time.perf_counter() - start,
                retries=tries,
                scored=body.get("continue_final_message", False),  # the prompt ends in a begun answer
            )
        except openai.APIError as error:
            raise failed_call(error, body, self.base_url, self._clean) from None
        except (ValueError, TypeError, AttributeError, LookupError) as error:  # a body that is not a completion
            text = self._clean(f"{type(error).__name__}: {error}")
            broken = LLMError(f"{self.base_url} answered something that is not a chat completion ({text})")
            raise FailedCallError(broken, passing=True) from None
        except LLMError as error:
            raise FailedCallError(error) from None
        if response.model and not is_same_model(self._served_as, response.model):
            self._warn(
                "model",
                f"{self.base_url} was asked for {self._served_as} and {self._clean(response.model)} answered; if it is "
                "the same, set llm.served_as to that name",
            )
        endpoint, served_as = self._server()
        return replace(response, endpoint=endpoint, served_as=served_as)

    def _server(self) -> tuple[str | None, str]:
        return self.endpoint, self._served_as

    def _warn(self, kind: str, text: str) -> None:
        """Say something of a kind once in the life of this object."""
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, RuntimeWarning, stacklevel=3)

    def _count(self, response: Response) -> None:
        self.usage.sent += 1
        self.usage.prompt_tokens += response.prompt_tokens
        self.usage.completion_tokens += response.completion_tokens
        self.usage.reasoning_tokens += response.reasoning_tokens
        if self.price is not None:
            self.usage.cost += self.price.of(response.prompt_tokens, response.completion_tokens)

    def _check_budget(self) -> None:
        if self.max_cost is not None and self.usage.cost >= self.max_cost:
            raise SpendingLimitError(
                f"spending limit reached: {self.usage.cost:.4f} of max_cost={self.max_cost} dollars are spent since "
                "this command began; the same command continues with as much again"
            )

    def _clean(self, text: str) -> str:
        if self._api_key:
            text = text.replace(self._api_key, "[key]")
        return printable(re.sub(r"\b(sk|key)-[\w*.-]{6,}", "[key]", text))


@contextlib.contextmanager
def _fatal_store() -> Iterator[None]:
    """A store that cannot be read or written is an error that every further call would meet too."""
    try:
        yield
    except StoreError as error:
        raise FatalLLMError(str(error)) from None
