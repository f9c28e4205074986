"""The handle of a method: its trace, samples that vote, stages with a model of their own, and log-probabilities."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import build_llm, load_config
from rag_notes.llm.client import LLM, FatalLLMError, SpendingLimitError
from rag_notes.llm.completion import Price
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.flare import flare
from rag_notes.methods.rag import Rag
from rag_notes.methods.self_rag import relevant
from rag_notes.methods.vanilla import vanilla
from rag_notes.parts import ConfigError
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run, load_run
from rag_notes.running.samples import RecordError
from rag_notes.types import Dataset, Question
from tests.loopback import Loopback, body_hash
from tests.scripted import YES, Q, ScriptedRetriever, asked, play

GRADE, ANSWER = '{"result": "2"}', "Dumfries"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log") as running:
        yield running


def client(server: Loopback, model: str = "tiny", **options: Any) -> LLM:
    settings: dict[str, Any] = {"store": ResponseStore(":memory:"), "base_url": server.base_url, "timeout": 30.0}
    return LLM(model, **settings | options)


# Samples


@pytest.mark.parametrize(
    ("answers", "chosen"),  # normalised two are the same; all are equally frequent, so the first; and so of two
    [("Bath|Dumfries.|the Dumfries", "Dumfries."), ("Bath|York", "Bath"), ("Bath|York|Ayr|York|Ayr", "York")],
)
def test_most_samples_decide(answers: str, chosen: str) -> None:
    samples = answers.split("|")
    played = play(vanilla, lambda ask: samples[ask.repeat], samples=len(samples))
    assert played.answer == chosen
    assert [ask.repeat for ask in played.llm.asks] == list(range(len(samples)))
    assert len({ask.prompt for ask in played.llm.asks}) == len(played.searches) == 1
    assert [event.event for event in played.trace] == ["search", *["ask"] * len(samples), "decision"]


def test_no_repeat_shares_a_sample_with_another_and_one_sample_is_the_method_itself() -> None:
    plays = [play(vanilla, lambda _: "A", repeat=repeat, samples=3) for repeat in (0, 1)]
    assert [[ask.repeat for ask in played.llm.asks] for played in plays] == [[0, 1, 2], [3, 4, 5]]
    assert {ask.repeat for ask in play(deepnote, lambda _: YES, repeat=3).llm.asks} == {3}
    cold = {"temperature": 0.0}  # at which all samples are alike
    assert play(vanilla, lambda _: "A", llm=cold, samples=1).answer == "A"
    with pytest.raises(FatalLLMError, match=r"takes 3 samples .* alike at temperature 0; set llm.temperature"):
        play(vanilla, lambda _: "A", llm=cold, samples=3)


# Another LLM for single stages


class Stored(LLM):
    """Answers `text` to everything that it has not stored."""

    def __init__(self, model: str, text: str, seconds: float, **settings: Any) -> None:
        super().__init__(model, store=ResponseStore(":memory:"), base_url="http://127.0.0.1:9/v1", **settings)
        self.text, self.seconds = text, seconds

    async def _send(self, request: dict[str, Any]) -> Response:
        self.usage.sent += 1
        self.usage.prompt_tokens += 100
        return Response(self.text, "stop", 100, 10, seconds=self.seconds)


def priced(*dollars: float) -> dict[str, float]:
    return dict(zip(("prompt_price", "completion_price"), dollars, strict=False))


def pair(price: Sequence[float] = (), grader_price: Sequence[float] = ()) -> tuple[Stored, Stored]:
    llm, grader = Stored("large", ANSWER, 2.0, **priced(*price)), Stored("small", GRADE, 0.25, **priced(*grader_price))
    llm.stages = {"grade_passage": grader}
    return llm, grader


async def graded(rag: Rag, question: Question, *, top_k: int = 5) -> str:
    """Grade each passage and read the relevant ones: a method with two stages, one of them asked several times."""
    passages = await rag.search(question.question, top_k)
    return await rag.answer(await relevant(rag, question.question, passages))


def run(llm: LLM, folder: Path | None = None, method: Any = graded, question: Question = Q) -> Run:
    retriever = ScriptedRetriever(lambda _: "ab")
    methods, dataset = {method.__name__: method}, Dataset("made", (question,), ())
    return asked(llm, lambda llm: evaluate(methods, dataset, retriever, llm, folder=folder, progress=False))


def test_another_model_answers_its_stage_alone_with_its_own_store_price_seconds_and_errors() -> None:
    llm, grader = pair((1000.0, 2000.0), (10.0, 20.0))
    frame, usage = run(llm).frame(), llm.usage
    assert (grader.usage, usage.sent, usage.prompt_tokens) == (usage, 3, 300)
    # dollars: the answer 100 * 1000 + 10 * 2000, two grades of 100 * 10 + 10 * 20 each, by the million tokens
    assert list(frame[["cost", "seconds"]].iloc[0]) == [pytest.approx(0.12 + 2 * 0.0012), 2.0 + 2 * 0.25]
    assert (frame["answer"][0], len(llm.store), len(grader.store)) == (ANSWER, 1, 2)
    assert llm.of("grade_passage") is grader and llm.of("answer_short") is llm
    for prices in (((), (1.0, 1.0)), ((1.0, 1.0), ())):
        assert "cost" not in run(pair(*prices)[0]).frame()
    llm.stages = {"grade_passage": LLM("small", store=ResponseStore(":memory:"))}
    error = str(run(llm).frame()["error"][0])
    assert error.startswith("stage grade_passage of graded on q1: no recorded response")


def test_it_is_in_the_settings_of_the_run_and_another_one_is_another_run(tmp_path: Path) -> None:
    llm, grader = pair()
    run(llm, tmp_path)
    stages = {"grade_passage": {"model": "small", **grader.sampling}}
    assert load_run(tmp_path).info.llm == {"model": "large", **llm.sampling} | {"stages": stages}
    run(pair()[0], tmp_path)
    for other in ({}, {"grade_passage": Stored("medium", GRADE, 1.0)}, {"answer_short": grader}):
        llm.stages = dict(other)
        with pytest.raises(RecordError, match="holds a run with other settings"):
            run(llm, tmp_path)


def test_calls_of_both_count_towards_the_spending_limit(server: Loopback) -> None:
    # 100 words of 4 letters and a space are 125 prompt tokens; each answer has 7: 132 dollars at a dollar a token
    prompts = [f"{number:04d} " * 100 for number in range(3)]
    main, part = (client(server, model, max_cost=200.0, **priced(1e6, 1e6)) for model in ("tiny", "other"))
    main.stages = {"part": part}

    async def use(llm: LLM) -> None:
        await llm.of("part").ask(prompts[0])
        await llm.ask(prompts[1])
        for model in (llm, llm.of("part")):
            with pytest.raises(SpendingLimitError, match=r"264\.0000 of max_cost=200\.0 dollars"):
                await model.ask(prompts[2])

    asked(main, use)
    assert main.usage.cost == pytest.approx(264.0)
    assert (main.usage.sent, main.usage.prompt_tokens, main.usage.completion_tokens) == (2, 250, 14)


def configured(folder: Path, *options: str) -> LLM:
    address, store = "llm.base_url=http://127.0.0.1:9/v1", f"llm.store={folder / 's.sqlite'}"
    return build_llm(load_config(["llm=openai", "llm.model=large", address, store, *options]))


def test_a_stage_has_the_settings_of_the_main_model_but_another_one_neither_its_name_nor_its_prices(
    server: Loopback, tmp_path: Path
) -> None:
    main = ("base_url=" + server.base_url, "seed=7", "served_as=served", "prompt_price=7", "completion_price=9")
    others = ["note_judge.model=gpt-4o-mini", "note_query.model=small", "note_query.served_as=name"]
    others.append("note_init.temperature=0.0")
    options = [*(f"llm.{option}" for option in main), *(f"+stages.{option}" for option in others)]
    before, llm = len(server.seen()), configured(tmp_path, *options)
    stages = ("answer_short", "note_judge", "note_init", "note_query")

    async def ask(llm: LLM) -> None:
        for stage in stages:
            await llm.of(stage).ask("Where?")

    asked(llm, ask)
    assert {llm.of(stage).sampling["seed"] for stage in stages} == {7}
    body = {"messages": [{"role": "user", "content": "Where?"}], **llm.sampling}
    names = ({"model": "served"}, {"model": "gpt-4o-mini"}, {"model": "served", "temperature": 0.0}, {"model": "name"})
    assert [seen.hash for seen in server.seen()[before:]] == [body_hash(body | name) for name in names]
    assert [llm.of(stage).price for stage in stages] == [Price(7, 9), Price(0.15, 0.60), Price(7, 9), None]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("amber_chunk_filtr.model=x", "amber_chunk_filtr: no such stage; did you mean amber_chunk_filter"),
        ("zzz.model=x", "stages.zzz: no such stage"),
        ("note_judge.modl=x", "stages.note_judge.modl: no such option; did you mean model"),
        ("note_judge.temperature=hot", "stages.note_judge.temperature: Input should be a valid number"),
        ("note_judge={_target_: rag_notes.llm.client.nobody}", "stages.note_judge._target_: "),
    ],
)
def test_a_stage_that_cannot_be_is_refused_with_what_would_do(option: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        configured(tmp_path, f"+stages.{option}")


# Log-probabilities

NEEDED = "flare needs the log-probabilities of tokens, and the endpoint gives none for tiny; leave the method out"
REFUSED = "stage flare_draft: http.* gives no log-probabilities of tokens .*logprobs are not supported"


@pytest.mark.parametrize(("fault", "message"), [("ok", NEEDED), ("400", REFUSED)])
def test_an_endpoint_without_log_probabilities_ends_a_run_of_flare(
    fault: str, message: str, server: Loopback, tmp_path: Path
) -> None:
    question = Question("q", f"Who built the {fault} bridge <{fault}>?", ("Telford",))
    before = len(server.seen())
    with pytest.raises(FatalLLMError, match=message):
        run(client(server), tmp_path, flare, question)
    assert [seen.met for seen in server.seen()[before:]] == [fault]  # not retried
    stopped = load_run(tmp_path)
    assert re.match(r"stopped: .*log-probabilities", stopped.info.status)
    assert stopped.frame().empty
