"""Another LLM for single stages, and what a request may carry: stop strings and log-probabilities."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rag_notes.running.run_files import load_run

from rag_notes.config import ConfigError, build_llm, load_config
from rag_notes.llm.client import LLM, FatalLLMError, Price, SpendingLimitError
from rag_notes.llm.store import Response, ResponseStore, request_key
from rag_notes.methods.flare import flare
from rag_notes.methods.rag import Rag
from rag_notes.methods.self_rag import relevant
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.running.samples import RecordError
from rag_notes.types import Question
from tests.loopback import Loopback, body_hash
from tests.scripted import Q, ScriptedLLM, ScriptedRetriever, by_stage

GRADE, ANSWER = '{"result": "2"}', "Dumfries"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log") as running:
        yield running


def client(server: Loopback, model: str = "tiny", **options: Any) -> LLM:
    settings: dict[str, Any] = {"store": ResponseStore(":memory:"), "base_url": server.base_url, "timeout": 30.0}
    return LLM(model, **settings | options)


class Stored(LLM):
    """Answers `text` to everything, through its own store; `open` says whether it is entered."""

    def __init__(self, model: str, text: str, seconds: float, **settings: Any) -> None:
        super().__init__(model, store=ResponseStore(":memory:"), base_url="http://127.0.0.1:9/v1", **settings)
        self.text, self.seconds, self.open, self.entered = text, seconds, False, 0

    async def __aenter__(self) -> "Stored":
        await super().__aenter__()
        self.open, self.entered = True, self.entered + 1
        return self

    async def __aexit__(self, *error: Any) -> None:
        await super().__aexit__(*error)
        self.open = False

    async def _send(self, request: dict[str, Any]) -> Response:
        assert self.open
        self.usage.sent += 1
        self.usage.prompt_tokens += 100
        return Response(self.text, "stop", 100, 10, seconds=self.seconds)


def pair(*, price: Price | None = None, grader_price: Price | None = None) -> tuple[Stored, Stored]:
    llm, grader = Stored("large", ANSWER, 2.0, price=price), Stored("small", GRADE, 0.25, price=grader_price)
    llm.stages = {"grade_passage": grader}
    return llm, grader


async def graded(rag: Rag, question: Question, *, top_k: int = 5) -> str:
    """Grade each passage and read the relevant ones: a method with two stages, one of them asked several times."""
    passages = await rag.search(question.question, top_k)
    return await rag.answer(await relevant(rag, question.question, passages))


def run(llm: LLM, folder: Path | None = None, method: Any = graded, question: Question = Q) -> Run:
    async def use() -> Run:
        async with llm:
            retriever = ScriptedRetriever(lambda _: "ab")
            return await evaluate([method], [question], retriever, llm, folder=folder, progress=False)

    return asyncio.run(use())


# Another LLM for single stages


def test_a_stage_s_llm_answers_that_stage_alone() -> None:
    log: list[str] = []
    llm = ScriptedLLM(by_stage(answer_short=ANSWER), log)
    grader = ScriptedLLM(by_stage(grade_passage=GRADE), log)
    llm.stages = {"grade_passage": grader}
    assert llm.of("grade_passage") is grader
    assert llm.of("answer_short") is llm.of("") is llm
    (sample,) = run(llm).samples
    assert (sample.answer, sample.error) == (ANSWER, None)
    assert log == ["grade_passage", "grade_passage", "answer_short"]
    assert ([ask.stage for ask in grader.asks], [ask.stage for ask in llm.asks]) == (log[:2], log[2:])
    keys = {event.key for event in sample.trace if event.event == "ask"}
    assert keys == {key for model in (llm, grader) for key, _, _ in model.store.rows()}


def test_it_is_entered_and_left_with_the_main_one_and_shares_its_usage() -> None:
    llm, grader = pair()
    run(llm)
    assert (grader.entered, grader.open, llm.open) == (1, False, False)
    assert grader.usage is llm.usage
    assert (llm.usage.sent, llm.usage.prompt_tokens) == (3, 300)

    async def broken() -> None:
        async with llm:
            assert grader.open
            raise KeyError

    with pytest.raises(KeyError):
        asyncio.run(broken())
    assert not grader.open


def test_the_answer_costs_what_each_stage_s_own_price_says() -> None:
    llm, _ = pair(price=Price(1000.0, 2000.0), grader_price=Price(10.0, 20.0))
    (sample,) = run(llm).samples
    # dollars: the answer 100 * 1000 + 10 * 2000, two grades of 100 * 10 + 10 * 20 each, by the million tokens
    assert sample.metrics["cost"] == pytest.approx(0.12 + 2 * 0.0012)
    for price, grader_price in ((None, Price(1.0, 1.0)), (Price(1.0, 1.0), None)):
        assert "cost" not in run(pair(price=price, grader_price=grader_price)[0]).samples[0].metrics


def test_seconds_come_from_each_stage_s_own_store() -> None:
    llm, grader = pair()
    assert run(llm).info.seconds == {"graded": {"q1": 2.0 + 2 * 0.25}}
    assert (len(llm.store), len(grader.store)) == (1, 2)


def test_it_is_in_the_settings_of_the_run_and_another_one_is_another_run(tmp_path: Path) -> None:
    llm, grader = pair()
    run(llm, tmp_path)
    settings = load_run(tmp_path).info.llm
    assert settings == {"model": "large", **llm.sampling} | {
        "stages": {"grade_passage": {"model": "small", **grader.sampling}}
    }
    run(pair()[0], tmp_path)
    for stages in ({}, {"grade_passage": Stored("medium", GRADE, 1.0)}, {"answer_short": grader}):
        other = Stored("large", ANSWER, 1.0)
        other.stages = dict(stages)
        with pytest.raises(RecordError, match=r"other llm"):
            run(other, tmp_path)


def test_calls_of_both_count_towards_the_spending_limit(server: Loopback) -> None:
    # 100 words of 4 letters and a space are 125 prompt tokens; each answer has 7: 132 dollars at a dollar a token
    prompts = [f"{number:04d} " * 100 for number in range(3)]
    dollar = Price(1e6, 1e6)
    llm = client(server, price=dollar, max_cost=200.0)
    llm.stages = {"part": client(server, "other", price=dollar, max_cost=200.0)}

    async def use() -> None:
        async with llm:
            await llm.of("part").ask(prompts[0])
            await llm.ask(prompts[1])
            for model in (llm, llm.of("part")):
                with pytest.raises(SpendingLimitError, match=r"264\.0000 of max_cost=200\.0 dollars"):
                    await model.ask(prompts[2])

    asyncio.run(use())
    assert llm.usage.cost == pytest.approx(264.0)
    assert (llm.usage.sent, llm.usage.prompt_tokens, llm.usage.completion_tokens) == (2, 250, 14)


def test_an_error_of_a_stage_s_llm_names_the_stage() -> None:
    llm, _ = pair()
    llm.stages = {"grade_passage": LLM("small", store=ResponseStore(":memory:"))}
    (sample,) = run(llm).samples
    assert str(sample.error).startswith("stage grade_passage of graded on q1: no recorded response")


# Configured


def configured(tmp_path: Path, *options: str) -> LLM:
    local = [
        "llm=openai",
        "llm.base_url=http://127.0.0.1:9/v1",
        "llm.model=large",
        f"llm.store={tmp_path / 's.sqlite'}",
    ]
    return build_llm(load_config([*local, *options]))


def test_a_stage_is_named_in_the_options_and_has_the_other_settings_of_the_main_one(tmp_path: Path) -> None:
    options = [
        "llm.seed=7",
        "+stages.amber_chunk_filter.model=gpt-4o-mini",
        "+stages.amber_chunk_filter.temperature=0.0",
    ]
    llm = configured(tmp_path, *options)
    assert list(llm.stages) == ["amber_chunk_filter"]
    other = llm.of("amber_chunk_filter")
    assert (llm.model, other.model) == ("large", "gpt-4o-mini")
    assert other.sampling == llm.sampling | {"temperature": 0.0}
    assert (other.base_url, other.store.path, other.sampling["seed"]) == (llm.base_url, llm.store.path, 7)
    assert (llm.price, other.price) == (None, Price(0.15, 0.60))  # its own, from the table
    assert configured(tmp_path).stages == {}


def test_another_model_of_a_stage_has_neither_the_served_name_nor_the_prices_of_the_main_one(
    server: Loopback, tmp_path: Path
) -> None:
    main = [f"llm.base_url={server.base_url}", "llm.served_as=served", "llm.prompt_price=7", "llm.completion_price=9"]
    stages = [
        "+stages.note_judge.model=gpt-4o-mini",
        "+stages.note_init.temperature=0.0",
        "+stages.note_query.model=small",
        "+stages.note_query.served_as=name",
    ]
    before = len(server.seen())
    llm = configured(tmp_path, *main, *stages)

    async def ask() -> None:
        async with llm:
            for stage in ("answer_short", "note_judge", "note_init", "note_query"):
                await llm.of(stage).ask("Where?")

    asyncio.run(ask())
    body = {"messages": [{"role": "user", "content": "Where?"}], **llm.sampling}
    sent = [
        body | {"model": "served"},
        body | {"model": "gpt-4o-mini"},
        body | {"model": "served", "temperature": 0.0},
        body | {"model": "name"},
    ]
    assert [seen.hash for seen in server.seen()[before:]] == [body_hash(each) for each in sent]
    own = Price(7, 9)
    prices = [llm.of(stage).price for stage in ("answer_short", "note_judge", "note_init", "note_query")]
    assert prices == [own, Price(0.15, 0.60), own, None]


def test_a_stage_may_have_an_llm_of_another_kind(tmp_path: Path) -> None:
    ResponseStore(tmp_path / "none.sqlite").export_jsonl(tmp_path / "recording.jsonl")
    settings = (
        f"_target_: rag_notes.llm.client.LLM, model: small, recordings: [{tmp_path / 'recording.jsonl'}], "
        f"cache: {tmp_path / 'cache'}"
    )
    llm = configured(tmp_path, f"+stages.note_judge={{{settings}}}")
    other = llm.of("note_judge")
    assert (other.model, other.base_url, len(other.store)) == ("small", None, 0)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            "+stages.amber_chunk_filtr.model=x",
            "stages.amber_chunk_filtr: no such stage; did you mean amber_chunk_filter",
        ),
        ("+stages.judge.model=x", "stages.judge: no such stage; did you mean note_judge"),
        ("+stages.zzz.model=x", "stages.zzz: no such stage"),
        ("+stages.note_judge.modl=x", "stages.note_judge.modl: no such option; did you mean model"),
        ("+stages.note_judge.temperature=hot", "stages.note_judge.temperature: Input should be a valid number"),
        ("+stages.note_judge={_target_: rag_notes.llm.client.nobody}", "stages.note_judge._target_: "),
    ],
)
def test_a_stage_that_cannot_be_is_refused_with_what_would_do(option: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        configured(tmp_path, option)
    assert message in str(refused.value)


# What a request may carry


def test_stop_strings_and_log_probabilities_change_the_key_and_reach_the_server(server: Loopback) -> None:
    llm = client(server)
    variants: list[dict[str, Any]] = [
        {},
        {"stop": ["Observation"]},
        {"stop": ["Observation", "\n"]},
        {"logprobs": True},
    ]
    before = len(server.seen())

    async def use() -> None:
        async with llm:
            for variant in [*variants, *variants]:
                await llm.ask("Where?", **variant)

    asyncio.run(use())
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Where?"}], **llm.sampling}
    assert [seen.hash for seen in server.seen()[before:]] == [body_hash(body | variant) for variant in variants]
    assert (llm.usage.sent, llm.usage.stored) == (4, 4)
    keys = [request_key(llm.request("Where?", **variant)) for variant in variants]
    assert len(set(keys)) == 4
    assert {key for key, _, _ in llm.store.rows()} == set(keys)


def test_log_probabilities_are_read_stored_and_in_the_trace(server: Loopback, tmp_path: Path) -> None:
    llm = client(server, store=ResponseStore(tmp_path / "s.sqlite"))

    async def ask() -> Response:
        async with llm:
            return await llm.ask("the bridge <sure>", logprobs=True)

    response = asyncio.run(ask())
    assert response.logprobs
    assert "".join(token for token, _ in response.logprobs) == response.text
    assert {logprob for _, logprob in response.logprobs} == {0.0}
    ((_, request, stored),) = ResponseStore(tmp_path / "s.sqlite").rows()
    assert (stored, request["logprobs"]) == (response, True)


NEEDED = "flare needs the log-probabilities of tokens, and the endpoint gives none for tiny; leave the method out"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("ok", NEEDED),
        ("400", "stage flare_draft: http.* gives no log-probabilities of tokens .*logprobs are not supported"),
    ],
)
def test_an_endpoint_without_log_probabilities_ends_a_run_of_flare(
    fault: str, message: str, server: Loopback, tmp_path: Path
) -> None:
    question = Question("q", f"Who built the {fault} bridge <{fault}>?", ("Telford",))
    before = len(server.seen())
    with pytest.raises(FatalLLMError, match=message):
        run(client(server), tmp_path, flare, question)
    assert [seen.met for seen in server.seen()[before:]] == [fault]  # not retried
    stopped = load_run(tmp_path)
    assert stopped.info.status.startswith("stopped: ")
    assert "log-probabilities" in stopped.info.status
    assert stopped.samples == []
