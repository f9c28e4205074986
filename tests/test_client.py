"""The LLM client against a server on loopback that fails in every way a server can."""

import asyncio
import socket
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import openai
import pytest

from rag_notes.config import build_llm, load_config
from rag_notes.llm import client as client_module
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, SpendingLimitError
from rag_notes.llm.completion import read_body, read_completion
from rag_notes.llm.store import Response, ResponseStore, StoreError, request_key
from rag_notes.parts import ConfigError
from tests.loopback import Loopback, body_hash
from tests.scripted import asked

NO_ANSWER = ["garbage", "halfjson", "stranger", "nochoice", "badtext", "uncut", "abort"]
PASSING = ["429", "500", "503", "busy", "reset", "half", "ssh", *NO_ANSWER]
KEY = "hunter2-correct-horse-battery"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai._base_client, "INITIAL_RETRY_DELAY", 0.001)
    monkeypatch.setattr(client_module, "PAUSE", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log") as running:
        yield running


def client(server: Loopback, **options: Any) -> LLM:
    settings: dict[str, Any] = {"store": ResponseStore(":memory:"), "base_url": server.base_url, "timeout": 30.0}
    return LLM("tiny", **settings | options)


def ask(llm: LLM, prompt: str, **options: Any) -> Response:
    return asked(llm, lambda llm: llm.ask(prompt, **options))


def met(server: Loopback, llm: LLM, prompt: str, repeat: int = 0) -> list[str]:
    """What the requests for one prompt met, in order."""
    sampling = {name: value for name, value in llm.sampling.items() if value is not None}
    body = {"model": "tiny", "messages": [{"role": "user", "content": prompt}], **sampling}
    if repeat:
        body["seed"] += repeat
    return [seen.met for seen in server.seen() if seen.hash == body_hash(body)]


def test_an_answer_is_read_counted_and_stored(server: Loopback) -> None:
    llm = client(server)
    response = ask(llm, "What is the capital of France?")
    assert met(server, llm, "What is the capital of France?") == ["ok"]  # and so nothing is sent that is not set
    assert (response.finish_reason, response.prompt_tokens, response.completion_tokens) == ("stop", 7, 7)
    assert (response.endpoint, response.served_as) == (server.base_url[7:-3], "tiny")
    assert (llm.usage.sent, llm.usage.stored, llm.usage.prompt_tokens, llm.usage.completion_tokens) == (1, 0, 7, 7)
    ((_, request, stored),) = llm.store.rows()
    assert stored == response == ask(llm, "What is the capital of France?")
    assert request == llm.request("What is the capital of France?")
    assert (llm.usage.sent, llm.usage.stored) == (1, 1)


@pytest.mark.parametrize("fault", PASSING)
def test_what_may_pass_is_tried_again_and_an_error_that_lasts_is_never_stored(server: Loopback, fault: str) -> None:
    llm, prompt = client(server, max_retries=2), f"passing <{fault} {fault}>"
    response = ask(llm, prompt)
    assert met(server, llm, prompt) == [fault, fault, "ok"]
    assert response.retries == 2
    llm, prompt = client(server, max_retries=2), f"lasting <{' '.join([fault] * 4)}>"
    with pytest.raises(LLMError, match=f"^{server.base_url}: ") as error:
        ask(llm, prompt)
    assert not isinstance(error.value, FatalLLMError)
    assert met(server, llm, prompt) == [fault] * 3
    assert (len(llm.store), llm.usage.sent) == (0, 0)


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        ("401", FatalLLMError, "refused the API key .*environment variable"),
        ("nokey", FatalLLMError, "refused the API key"),
        ("404", FatalLLMError, r"check llm\.model=tiny"),
        ("quota quota", FatalLLMError, "no credit .*same command continues"),
        ("credit", FatalLLMError, "Insufficient Balance"),
        ("error", FatalLLMError, "no credit .*not for you"),
        ("later", FatalLLMError, "asks to wait 3600 s; the same command continues"),
        ("400", FatalLLMError, "gives no log-probabilities"),
        ("both", FatalLLMError, r"refuses llm\.temperature .*set llm\.temperature=null"),
        ("new", FatalLLMError, r"set llm\.max_tokens=null and llm\.max_completion_tokens instead$"),
        ("detail", FatalLLMError, r"refuses llm\.seed .*set llm\.seed=null"),
        ("moderated", LLMError, "status 403: Your input was flagged"),
        ("listed", LLMError, "max_tokens is too large"),
        ("filter", LLMError, "content filter withheld the answer"),
    ],
)
def test_a_refusal_is_not_retried_and_says_what_to_do(
    server: Loopback, fault: str, kind: type[LLMError], message: str
) -> None:
    llm, prompt = client(server, max_retries=1), f"refused <{fault}>"
    with pytest.raises(LLMError, match=message) as error:
        ask(llm, prompt)
    assert type(error.value) is kind
    assert met(server, llm, prompt) == fault.split()
    assert len(llm.store) == 0


