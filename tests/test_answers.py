"""What an endpoint may answer: refusals, thoughts, other models, bad log-probabilities, waits."""

import asyncio
import json
import math
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from rag_notes.config import ConfigError, build_llm, load_config
from rag_notes.llm import faults
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, PausedError, Price
from rag_notes.llm.completion import is_same_model, read_completion
from rag_notes.llm.errors import LONGEST, printable
from rag_notes.llm.sources import openai_compatible, recorded
from rag_notes.llm.store import Response, ResponseStore, request_key
from tests.loopback import Loopback


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "PAUSES", (0.001, 0.01))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log") as running:
        yield running


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """A server that refuses what reasoning models refuse."""
    with Loopback(tmp_path_factory.mktemp("strict") / "requests.log", strict=True) as running:
        yield running


def client(server: Loopback, **options: Any) -> LLM:
    settings: dict[str, Any] = {"store": ResponseStore(":memory:"), "base_url": server.base_url, "timeout": 30.0}
    return LLM("tiny", **settings | options)


def ask(llm: LLM, prompt: str, **options: Any) -> Response:
    async def run() -> Response:
        async with llm:
            return await llm.ask(prompt, **options)

    return asyncio.run(run())


def asked(server: Loopback, llm: LLM, prompt: str, **options: Any) -> tuple[Response, list[str]]:
    """The response, and what the requests for it met."""
    before = len(server.seen())
    response = ask(llm, prompt, **options)
    return response, [seen.met for seen in server.seen()[before:]]


# Answers


def test_a_refusal_is_kept_as_one_and_not_as_an_empty_answer(server: Loopback) -> None:
    llm = client(server)
    response, met = asked(server, llm, "something bad <refusal>")
    assert (response.text, response.finish_reason) == ("I cannot help with that.", "refusal")
    assert met == ["refusal"]
    assert ask(llm, "something bad <refusal>") == response


@pytest.mark.parametrize("fault", ["nan", "few"])
def test_log_probabilities_that_are_none_of_the_answer_are_asked_again_and_never_stored(
    server: Loopback, fault: str
) -> None:
    llm = client(server, max_retries=1)
    response, met = asked(server, llm, f"words <{fault} sure>", logprobs=True)
    assert met == [fault, "sure"]
    assert response.logprobs is not None
    assert "".join(token for token, _ in response.logprobs) == response.text
    with pytest.raises(LLMError, match=r"log-probabilities|NaN"):
        ask(client(server, max_retries=0), f"other words <{fault}>", logprobs=True)
    assert len(llm.store) == 1


@pytest.mark.parametrize(
    "fault", ["garbage", "halfjson", "stranger", "nochoice", "uncut", "half", "reset", "503", "busy"]
)
def test_what_may_pass_is_tried_again_and_counted(server: Loopback, fault: str) -> None:
    llm = client(server, max_retries=2)
    response, met = asked(server, llm, f"passing <{fault} {fault}>")
    assert met == [fault, fault, "ok"]
    assert response.retries == llm.usage.retries == 2
    assert (llm.usage.sent, llm.usage.errors) == (1, 0)


def test_an_empty_answer_is_asked_again_with_the_same_seed_and_every_one_is_paid(server: Loopback) -> None:
    llm = client(server, price=Price(0.0, 1e6))
    before = len(server.seen())
    response = ask(llm, "say it <blank null>")
    assert [seen.met for seen in server.seen()[before:]] == ["blank", "null", "ok"]
    assert len({seen.hash for seen in server.seen()[before:]}) == 1
    assert response.text
    assert (response.retries, response.completion_tokens) == (2, 7)
    assert (llm.usage.sent, llm.usage.completion_tokens, llm.usage.cost) == (3, 21, 21.0)


def test_a_thought_before_the_answer_is_kept_apart_from_it(server: Loopback) -> None:
    llm = client(server)
    response = ask(llm, "think about it <think>", logprobs=True)
    assert response.reasoning == "Let me see."
    assert "think>" not in response.text
    assert response.logprobs is not None
    assert "".join(token for token, _ in response.logprobs) == response.text
    cut = ask(llm, "think long <thinking>")
    assert (cut.text, cut.reasoning, cut.finish_reason, cut.retries) == ("", "Let me", "length", 0)
    beside = ask(llm, "think aside <reasoned>")
    assert (beside.reasoning, beside.reasoning_tokens, beside.completion_tokens) == ("Let me see.", 5, 7)
    assert llm.usage.reasoning_tokens == 5
    ((stored),) = [row for _, _, row in llm.store.rows() if row.reasoning_tokens]
    assert stored == beside


