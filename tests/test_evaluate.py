"""A run that is killed, stopped or partly failed goes on where it was, and ends as if nothing had happened."""

import io
import multiprocessing
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from rag_notes.events import Ask
from rag_notes.llm.client import FatalLLMError, Price
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag
from rag_notes.methods.vanilla import vanilla
from rag_notes.prompts.templates import TemplateError
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.running.records import Progress, RecordError
from rag_notes.running.run_files import load_run
from rag_notes.types import Hit, Question
from tests.loopback import Loopback, body_hash
from tests.rivers import CORPUS, QUESTIONS, run_in

KILLS = 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    with Loopback(tmp_path_factory.mktemp("server") / "requests.log", delay=0.004) as running:
        yield running


@pytest.fixture(scope="module")
def retriever() -> BM25:
    return bm25(CORPUS, cache=None)


def run_alone(folder: Path, base_url: str, store: str) -> None:
    """The run of a process that may be killed."""
    run_in(folder, base_url, bm25(CORPUS, cache=None), store=store)


def stored_bodies(path: str) -> set[str]:
    """The hashes under which the server logged the requests that a store has the answers to."""
    store = ResponseStore(path)
    bodies = {
        body_hash({name: value for name, value in request.items() if name != "repeat" and value is not None})
        for _, request, _ in store.rows()
    }
    store.close()
    return bodies