@pytest.mark.parametrize(("first", "message"), [("first <401>", "refused the API key"), ("paid", "the disk is full")])
def test_a_fatal_error_ends_all_further_calls_until_the_llm_is_entered_again(
    server: Loopback, monkeypatch: pytest.MonkeyPatch, first: str, message: str
) -> None:
    llm, second = client(server), f"after {message}"

    async def use(llm: LLM) -> None:
        for prompt in (first, second):
            with pytest.raises(FatalLLMError, match=message):
                await llm.ask(prompt)

    with monkeypatch.context() as patched:
        patched.setattr(llm.store, "put", Mock(side_effect=StoreError("there: the disk is full")))
        asked(llm, use)
    assert (len(met(server, llm, first)), met(server, llm, second)) == (1, [])
    assert ask(llm, second).text


def test_one_refusal_costs_one_question_and_the_same_for_all_the_run(server: Loopback) -> None:
    async def use(llm: LLM) -> list[type]:
        prompts = [f"{number} <moderated moderated>" for number in range(6)]
        return [type((await asyncio.gather(llm.ask(prompt), return_exceptions=True))[0]) for prompt in prompts]

    llm = client(server)
    assert asked(llm, use) == [LLMError] * 4 + [FatalLLMError] * 2
    ask(llm, "one that is answered")
    assert asked(llm, use) == [LLMError] * 6


def test_no_answer_in_time_is_an_error_and_nobody_there_is_fatal(server: Loopback) -> None:
    llm, prompt = client(server, timeout=0.2, max_retries=1), "silence <hang hang>"
    with pytest.raises(LLMError, match=r"did not answer in time; raise llm\.timeout"):
        ask(llm, prompt)
    assert met(server, llm, prompt) == ["hang", "hang"]
    with socket.create_server(("127.0.0.1", 0)) as unused:
        base_url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    llm = LLM("tiny", store=ResponseStore(":memory:"), base_url=base_url, max_retries=0)
    with pytest.raises(FatalLLMError, match=f"{base_url}: nobody answers .*same command continues"):
        ask(llm, "hello?")


def test_an_answer_that_stays_empty_is_kept_and_every_one_is_paid(server: Loopback) -> None:
    llm = client(server, max_retries=2, prompt_price=0.0, completion_price=1e6)
    blank = ask(llm, "say nothing <blank null blank blank>")
    assert met(server, llm, "say nothing <blank null blank blank>") == ["blank", "null", "blank"]
    assert (blank.text, blank.finish_reason, blank.retries) == ("", "stop", 2)
    assert (llm.usage.sent, llm.usage.completion_tokens, llm.usage.cost) == (3, 21, 21.0)
    assert [ask(llm, f"too much <{fault}>").finish_reason for fault in ("length", "cut")] == ["length", "length"]


@pytest.mark.parametrize("fault", ["uncut", "badtext", "filter", "abort"])
def test_an_answer_that_cannot_be_used_is_paid_too(server: Loopback, fault: str) -> None:
    llm = client(server, max_retries=5, prompt_price=0.0, completion_price=1e6, max_cost=14.0)
    with pytest.raises(LLMError) as error:
        ask(llm, f"paid <{' '.join([fault] * 6)}>")
    assert llm.usage.cost == (7.0 if fault == "filter" else 14.0)
    assert isinstance(error.value, SpendingLimitError) == (fault != "filter")


