"""The LLM client against a server on loopback that fails in every way a server can."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.client import (
    LLM,
    FatalLLMError,
    LLMError,
    Price,
    SpendingLimitError,
)
from rag_notes.llm.sources import openai_compatible
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Progress
from rag_notes.types import Passage, Question
from tests.loopback import Loopback, Seen, body_hash
from tests.scripted import asked

KEY = "hunter2-correct-horse-battery"
OPENAI_KEY = "sk-proj-abcDEF123456_7890"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log") as running:
        yield running


@pytest.fixture(scope="module")
def retriever() -> BM25:
    return bm25(
        [Passage("p1", "Paris", "Paris is a city in France."), Passage("p2", "Rome", "Rome is old.")], cache=None
    )


def client(server: Loopback, store: ResponseStore | None = None, **options: Any) -> LLM:
    store = ResponseStore(":memory:") if store is None else store
    settings: dict[str, Any] = {"store": store, "base_url": server.base_url, "timeout": 30.0} | options
    return LLM("tiny", **settings)


def met(server: Loopback, llm: LLM, prompt: str, repeat: int = 0) -> list[str]:
    """What the requests for one prompt met, in order."""
    return [seen.met for seen in server.seen() if seen.hash == sent_hash(llm, prompt, repeat)]


def sent_hash(llm: LLM, prompt: str, repeat: int = 0) -> str:
    seed = None if llm.sampling["seed"] is None else llm.sampling["seed"] + repeat
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0.1,
        "top_p": 0.9,
        "seed": seed,
        "max_tokens": 1280,
        "logprobs": False,
    }
    return body_hash({name: value for name, value in body.items() if value is not None})


def test_an_answer_is_read_counted_and_stored(server: Loopback) -> None:
    llm = client(server)
    response = asked(llm, lambda llm: llm.ask("What is the capital of France?"))
    assert response.finish_reason == "stop"
    assert response.text.endswith(sent_hash(llm, "What is the capital of France?")[:6])
    assert (response.prompt_tokens, response.completion_tokens, response.retries) == (7, 7, 0)
    assert (llm.usage.sent, llm.usage.stored, llm.usage.prompt_tokens, llm.usage.completion_tokens) == (1, 0, 7, 7)
    ((_, request, stored),) = llm.store.rows()
    assert stored == response
    assert request == llm.request("What is the capital of France?")


@pytest.mark.parametrize("fault", ["429", "500"])
def test_a_passing_fault_is_retried_and_the_retries_recorded(server: Loopback, fault: str) -> None:
    llm, prompt = client(server, max_retries=2), f"passing <{fault} {fault}>"
    response = asked(llm, lambda llm: llm.ask(prompt))
    assert met(server, llm, prompt) == [fault, fault, "ok"]
    assert response.retries == llm.usage.retries == 2
    ((_, _, stored),) = llm.store.rows()
    assert stored.retries == 2


@pytest.mark.parametrize("fault", ["429", "500"])
def test_a_lasting_fault_is_tried_one_time_more_than_max_retries(server: Loopback, fault: str) -> None:
    llm, prompt = client(server, max_retries=2), f"lasting <{fault} {fault} {fault} {fault}>"
    with pytest.raises(LLMError, match=f"{fault}") as error:
        asked(llm, lambda llm: llm.ask(prompt))
    assert not isinstance(error.value, FatalLLMError)
    assert met(server, llm, prompt) == [fault] * 3
    assert len(llm.store) == 0
    assert (llm.usage.sent, llm.usage.errors) == (0, 1)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("garbage", "not a chat completion"),
        ("halfjson", "not a chat completion"),
        ("stranger", "not a chat completion"),
        ("nochoice", "not a chat completion"),
        ("badtext", "not a chat completion"),
        ("badusage", "no token usage"),
        ("nousage", "no token usage"),
        ("uncut", "cut off"),
    ],
)
def test_what_is_no_completion_is_an_error_and_never_stored(server: Loopback, fault: str, message: str) -> None:
    llm, prompt = client(server, max_retries=0), f"no completion <{fault}>"
    with pytest.raises(LLMError, match=message) as error:
        asked(llm, lambda llm: llm.ask(prompt))
    assert not isinstance(error.value, FatalLLMError)
    assert len(llm.store) == 0
    assert (llm.usage.sent, llm.usage.errors) == (0, 1)
    response = asked(llm, lambda llm: llm.ask(prompt))  # the next one is asked anew, not served from the failure
    assert met(server, llm, prompt) == [fault, "ok"]
    assert response.text


def test_no_answer_in_time_is_an_error_and_never_stored(server: Loopback) -> None:
    llm, prompt = client(server, timeout=0.2, max_retries=1), "silence <hang hang>"
    with pytest.raises(LLMError, match=r"did not answer in time .* raise llm\.timeout"):
        asked(llm, lambda llm: llm.ask(prompt))
    assert met(server, llm, prompt) == ["hang", "hang"]
    assert len(llm.store) == 0


def test_an_answer_that_breaks_off_is_an_error_and_never_stored(server: Loopback) -> None:
    llm, prompt = client(server, max_retries=0), "broken off <half>"

    async def use(llm: LLM) -> None:
        await llm.ask("one that works")
        with pytest.raises(LLMError, match="APIConnectionError") as error:
            await llm.ask(prompt)
        assert not isinstance(error.value, FatalLLMError)
        assert len(llm.store) == 1
        await llm.ask(prompt)

    asked(llm, use)
    assert met(server, llm, prompt) == ["half", "ok"]


def test_an_answer_that_stays_empty_or_is_cut_is_an_answer_and_marked(server: Loopback) -> None:
    llm = client(server, max_retries=2)
    blank = asked(llm, lambda llm: llm.ask("say nothing <blank null blank blank>"))
    assert met(server, llm, "say nothing <blank null blank blank>") == ["blank", "null", "blank"]
    assert (blank.text, blank.finish_reason, blank.retries) == ("", "stop", 2)
    assert (llm.usage.sent, llm.usage.completion_tokens, llm.usage.retries) == (3, 21, 2)  # each was paid
    assert asked(llm, lambda llm: llm.ask("say too much <length>")).finish_reason == "length"
    assert len(llm.store) == 2


@pytest.mark.parametrize(("fault", "message"), [("401", "refused the API key"), ("404", "does not know model 'tiny'")])
def test_a_fault_that_every_call_would_meet_is_fatal_and_not_retried(
    server: Loopback, fault: str, message: str
) -> None:
    llm, prompt = client(server), f"fatal <{fault}>"
    with pytest.raises(FatalLLMError, match=message):
        asked(llm, lambda llm: llm.ask(prompt))
    assert met(server, llm, prompt) == [fault]
    assert len(llm.store) == 0


def test_nobody_there_is_fatal_and_names_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    llm = LLM("tiny", store=ResponseStore(":memory:"), base_url=base_url, max_retries=0)
    with pytest.raises(FatalLLMError, match=f"nobody answers at {base_url}"):
        asked(llm, lambda llm: llm.ask("hello?"))


def test_identical_requests_in_flight_are_sent_once(server: Loopback) -> None:
    llm, prompt = client(server), "the same question"

    async def use(llm: LLM) -> list[Response]:
        return await asyncio.gather(*(llm.ask(prompt) for _ in range(20)), llm.ask("another question"))

    *same, other = asked(llm, use)
    assert met(server, llm, prompt) == ["ok"]
    assert set(same) == {same[0]} != {other}
    assert (llm.usage.sent, llm.usage.stored) == (2, 19)


def test_identical_requests_in_flight_fail_together_and_are_sent_once(server: Loopback) -> None:
    llm, prompt = client(server, max_retries=0), "the same failure <500>"

    async def use(llm: LLM) -> list[Response | BaseException]:
        return await asyncio.gather(*(llm.ask(prompt) for _ in range(5)), return_exceptions=True)

    assert [type(error) for error in asked(llm, use)] == [LLMError] * 5
    assert met(server, llm, prompt) == ["500"]


def test_one_who_gives_up_does_not_take_the_answer_from_the_others(server: Loopback) -> None:
    llm, prompt = client(server), "asked by two"

    async def use(llm: LLM) -> Response:
        first = asyncio.create_task(llm.ask(prompt))
        second, third = asyncio.create_task(llm.ask(prompt)), asyncio.create_task(llm.ask(prompt))
        await asyncio.sleep(0)
        third.cancel()
        assert await first == await second
        with pytest.raises(asyncio.CancelledError):
            await third
        return await second

    assert asked(llm, use).text
    assert met(server, llm, prompt) == ["ok"]


def test_a_stored_response_costs_no_call(server: Loopback, tmp_path: Path) -> None:
    first = client(server, ResponseStore(tmp_path / "store.sqlite"))
    response = asked(first, lambda llm: llm.ask("asked before"))
    second = client(server, ResponseStore(tmp_path / "store.sqlite"), price=Price(1.0, 1.0), max_cost=1.0)
    assert asked(second, lambda llm: llm.ask("asked before")) == response
    assert met(server, second, "asked before") == ["ok"]
    assert (second.usage.sent, second.usage.stored, second.usage.prompt_tokens) == (0, 1, 0)


def test_another_repeat_is_another_request_with_another_seed(server: Loopback) -> None:
    llm, prompt = client(server), "once more"

    async def use(llm: LLM) -> list[Response]:
        return [await llm.ask(prompt, repeat=repeat) for repeat in (0, 1, 0, 1)]

    answers = asked(llm, use)
    assert answers[:2] == answers[2:]
    assert answers[0] != answers[1]
    assert met(server, llm, prompt) == met(server, llm, prompt, repeat=1) == ["ok"]
    assert sorted(request["repeat"] for _, request, _ in llm.store.rows()) == [0, 1]


def test_without_a_seed_none_is_sent_and_repeats_are_still_apart(server: Loopback) -> None:
    llm, prompt = client(server, seed=None), "once more without a seed"

    async def use(llm: LLM) -> None:
        for repeat in (0, 1, 1):
            await llm.ask(prompt, repeat=repeat)

    asked(llm, use)
    assert met(server, llm, prompt) == ["ok", "ok"]
    assert len(llm.store) == 2


def test_the_served_name_is_sent_and_the_model_kept_in_the_key(server: Loopback) -> None:
    llm, prompt = client(server, served_as="tiny-q4.gguf"), "by another name"
    asked(llm, lambda llm: llm.ask(prompt))
    assert met(server, llm, prompt) == []
    body = {name: value for name, value in llm.request(prompt).items() if name != "repeat"} | {"model": "tiny-q4.gguf"}
    assert body_hash(body) in {seen.hash for seen in server.seen()}
    assert [request["model"] for _, request, _ in llm.store.rows()] == ["tiny"]


def test_the_spending_limit_stops_before_the_next_call(server: Loopback) -> None:
    # 100 words of 4 letters and a space: 125 prompt tokens and 7 completion tokens, 132 dollars at a dollar a token
    prompts = [f"{number:04d} " * 100 for number in range(4)]
    llm = client(server, price=Price(1e6, 1e6), max_cost=200.0)

    async def use(llm: LLM) -> None:
        await llm.ask(prompts[0])
        await llm.ask(prompts[1])
        with pytest.raises(SpendingLimitError, match=r"264\.0000 of max_cost=200\.0 dollars"):
            await llm.ask(prompts[2])
        await llm.ask(prompts[0])  # what is stored is free

    asked(llm, use)
    assert [len(met(server, llm, prompt)) for prompt in prompts] == [1, 1, 0, 0]


def test_no_more_calls_than_concurrency_are_open_at_once(tmp_path: Path) -> None:
    # The server answers only when 3 requests are open, and late, so fewer would never end and more would be seen by it.
    with Loopback(tmp_path / "requests.log", together=3, delay=0.1) as server:

        async def use(llm: LLM) -> None:
            await asyncio.gather(*(llm.ask(f"question {number}") for number in range(21)))

        asked(client(server, concurrency=3, max_retries=0), use)
        seen: list[Seen] = server.seen()
    assert len(seen) == 21
    assert max(request.simultaneous for request in seen) == 3


def test_leaving_the_client_closes_its_connections_while_its_event_loop_runs(tmp_path: Path) -> None:
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> None:
            async with client(server) as llm:
                await asyncio.gather(*(llm.ask(f"question {number}") for number in range(8)))
            await asyncio.to_thread(server.wait_until_left)

        asyncio.run(use())


@pytest.mark.parametrize("key", [KEY, OPENAI_KEY])
def test_the_api_key_is_sent_and_appears_nowhere(
    server: Loopback, retriever: BM25, tmp_path: Path, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server repeats the Authorization header in the body of every error, so there is something to leak.
    monkeypatch.setenv("SOME_KEY", key)
    store = str(tmp_path / "store.sqlite")
    llm = openai_compatible(
        model="tiny", base_url=server.base_url, api_key_variable="SOME_KEY", store=store, max_retries=0
    )
    questions = [Question(f"q{number}", text, ("Paris",)) for number, text in enumerate(["Paris?", f"{key[:3]} <500>"])]

    async def use(llm: LLM) -> None:
        run = await evaluate([vanilla], questions, retriever, llm, folder=tmp_path / "run", progress=False)
        assert run.info.samples == Progress(2, 2, 1)
        assert "authorization: Bearer [key]" in str(run.sample("vanilla", "q1").error)
        with pytest.raises(FatalLLMError) as error:
            await llm.ask(f"{key[:3]} <401>")
        assert key not in str(error.value)
        assert "[key]" in str(error.value)

    asked(llm, use)
    assert key not in repr(llm)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"run.json", "samples.jsonl", "store.sqlite"} <= {path.name for path in files}
    assert [path.name for path in files if key.encode() in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_cost": 1.0}, r"max_cost needs the price of 'tiny'"),
        ({"concurrency": 0}, r"llm\.concurrency must be at least 1, not 0"),
        ({"prompt_price": 1.0}, "set both"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    base: dict[str, Any] = {"base_url": "http://127.0.0.1:1/v1", "api_key_variable": "NO_SUCH_KEY", "store": ":memory:"}
    with pytest.raises(ValueError, match=message):
        openai_compatible(model="tiny", **(base | options))


def test_a_key_is_needed_where_a_model_is_asked_and_not_before() -> None:
    settings: dict[str, Any] = {"base_url": "https://api.openai.com/v1", "api_key_variable": "NO_SUCH_KEY"}
    llm = openai_compatible(model="tiny", store=":memory:", **settings)

    async def ask() -> None:
        async with llm:
            pass

    with pytest.raises(ValueError, match="set the environment variable NO_SUCH_KEY"):
        asyncio.run(ask())