def test_a_run_killed_twenty_times_ends_like_one_left_alone_and_pays_nothing_twice(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    before = len(server.seen())
    run_in(tmp_path / "left alone", server.base_url, retriever, store=str(tmp_path / "left alone.sqlite"))
    wanted = (tmp_path / "left alone" / "samples.jsonl").read_bytes()
    calls = len(server.seen()) - before
    assert calls == len(ResponseStore(tmp_path / "left alone.sqlite")) > 5 * KILLS

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_evaluate"])  # so that a process starts in milliseconds
    folder, store = tmp_path / "killed", str(tmp_path / "killed.sqlite")
    seed = random.Random(7)
    samples_at_kills = []
    for kills_left in range(KILLS, -1, -1):
        answered, seen = stored_bodies(store) if Path(store).exists() else set(), len(server.seen())
        left = calls - len(answered)
        # The calls not answered yet must all be made, so this number of them is reached; no more are answered then, so
        # that there is something left to do for those that are killed later.
        number = seen + seed.randint(1, max(1, min(2 * left // (kills_left + 1), left - kills_left + 1)))
        server.pause_after(number if kills_left else None)
        process = context.Process(target=run_alone, args=(folder, server.base_url, store))
        process.start()
        if kills_left:
            with server.when_seen(number) as reached:
                assert reached in wait([reached, process.sentinel], timeout=60), "the run ended before it was killed"
            process.kill()
        process.join(60)
        assert process.exitcode == (-signal.SIGKILL if kills_left else 0)
        server.wait_until_left()
        made = Counter(request.hash for request in server.seen()[seen:])
        assert max(made.values(), default=1) == 1, "a request was sent twice by one process"
        assert not answered & set(made), "a request that was answered and stored was sent again"
        samples = folder / "samples.jsonl"
        samples_at_kills.append(samples.read_bytes().count(b"\n") if samples.exists() else 0)

    assert (folder / "samples.jsonl").read_bytes() == wanted
    assert load_run(folder).info.status == "finished"
    assert load_run(folder).info.usage == load_run(tmp_path / "left alone").info.usage
    assert load_run(folder).info.usage.calls == calls
    assert len(set(samples_at_kills)) > 3, "the kills fell on too few stages of the run to tell anything"


def test_a_finished_run_is_not_done_again(server: Loopback, retriever: BM25, tmp_path: Path) -> None:
    first = run_in(tmp_path, server.base_url, retriever)
    data = (tmp_path / "samples.jsonl").read_bytes()
    seen = len(server.seen())
    again = run_in(tmp_path, server.base_url, retriever)  # with an empty store: the samples themselves are reused
    assert len(server.seen()) == seen
    assert again.samples == first.samples == load_run(tmp_path).samples
    assert (tmp_path / "samples.jsonl").read_bytes() == data


def test_a_half_written_last_line_is_done_again_and_counted(server: Loopback, retriever: BM25, tmp_path: Path) -> None:
    samples, store = tmp_path / "run" / "samples.jsonl", str(tmp_path / "store.sqlite")
    run_in(tmp_path / "run", server.base_url, retriever, store=store)
    whole = samples.read_bytes()
    samples.write_bytes(whole[:-100])
    run = run_in(tmp_path / "run", server.base_url, retriever, store=store)
    assert samples.read_bytes() == whole
    assert run.info.half_written == 1
    # A cut inside a character must not matter either.
    samples.write_bytes(whole + '{"method": "é'.encode()[:-1])
    assert load_run(tmp_path / "run").samples == run.samples
    assert run_in(tmp_path / "run", None, retriever, store=store).info.half_written == 1
    assert samples.read_bytes() == whole


@pytest.mark.parametrize("damaged", [b'{"method": "vanilla", "questi', b'{"method": "vanilla"}', b"[1]", b"\xff", b""])
def test_a_corrupted_line_in_the_middle_is_refused_by_file_and_line(
    server: Loopback, retriever: BM25, tmp_path: Path, damaged: bytes
) -> None:
    samples = tmp_path / "samples.jsonl"
    run_in(tmp_path, server.base_url, retriever, methods=[vanilla])
    lines = samples.read_bytes().split(b"\n")
    corrupt = b"\n".join([*lines[:2], damaged, *lines[3:]])
    samples.write_bytes(corrupt)
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 3: not a sample"):
        run_in(tmp_path, server.base_url, retriever, methods=[vanilla])
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 3: not a sample"):
        load_run(tmp_path)
    assert samples.read_bytes() == corrupt


async def other_method(rag: Rag, question: Question) -> str:
    return await rag.answer()


OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "setting of a method": (
        "methods",
        {"methods": {"vanilla": partial(vanilla, top_k=3), "deepnote": deepnote}},
    ),
    "code of a method": ("methods", {"methods": {"vanilla": other_method, "deepnote": deepnote}}),
    "fewer methods": ("methods", {"methods": [vanilla]}),
    "fewer questions": ("dataset", {"questions": QUESTIONS[:-1]}),
    "another gold answer": (
        "dataset",
        {"questions": [*QUESTIONS[:-1], Question("q11", QUESTIONS[-1].question, ("x",))]},
    ),
    "temperature": ("llm", {"llm": {"temperature": 0.7}}),
    "repeat": ("repeat", {"repeat": 1}),
    "corpus": ("retriever", {"retriever": "other"}),
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_in_the_same_folder_is_refused_naming_what_differs(
    server: Loopback, retriever: BM25, tmp_path: Path, other: str
) -> None:
    store = ResponseStore(":memory:")
    run_in(tmp_path, server.base_url, retriever, store=store, llm={"concurrency": 1})
    files = {name: (tmp_path / name).read_bytes() for name in ("run.json", "samples.jsonl")}
    part, change = OTHERS[other]
    arguments = {"retriever": retriever} | change
    if arguments["retriever"] == "other":
        arguments["retriever"] = bm25(CORPUS[:-1], cache=None)
    with pytest.raises(RecordError, match=rf"holds a run with other {part}; name another folder"):
        run_in(tmp_path, server.base_url, **arguments)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    run_in(tmp_path, server.base_url, retriever, store=store, llm={"concurrency": 9})  # how, not what: allowed


def test_a_run_waits_for_another_process_that_works_in_its_folder(
    server: Loopback, retriever: BM25, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FileLock(tmp_path / ".lock")
    told: list[str] = []

    class Released(io.StringIO):
        def write(self, text: str) -> int:
            told.append(text)
            lock.release()
            return len(text)

    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", Released())
        lock.acquire()
        run = run_in(tmp_path, server.base_url, retriever)
    assert "another process is making this run" in "".join(told)
    assert run.info.status == "finished"


FAILING = [
    QUESTIONS[0],
    Question("bad status", "On which river does Lima <500> lie?", ("river number 3",)),
    QUESTIONS[1],
    Question("no json", "On which river does Oslo <garbage> lie?", ("river number 4",)),
]


def test_a_failing_question_is_recorded_and_counted_and_only_it_is_done_again(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    first = run_in(tmp_path, server.base_url, retriever, questions=FAILING, methods=[vanilla])
    assert first.info.status == "finished"
    assert first.info.samples == Progress(4, 4, 2)
    assert "500" in str(first.sample("vanilla", "bad status").error)
    assert "not a chat completion" in str(first.sample("vanilla", "no json").error)
    for name in ("bad status", "no json"):
        failed = first.sample("vanilla", name)
        assert (failed.answer, failed.metrics, failed.counts.calls) == ("", {}, 0)
        last = failed.trace[-1]
        assert isinstance(last, Ask)
        assert last.response is None
    assert first.sample("vanilla", "q0").error is None

    seen = len(server.seen())
    kept = run_in(tmp_path, server.base_url, retriever, questions=FAILING, methods=[vanilla])
    assert len(server.seen()) == seen
    assert kept.samples == first.samples

    second = run_in(tmp_path, server.base_url, retriever, questions=FAILING, methods=[vanilla], retry_errors=True)
    assert [request.met for request in server.seen()[seen:]] == ["ok", "ok"]
    assert second.info.samples == Progress(4, 4, 0)
    assert [sample.question.id for sample in second.samples] == [question.id for question in FAILING]
    assert second.sample("vanilla", "q0") == first.sample("vanilla", "q0")


def test_what_no_model_was_heard_of_is_not_kept_as_an_answer(server: Loopback, retriever: BM25, tmp_path: Path) -> None:
    bad = Question("bad status", "On which river does Quito <500> lie?", ("river number 6",))
    torn = [QUESTIONS[0], Question("torn", "On which river does Lima <reset> lie?", ("river number 3",)), bad]
    first = run_in(tmp_path, server.base_url, retriever, questions=torn, methods=[vanilla])
    assert [None if sample.error is None else sample.error.kind for sample in first.samples] == [
        None,
        "UnreachedError",
        "LLMError",
    ]
    seen = len(server.seen())
    again = run_in(tmp_path, server.base_url, retriever, questions=torn, methods=[vanilla])
    assert [request.met for request in server.seen()[seen:]] == ["ok"]
    assert again.info.samples == Progress(3, 3, 1)
    assert again.sample("vanilla", "torn").error is None
    assert again.sample("vanilla", "bad status") == first.sample("vanilla", "bad status")


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_an_address_where_nobody_is_ends_the_run_and_the_right_one_asks_everything(
    server: Loopback, retriever: BM25, tmp_path: Path, address: str
) -> None:
    with pytest.raises(FatalLLMError, match="nobody answers at"):
        run_in(tmp_path, address, retriever, questions=QUESTIONS[:3], methods=[vanilla])
    assert load_run(tmp_path).samples == []
    run = run_in(tmp_path, server.base_url, retriever, questions=QUESTIONS[:3], methods=[vanilla])
    assert run.info.samples == Progress(3, 3, 0)


async def without_template(rag: Rag, question: Question) -> str:
    return await rag.ask("no_such_stage")


async def broken(rag: Rag, question: Question) -> str:
    if question.id == "q1":
        raise KeyError("a bug in the method")
    return "river number 0"


def test_an_exception_of_a_method_is_recorded_with_its_question_and_a_missing_template_ends_the_run(
    retriever: BM25, tmp_path: Path
) -> None:
    run = run_in(tmp_path / "a", None, retriever, questions=QUESTIONS[:3], methods=[broken])
    assert [str(sample.error) for sample in run.samples] == ["None", "KeyError: 'a bug in the method'", "None"]
    assert run.samples[1].error is not None
    assert run.samples[1].error.traceback.endswith("in broken")
    assert run.info.samples.errors == 1
    with pytest.raises(TemplateError, match="no_such_stage"):
        run_in(tmp_path / "b", None, retriever, questions=QUESTIONS[:3], methods=[without_template])


def test_a_run_stopped_by_the_spending_limit_goes_on_with_a_higher_one(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    price, store = Price(1.0, 1.0), ResponseStore(":memory:")
    alone = run_in(tmp_path / "alone", server.base_url, retriever, llm={"price": price})
    cost = price.of(alone.info.usage.prompt_tokens, alone.info.usage.completion_tokens)
    seen = len(server.seen())
    limits = {"price": price, "max_cost": cost / 3}
    run = run_in(tmp_path / "run", server.base_url, retriever, store=store, llm=limits)
    assert run.info.status.startswith("stopped: ")
    assert "spending limit reached" in run.info.status
    assert 0 < run.info.samples.done < run.info.samples.of == 2 * len(QUESTIONS)
    assert run.info.samples.errors == 0
    assert len(load_run(tmp_path / "run").samples) == run.info.samples.done
    half = len(server.seen()) - seen
    assert half == len(store)
    finished = run_in(tmp_path / "run", server.base_url, retriever, store=store, llm={"price": price})
    assert finished.info.status == "finished"
    assert len(server.seen()) - seen == alone.info.usage.calls == len(store)
    assert (tmp_path / "run" / "samples.jsonl").read_bytes() == (tmp_path / "alone" / "samples.jsonl").read_bytes()


def test_a_refused_key_ends_the_run_and_keeps_what_was_done(
    server: Loopback, retriever: BM25, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = [*QUESTIONS[:6], Question("locked", "On which river does Lima <401> lie?", ("x",)), *QUESTIONS[6:]]
    one = {"concurrency": 1}
    with pytest.raises(FatalLLMError, match="refused the API key"):
        run_in(tmp_path, server.base_url, retriever, questions=questions, methods=[vanilla], llm=one, progress=True)
    told = [line for line in capsys.readouterr().err.splitlines() if "stopping once the answers under way" in line]
    assert len(told) == 1
    assert "refused the API key" in told[0]
    stopped = load_run(tmp_path)
    assert stopped.info.status.startswith("stopped: ")
    assert "locked" not in {sample.question.id for sample in stopped.samples}
    assert {question.id for question in QUESTIONS[:6]} <= {sample.question.id for sample in stopped.samples}
    run = run_in(tmp_path, server.base_url, retriever, questions=questions, methods=[vanilla], llm=one)
    assert run.info.samples == Progress(13, 13, 0)


def test_calls_that_fail_together_are_told_of_once(
    server: Loopback, retriever: BM25, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = [Question(f"locked{n}", f"On which river does town {n} <401> lie?", ("x",)) for n in range(4)]
    with pytest.raises(FatalLLMError, match="refused the API key"):
        run_in(tmp_path, server.base_url, retriever, questions=questions, methods=[vanilla], progress=True)
    assert capsys.readouterr().err.count("stopping once the answers under way are done") == 1


def test_the_samples_do_not_depend_on_how_many_calls_are_made_at_once(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    for concurrency in (1, 32):
        run_in(tmp_path / f"{concurrency}", server.base_url, retriever, llm={"concurrency": concurrency})
    one, many = ((tmp_path / name / "samples.jsonl").read_bytes() for name in ("1", "32"))
    assert one == many


def test_the_same_question_or_method_twice_is_refused(retriever: BM25) -> None:
    with pytest.raises(ValueError, match="same id"):
        run_in(None, None, retriever, questions=[QUESTIONS[0], QUESTIONS[0]])


def test_a_run_counts_what_was_sent_again_in_its_own_searches(retriever: BM25) -> None:
    class Resending:
        """Has sent something again while it indexed, and does so for every batch of searches."""

        retries, name, describe = 5, retriever.name, retriever.describe

        def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
            self.retries += 1
            return retriever.search(queries, top_k)

    async def searches(rag: Rag, question: Question) -> str:
        return (await rag.search(question.question, 1))[0].title

    resending: Any = Resending()
    one, two = (run_in(None, None, resending, questions=QUESTIONS[:1], methods=[searches]) for _ in range(2))
    assert (one.info.search_retries, two.info.search_retries) == (1, 1)