def completion(content: str, **usage: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": 10, "completion_tokens": 20, **usage}
    return {"choices": [{"message": {"content": content}, "finish_reason": "stop"}], "usage": counts}


def test_reasoning_tokens_are_paid_whether_or_not_the_endpoint_adds_them_up() -> None:
    details = {"completion_tokens_details": {"reasoning_tokens": 15}}
    for total, paid in ((30, 20), (45, 35)):  # 10 + 20, as OpenAI counts; 10 + 20 + 15, as others do
        read = read_completion(completion("Yes", total_tokens=total, **details), seconds=1.0, retries=0)
        assert (read.completion_tokens, read.reasoning_tokens) == (paid, 15)


def test_a_thought_whose_beginning_the_template_wrote_is_one_too() -> None:
    read = read_completion(completion("I see.\n</think>\n\nParis"), seconds=1.0, retries=0)
    assert (read.text, read.reasoning) == ("Paris", "I see.")
    read = read_completion(completion("The tag <think> ends with </think>."), seconds=1.0, retries=0)
    assert (read.text, read.reasoning) == ("The tag <think> ends with </think>.", None)


def test_half_a_surrogate_pair_is_replaced_wherever_it_enters(server: Loopback) -> None:
    body = completion("a \ud800 b") | {"model": "\udfff"}
    body["choices"][0]["logprobs"] = {"content": [{"token": "a \ud800 b", "logprob": -0.5}]}
    read = read_completion(body, seconds=1.0, retries=0)
    assert (read.text, read.logprobs, read.model) == ("a \ufffd b", (("a \ufffd b", -0.5),), "\ufffd")
    llm = client(server)
    assert ask(llm, "prompt \ud800").text
    assert llm.request("prompt \ud800")["messages"] == [{"role": "user", "content": "prompt \ufffd"}]


def test_a_server_s_text_is_cleaned_and_cut_before_it_is_repeated(server: Loopback) -> None:
    with pytest.raises(LLMError) as error:
        ask(client(server, max_retries=0), "colour <escape>")
    text = str(error.value)
    text.encode()
    assert text.isprintable()
    assert "red" in text
    assert "[31m" not in text
    assert "title" not in text
    assert len(text) < LONGEST + 100
    assert printable("a\x1b[2Jb\x9bc\u202ed\n") == "ab c d "


# Which model, which server


@pytest.mark.parametrize(
    ("wanted", "answered", "same"),
    [
        ("gpt-4o-mini", "gpt-4o-mini", True),
        ("gpt-4o-mini", "gpt-4o-mini-2024-07-18", True),
        ("gpt-4", "gpt-4-0613", True),
        ("claude-x", "claude-x-20250929", True),
        ("gpt-4o", "gpt-4o-mini", False),
        ("tiny", "/models/tiny.gguf", False),
        ("a.b", "axb", False),
    ],
)
def test_a_vendor_s_date_is_the_same_model_and_another_name_is_not(wanted: str, answered: str, same: bool) -> None:
    assert is_same_model(wanted, answered) is same


def test_another_model_that_answers_is_kept_and_told_once(server: Loopback) -> None:
    llm = client(server)

    async def use() -> list[Response]:
        async with llm:
            return [await llm.ask("one"), await llm.ask("two <alias>"), await llm.ask("three <alias>")]

    with pytest.warns(RuntimeWarning, match=r"was asked for tiny and /models/other\.gguf answered") as told:
        answers = asyncio.run(use())
    assert len(told) == 1
    assert [answer.model for answer in answers] == ["tiny", "/models/other.gguf", "/models/other.gguf"]


def test_stored_answers_of_another_server_or_name_are_used_and_told_once(server: Loopback, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first = ask(client(server, store=ResponseStore(path)), "the same")
    host = server.base_url.removeprefix("http://").removesuffix("/v1")
    assert (first.endpoint, first.served_as) == (host, "tiny")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(client(server, store=ResponseStore(path)), "the same") == first
        assert ask(LLM("tiny", store=ResponseStore(path)), "the same") == first  # no endpoint, nothing to compare
    others = ({"served_as": "tiny-q4"}, {"base_url": "http://127.0.0.1:9/v1"})
    for other in others:
        llm = client(server, store=ResponseStore(path), **other)

        async def twice(llm: LLM = llm) -> Response:
            async with llm:
                return [await llm.ask("the same") for _ in range(2)][1]

        with pytest.warns(RuntimeWarning, match=rf"stored answers of tiny from {host} \(as tiny\) are used") as told:
            assert asyncio.run(twice()) == first
        assert len(told) == 1


@pytest.mark.parametrize(
    ("base_url", "message"),
    [
        ("http://me:secret@127.0.0.1:8000/v1", r"user or password in it; they belong in an environment variable"),
        ("127.0.0.1:8000/v1", "expected for example http://127.0.0.1:8000/v1"),
        ("localhost/v1", "expected for example"),
        ("ftp://localhost/v1", "expected for example"),
        ("http:///v1", "expected for example"),
        ("http://localhost:port/v1", "expected for example"),
    ],
)
def test_an_address_that_cannot_be_is_refused_before_any_call(base_url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        openai_compatible(model="tiny", base_url=base_url, store=":memory:")
    assert "secret" not in str(error.value)


# Waits


def response_with(status: int, **headers: str) -> openai.APIStatusError:
    request = httpx2.Request("POST", "http://127.0.0.1/v1")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return openai.RateLimitError(
        "slow down", response=httpx2.Response(status, headers=named, request=request), body=None
    )


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after": "7", "retry_after_ms": "250"}, 0.25),
        ({"retry_after": "-3"}, 0.0),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "1e999"}, math.inf),
        ({"retry_after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({}, None),
    ],
)
def test_a_wait_is_read_in_every_form(headers: dict[str, str], seconds: float | None) -> None:
    failure = faults.failed_call(response_with(429, **headers), {"model": "m"}, "http://x/v1", str)
    assert (failure.passing, failure.asked) == (True, seconds)


def test_a_wait_until_a_date_is_read() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    failure = faults.failed_call(response_with(429, retry_after=later), {"model": "m"}, "http://x/v1", str)
    assert failure.asked is not None
    assert 3500 < failure.asked <= 3600
    refused = faults.failed_call(response_with(429, x_should_retry="false"), {"model": "m"}, "http://x/v1", str)
    assert not refused.passing


def test_a_wait_longer_than_allowed_ends_the_run_and_can_be_continued(server: Loopback) -> None:
    llm = client(server)
    with pytest.raises(PausedError, match=r"asks to wait 3600 s, longer than llm\.max_wait=120 .*command continues"):
        ask(llm, "later <later>")
    assert ask(llm, "later <later>").text
    with pytest.raises(FatalLLMError, match="has no credit"):
        ask(llm, "credit <quota quota>")


def test_a_server_that_is_gone_ends_the_run_after_it_has_answered(server: Loopback, tmp_path: Path) -> None:
    with Loopback(tmp_path / "requests.log") as short_lived:
        llm = client(short_lived, max_retries=1)
        ask(llm, "while it is there")
    with pytest.raises(FatalLLMError, match=r"nobody answers at .*same command continues"):
        ask(llm, "when it is gone")


# What may be asked


@pytest.mark.parametrize(
    ("setting", "others"),
    [("max_tokens", []), ("temperature", ["max_tokens"]), ("top_p", ["max_tokens", "temperature"])],
)
def test_a_refused_setting_is_named_with_what_to_set(strict: Loopback, setting: str, others: list[str]) -> None:
    llm = client(strict, **dict.fromkeys(others))
    before = len(strict.seen())
    more = r" and llm\.max_completion_tokens=1280" if setting == "max_tokens" else ""
    with pytest.raises(FatalLLMError, match=rf"refuses llm\.{setting} for 'tiny' .*set llm\.{setting}=null{more}$"):
        ask(llm, "refused")
    assert len(strict.seen()) == before + 1


def test_a_prompt_that_is_too_long_is_not_taken_for_a_refused_setting() -> None:
    error = response_with(400)
    error.message = "'max_tokens' is too large: 1280. This model's maximum context length is 4096 tokens"
    failure = faults.failed_call(error, {"model": "m", "max_tokens": 1280}, "http://x/v1", str)
    assert not isinstance(failure.error, FatalLLMError)


def test_reasoning_models_get_what_they_take(strict: Loopback) -> None:
    names = ["temperature", "top_p", "max_tokens", "seed"]
    llm = client(
        strict,
        **dict.fromkeys(names),
        max_completion_tokens=4000,
        reasoning_effort="low",
        system="Be brief.",
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    )
    response, met = asked(strict, llm, "Who built the bridge?")
    assert met == ["ok"]
    request = llm.request("Who built the bridge?")
    assert request == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who built the bridge?"}],
        **dict.fromkeys(names),
        "max_completion_tokens": 4000,
        "reasoning_effort": "low",
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
        "logprobs": False,
        "repeat": 0,
    }
    assert llm.store.get(request_key(request)) == response
    assert ask(client(strict, **dict.fromkeys(names)), "Who built it?").text