def test_usage_is_rounded_up_and_where_there_is_none_a_limit_ends_the_run(server: Loopback) -> None:
    assert ask(client(server), "fractions <fraction>").prompt_tokens == 7
    llm = client(server, prompt_price=1.0, completion_price=1.0, max_cost=1.0)

    async def use(llm: LLM) -> None:
        with pytest.warns(RuntimeWarning, match="reports no token usage"):
            assert (await llm.ask("no usage <nousage>")).completion_tokens == 0
        with pytest.raises(SpendingLimitError, match="no token usage is reported"):
            await llm.ask("another")

    asked(llm, use)


def test_identical_requests_in_flight_are_sent_once_and_fail_together(server: Loopback) -> None:
    llm = client(server, max_retries=0)

    async def use(llm: LLM) -> list[Any]:
        prompts = ["same"] * 5 + ["other"] + ["bad <500>"] * 3
        return await asyncio.gather(*map(llm.ask, prompts), return_exceptions=True)

    answers = asked(llm, use)
    assert len(set(answers[:5])) == 1
    assert answers[5] != answers[0]
    assert [type(error) for error in answers[6:]] == [LLMError] * 3
    assert [met(server, llm, prompt) for prompt in ("same", "other", "bad <500>")] == [["ok"], ["ok"], ["500"]]
    assert (llm.usage.sent, llm.usage.stored) == (2, 6)