def test_without_the_new_settings_keys_are_what_they_always_were() -> None:
    llm = recorded(model="m", recordings=[], max_tokens=512)
    assert llm.request("Why?", stop=["\n"], logprobs=True, repeat=2) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Why?"}],
        "temperature": 0.1,
        "top_p": 0.9,
        "seed": 42,
        "max_tokens": 512,
        "logprobs": True,
        "repeat": 2,
        "stop": ["\n"],
    }
    key = "de14bd871627b928d6ba50ad433229e78e28b23941f42e13f278e3aafc81a519"  # as before there were any others
    assert request_key(llm.request("Why?")) == key


@pytest.mark.parametrize("name", ["model", "messages", "temperature", "stream", "seed"])
def test_a_field_that_is_a_setting_of_its_own_is_refused_in_extra_body(name: str) -> None:
    with pytest.raises(ValueError, match=rf"llm\.extra_body\.{name}"):
        LLM("m", store=ResponseStore(":memory:"), extra_body={name: 1})


@pytest.mark.parametrize("source", ["openai", "recorded"])
def test_every_source_takes_the_same_settings_by_the_same_names(source: str, tmp_path: Path) -> None:
    options = [
        f"llm={source}",
        "llm.temperature=null",
        "llm.max_completion_tokens=99",
        "llm.reasoning_effort=high",
        "llm.system=Short.",
        "llm.extra_body={top_k: 5}",
    ]
    options += [f"llm.store={tmp_path / 's.sqlite'}", "llm.base_url=http://127.0.0.1:9/v1"] * (source == "openai")
    llm = build_llm(load_config([*options, *(["llm.recordings=[]"] * (source == "recorded"))]))
    settings = {"temperature": None, "max_completion_tokens": 99, "system": "Short.", "extra_body": {"top_k": 5}}
    assert llm.sampling.items() >= settings.items()
    with pytest.raises(ConfigError, match=r"llm\.max_tokens: Input should be a valid integer"):
        load_config([f"llm={source}", "llm.max_tokens=many"])
    with pytest.raises(ConfigError, match=r"llm\.temprature: no such option"):
        load_config([f"llm={source}", "+llm.temprature=0.5"])


def test_nothing_of_a_response_is_lost_on_its_way_through_a_recording(tmp_path: Path) -> None:
    store = ResponseStore(":memory:")
    full = Response("Yes", "stop", 5, 9, 1.5, 2, (("Yes", -0.25),), "Hm.", 8, "m-2024-07-18", "m", "127.0.0.1:8000")
    store.put({"model": "m"}, full)
    store.export_jsonl(tmp_path / "r.jsonl")
    assert json.loads((tmp_path / "r.jsonl").read_bytes())["response"]["served_as"] == "m"
    other = ResponseStore(":memory:")
    other.import_jsonl(tmp_path / "r.jsonl")
    assert [row[2] for row in other.rows()] == [full]