def test_one_who_gives_up_does_not_take_the_answer_from_the_others(server: Loopback) -> None:
    async def use(llm: LLM) -> Response:
        first, second = (asyncio.create_task(llm.ask("asked by two")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        return await second

    llm = client(server)
    assert asked(llm, use).text
    assert met(server, llm, "asked by two") == ["ok"]


def test_another_repeat_is_another_request_with_another_seed(server: Loopback) -> None:
    for seed, requests in ((42, [["ok"], ["ok"]]), (None, [["ok", "ok"], ["ok", "ok"]])):
        llm, prompt = client(server, seed=seed), f"once more, {seed}"

        async def use(llm: LLM, prompt: str = prompt) -> list[Response]:
            return [await llm.ask(prompt, repeat=repeat) for repeat in (0, 1, 0, 1)]

        answers = asked(llm, use)
        assert answers[:2] == answers[2:]
        assert [met(server, llm, prompt, repeat if seed else 0) for repeat in (0, 1)] == requests
        assert sorted(request["repeat"] for _, request, _ in llm.store.rows()) == [0, 1]


def test_no_more_calls_than_concurrency_are_open_at_once_and_all_are_closed(tmp_path: Path) -> None:
    # The server answers only when 3 requests are open, and late, so fewer would never end and more would be seen by it.
    with Loopback(tmp_path / "requests.log", together=3, delay=0.1) as server:

        async def use(llm: LLM) -> None:
            await asyncio.gather(*(llm.ask(f"question {number}") for number in range(21)))

        asked(client(server, concurrency=3, max_retries=0), use)
        server.wait_until_left()
        seen = server.seen()
    assert (len(seen), max(request.simultaneous for request in seen)) == (21, 3)


def test_the_api_key_is_sent_and_appears_nowhere(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server repeats the Authorization header in the body of every error, so there is something to leak.
    for key in (KEY, "sk-proj-abcDEF123456_7890"):
        monkeypatch.setenv("SOME_KEY", f"{key}\n")  # as `echo KEY > file` leaves it
        llm = client(server, store=str(tmp_path / "s.sqlite"), api_key_variable="SOME_KEY", max_retries=0)
        for fault in ("500", "401"):
            with pytest.raises(LLMError, match=r"(?i)authorization: Bearer \[key\]") as error:
                ask(llm, f"{key[:3]} <{fault}>")
            assert key not in str(error.value)
        ask(llm, key[:3])
        assert key not in repr(llm)
        assert not any(key.encode() in path.read_bytes() for path in tmp_path.iterdir())
    monkeypatch.setenv("SOME_KEY", "schlüssel")
    for more in ({"api_key_variable": "SOME_KEY"}, {"base_url": "https://api.openai.com/v1"}):
        with pytest.raises(ValueError, match=r"set the environment variable (SOME|OPENAI_API)_KEY"):
            ask(client(server, **more), "hello")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_cost": 1.0}, r"max_cost needs the price of 'tiny'"),
        ({"prompt_price": 1.0}, "set both"),
        ({"extra_body": {"seed": 1}}, r"llm\.extra_body\.seed"),
        ({"extra_body": {"stream": True}}, r"llm\.extra_body\.stream"),
        ({"base_url": "http://me:secret@127.0.0.1:8000/v1"}, "without user or password"),
        ({"base_url": "127.0.0.1:8000/v1"}, "expected for example http://127.0.0.1:8000/v1"),
        ({"base_url": "http://localhost:port/v1"}, "expected for example"),
    ],
)
def test_settings_that_cannot_work_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        LLM("tiny", **{"store": ":memory:", **options})
    assert "secret" not in str(error.value)


# What an endpoint may answer


def completion(content: Any, **changes: Any) -> dict[str, Any]:
    choice = {"message": {"content": content}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 20}
    return {"choices": [choice | changes.pop("choice", {})], "usage": usage | changes.pop("usage", {}), **changes}


def test_refusals_thoughts_and_parts_are_told_apart_from_the_answer(server: Loopback) -> None:
    llm = client(server)
    refused = ask(llm, "something bad <refusal>")
    assert (refused.text, refused.finish_reason) == ("I cannot help with that.", "refusal")
    thought = ask(llm, "think about it <think>", logprobs=True)
    assert thought.reasoning == "Let me see."
    assert thought.logprobs is not None
    assert "".join(token for token, _ in thought.logprobs) == thought.text
    cut = ask(llm, "think long <thinking>")
    assert (cut.text, cut.reasoning, cut.finish_reason, cut.retries) == ("", "Let me", "length", 0)
    beside = ask(llm, "think aside <reasoned>")
    assert (beside.reasoning, beside.reasoning_tokens, beside.completion_tokens) == ("Let me see.", 5, 7)
    parts, bracket = ask(llm, "in parts <parts>"), ask(llm, "in brackets <bracket>")
    assert [(answer.text, answer.reasoning) for answer in (parts, bracket)] == [
        ("Paris", "Hm."),
        ("Paris", "Let me see."),
    ]


@pytest.mark.parametrize(
    ("text", "usage", "expected"),
    [
        ("I see.\n</think>\n\nParis", {}, {"text": "Paris", "reasoning": "I see."}),  # the template wrote its beginning
        ("The tag <think> ends with </think>.", {}, {"text": "The tag <think> ends with </think>.", "reasoning": None}),
        ("Yes", {"total_tokens": 30}, {"completion_tokens": 20, "reasoning_tokens": 15}),  # 10 + 20, as OpenAI counts
        ("Yes", {"total_tokens": 45}, {"completion_tokens": 35, "reasoning_tokens": 15}),  # 10 + 20 + 15, as others do
    ],
)
def test_reasoning_is_told_apart_and_paid(text: str, usage: dict[str, int], expected: dict[str, Any]) -> None:
    response = read_completion(completion(text, usage={"completion_tokens_details": {"reasoning_tokens": 15}, **usage}))
    assert asdict(response).items() >= expected.items()


@pytest.mark.parametrize("fault", ["nan", "few"])
def test_log_probabilities_that_are_none_of_the_answer_are_asked_again_and_never_stored(
    server: Loopback, fault: str
) -> None:
    llm = client(server, max_retries=1)
    response = ask(llm, f"words <{fault} sure>", logprobs=True)
    assert response.retries == 1
    assert response.logprobs is not None
    assert "".join(token for token, _ in response.logprobs) == response.text
    with pytest.raises(LLMError, match="log-probabilit"):
        ask(client(server, max_retries=0), f"other words <{fault}>", logprobs=True)


def test_tokens_are_spelled_by_their_bytes() -> None:
    halves = [{"token": f"bytes:{n}", "bytes": list("😀".encode()[n : n + 2]), "logprob": -0.5} for n in (0, 2)]
    tokens = [*halves, {"token": " fine", "bytes": None, "logprob": -1}]
    read = read_completion(completion("😀 fine", choice={"logprobs": {"content": tokens}}))
    assert read.logprobs == (("", -0.5), ("😀", -0.5), (" fine", -1.0))


def test_texts_of_a_server_are_made_fit_for_files_and_terminals(server: Loopback) -> None:
    with pytest.raises(LLMError) as error:
        ask(client(server, max_retries=0), "colour <escape>")
    text = str(error.value)
    assert text.isprintable()
    assert "red" in text
    assert len(text) <= 500
    llm = client(server)
    assert llm.request("prompt \ud800")["messages"] == [{"role": "user", "content": "prompt \ufffd"}]
    body = read_body(b'{"a": ["\\ud83d\\ude00 \\uD800", {"b": 1}]}')
    assert body == {"a": ["😀 \ufffd", {"b": 1}]}


def test_another_model_or_server_that_answers_is_told(server: Loopback, tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite")
    with pytest.warns(RuntimeWarning, match=r"was asked for tiny and /models/other\.gguf answered"):
        assert ask(client(server, store=store), "two <alias>").model == "/models/other.gguf"
    with pytest.warns(RuntimeWarning, match=r":9/v1: is not where the stored answers .*:\d+; another llm\.model"):
        assert ask(client(server, store=store, base_url="http://127.0.0.1:9/v1"), "two <alias>").text
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(client(server, store=store), "two <alias>").text  # the same server
        assert ask(LLM("tiny", store=store), "two <alias>").text  # none, nothing to compare
        assert ask(client(server, served_as="tiny-2024-07-18"), "dated").model == "tiny-2024-07-18"


# What may be sent


def test_reasoning_models_get_what_they_take(server: Loopback) -> None:
    unset: dict[str, Any] = dict.fromkeys(["temperature", "top_p", "max_tokens", "seed"])
    further = {"max_completion_tokens": 4000, "reasoning_effort": "low", "extra_body": {"thinking": {"on": False}}}
    llm = client(server, **unset, **further, system="Be brief.", served_as="tiny-q4")
    response, request = ask(llm, "Who built the bridge?"), llm.request("Who built the bridge?")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who built the bridge?"}]
    assert request == {"model": "tiny", "messages": messages, **unset, **further, "logprobs": False, "repeat": 0}
    assert llm.store.get(request_key(request)) == response
    sent = {"model": "tiny-q4", "messages": messages, "max_completion_tokens": 4000, "reasoning_effort": "low"}
    assert body_hash(sent | {"thinking": {"on": False}}) == server.seen()[-1].hash


def test_keys_are_what_they_always_were() -> None:
    llm = LLM("m", recordings=[], max_tokens=512)
    settings = {"temperature": 0.1, "top_p": 0.9, "seed": 42, "max_tokens": 512}
    messages = [{"role": "user", "content": "Why?"}]
    request = {"model": "m", "messages": messages, **settings, "logprobs": True, "repeat": 2, "stop": ["\n"]}
    assert llm.request("Why?", stop=["\n"], logprobs=True, repeat=2) == request
    key = "de14bd871627b928d6ba50ad433229e78e28b23941f42e13f278e3aafc81a519"  # as before there were any others
    assert request_key(llm.request("Why?")) == key


@pytest.mark.parametrize("source", ["openai", "recorded", "local"])
def test_every_source_takes_the_same_settings_by_the_same_names(source: str, tmp_path: Path) -> None:
    options = [f"llm={source}", "llm.temperature=null", "llm.max_completion_tokens=99", "llm.extra_body={top_k: 5}"]
    options.append("llm.recordings=[]" if source == "recorded" else f"llm.store={tmp_path / 's.sqlite'}")
    llm = build_llm(load_config(options))
    assert (
        llm.sampling.items() >= {"temperature": None, "max_completion_tokens": 99, "extra_body": {"top_k": 5}}.items()
    )
    with pytest.raises(ConfigError, match=r"llm\.max_tokens: Input should be a valid integer"):
        load_config([f"llm={source}", "llm.max_tokens=many"])
