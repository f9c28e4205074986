"""A run that is killed, stopped or partly failed plays what is stored, and ends as if nothing had happened."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from rag_notes.config import load_config
from rag_notes.events import Ask
from rag_notes.llm.client import FatalLLMError
from rag_notes.llm.completion import Price
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.rag import Rag
from rag_notes.methods.vanilla import vanilla
from rag_notes.parts import ConfigError
from rag_notes.prompts.templates import TemplateError
from rag_notes.retrieval.base import RetrieverError
from rag_notes.retrieval.bm25 import BM25, bm25
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run, load_run
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.running.samples import RecordError, Sample
from rag_notes.types import Dataset, Hit, Question
from tests.loopback import Loopback, body_hash
from tests.rivers import CORPUS, METHODS, QUESTIONS, run_in
from tests.scripted import ScriptedLLM

KILLS = 6


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


def errors(run: Run) -> int:
    return int(run.frame()["error"].notna().sum())


def timeless(run: Run) -> list[Sample]:
    """The samples without what their calls took, which no two servers take alike."""
    return [replace(sample, seconds=None) for sample in run.samples]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_killed_again_and_again_ends_like_one_left_alone_and_pays_nothing_twice(
    server: Loopback, retriever: BM25, tmp_path: Path, processes: int
) -> None:
    before = len(server.seen())
    alone = run_in(tmp_path / "alone", server.base_url, retriever, store=str(tmp_path / "alone.sqlite"))
    calls = len(server.seen()) - before
    assert calls > 5 * KILLS

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.test_evaluate"])  # so that a process starts in milliseconds
    folder, store = tmp_path / "killed" / "run", str(tmp_path / "killed.sqlite")
    seed = random.Random(7)
    for kills in range(KILLS, -1, -1):
        answered, seen = stored_bodies(store) if Path(store).exists() else set(), len(server.seen())
        left = calls - len(answered)
        # The calls not answered yet must all be made, so this number of them is reached; no more are answered then, so
        # that there is something left to do for those that are killed later.
        number = seen + seed.randint(1, max(1, min(2 * left // (kills + 1), left - kills + 1)))
        server.pause_after(number if kills else None)
        running = [context.Process(target=run_alone, args=(folder, server.base_url, store)) for _ in range(processes)]
        for process in running:
            process.start()
        if kills:
            with server.when_seen(number) as reached:
                ended = [process.sentinel for process in running]
                assert reached in wait([reached, *ended], timeout=60), "the run ended before it was killed"
            for process in running:
                process.kill()
        for process in running:
            process.join(60)
            assert process.exitcode == (-signal.SIGKILL if kills else 0)
        server.wait_until_left()
        requests = Counter(request.hash for request in server.seen()[seen:])
        assert max(requests.values(), default=1) == 1, "a request was sent twice"
        assert not answered & set(requests), "a request that was answered and stored was sent again"
        assert kills == 0 or not folder.exists()

    assert timeless(load_run(folder)) == timeless(alone)
    assert sorted(path.name for path in folder.parent.rglob("*")) == ["run", "run.json", "samples.jsonl"]
    run_in(tmp_path / "again", None, retriever, store=store)
    assert (tmp_path / "again" / "samples.jsonl").read_bytes() == (folder / "samples.jsonl").read_bytes()


FAILING = [
    QUESTIONS[0],
    Question("bad status", "On which river does Lima <500> lie?", ("river number 3",)),
    QUESTIONS[1],
    Question("no json", "On which river does Oslo <garbage> lie?", ("river number 4",)),
    Question("torn", "On which river does Quito <reset> lie?", ("river number 6",)),
]


def test_the_same_call_asks_again_only_what_failed(server: Loopback, retriever: BM25, tmp_path: Path) -> None:
    store = ResponseStore(":memory:")
    first = run_in(tmp_path, server.base_url, retriever, store=store, questions=FAILING, methods=[vanilla])
    assert first.info.status == "finished" and len(first.frame()) == 5 and errors(first) == 3
    assert "500" in str(first.sample("vanilla", "bad status").error)
    failed = first.sample("vanilla", "no json")
    assert (failed.answer, failed.metrics, failed.counts.calls) == ("", {}, 0)
    assert isinstance(failed.trace[-1], Ask) and failed.trace[-1].response is None

    seen, whole = len(server.seen()), first.sample("vanilla", "q0")
    second = run_in(tmp_path, server.base_url, retriever, store=store, questions=FAILING, methods=[vanilla])
    assert [request.met for request in server.seen()[seen:]] == ["ok"] * 3
    assert errors(second) == 0 and second.frame()["question_id"].tolist() == [each.id for each in FAILING]
    assert second.sample("vanilla", "q0") == whole


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/v1", "http://no-such-host.invalid/v1"])
def test_an_address_where_nobody_is_ends_the_run_and_the_right_one_asks_everything(
    server: Loopback, retriever: BM25, tmp_path: Path, address: str
) -> None:
    with pytest.raises(FatalLLMError, match=address):
        run_in(tmp_path, address, retriever, questions=QUESTIONS[:3], methods=[vanilla])
    assert load_run(tmp_path).frame().empty and load_run(tmp_path).info.status.startswith("stopped: ")
    run = run_in(tmp_path, server.base_url, retriever, questions=QUESTIONS[:3], methods=[vanilla])
    assert (len(run.frame()), errors(run)) == (3, 0)


async def without_template(rag: Rag, question: Question) -> str:
    return await rag.ask("no_such_stage") if question.id == "q1" else "river number 0"


async def broken(rag: Rag, question: Question) -> str:
    if question.id == "q1":
        raise KeyError("a bug in the method")
    return "river number 0"


async def searching(rag: Rag, question: Question) -> str:
    return (await rag.search(question.question, 1))[0].title


class Failing:
    name = "failing"

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise RetrieverError("the index is gone")


def test_an_exception_of_a_method_is_recorded_and_what_every_question_meets_ends_the_run(
    retriever: BM25, tmp_path: Path
) -> None:
    run = run_in(tmp_path / "a", None, retriever, questions=QUESTIONS[:3], methods=[broken])
    error = run.frame().set_index("question_id").loc["q1"]
    assert errors(run) == 1 and (error["error_kind"], error["correctness"]) == ("KeyError", "error")
    assert error["error"].startswith("KeyError: 'a bug in the method' (test_evaluate.py:")
    assert error["error"].endswith(" in broken)")
    with pytest.raises(TemplateError, match="no_such_stage"):
        run_in(tmp_path / "b", None, retriever, questions=QUESTIONS[:3], methods=[without_template])
    assert "q0" in load_run(tmp_path / "b").frame()["question_id"].tolist()
    with pytest.raises(RetrieverError, match="the index is gone"):
        run_in(tmp_path / "c", None, Failing(), methods=[searching])


def test_a_run_stopped_by_the_spending_limit_goes_on_with_the_same_call(
    server: Loopback, retriever: BM25, tmp_path: Path
) -> None:
    price, store = Price(1.0, 1.0), ResponseStore(":memory:")
    prices: dict[str, Any] = {"prompt_price": 1.0, "completion_price": 1.0}
    seen = len(server.seen())
    alone = run_in(tmp_path / "alone", server.base_url, retriever, llm=prices)
    calls, answers = len(server.seen()) - seen, alone.frame()
    assert answers["cost"].tolist() == pytest.approx((answers["tokens"] / 1e6).tolist()) and answers["cost"].gt(0).all()
    seen, limits = (
        len(server.seen()),
        {**prices, "max_cost": price.of(int(answers["prompt_tokens"].sum()), 0) / 3},
    )
    run = run_in(tmp_path / "run", server.base_url, retriever, store=store, llm=limits)
    assert run.info.status.startswith("stopped: ") and "spending limit reached" in run.info.status
    assert 0 < len(run.frame()) < 2 * len(QUESTIONS) and errors(run) == 0
    finished = run_in(tmp_path / "run", server.base_url, retriever, store=store, llm=prices)
    assert finished.info.status == "finished" and len(server.seen()) - seen == calls
    assert timeless(finished) == timeless(alone)


def test_a_refused_key_is_said_once_and_keeps_what_was_answered(
    server: Loopback, retriever: BM25, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    locked = Question("locked", "On which river does Lima <401> lie?", ("x",))
    options: dict[str, Any] = {"store": ResponseStore(":memory:"), "llm": {"concurrency": 1}, "methods": [vanilla]}
    options["questions"] = [*QUESTIONS[:6], locked, *QUESTIONS[6:]]
    with pytest.raises(FatalLLMError, match="refused the API key"):
        run_in(tmp_path, server.base_url, retriever, progress=True, **options)
    assert capsys.readouterr().err.count("stopping once the answers under way are done: ") == 1
    stopped = load_run(tmp_path)
    names = set(stopped.frame()["question_id"])
    assert stopped.info.status.startswith("stopped: ") and "locked" not in names
    assert {question.id for question in QUESTIONS[:6]} <= names
    run = run_in(tmp_path, server.base_url, retriever, **options)
    assert (len(run.frame()), errors(run)) == (13, 0)


INTERRUPTED = """
    import os, signal, sys
    from pathlib import Path
    from rag_notes.retrieval.bm25 import bm25
    from tests.rivers import CORPUS, QUESTIONS, run_in

    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore

    async def method(rag, question):
        if question.id == sys.argv[2]:
            os.kill(os.getpid(), signal.SIGINT)
        return question.id

    run_in(Path(sys.argv[1]), None, bm25(CORPUS, cache=None), questions=QUESTIONS, methods={"method": method})
"""


def test_an_interrupted_run_is_written_with_its_status_and_does_not_replace_a_finished_one(tmp_path: Path) -> None:
    def status(question_id: str) -> int:
        command = [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(tmp_path / "run"), question_id]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())])}
        return subprocess.run(command, capture_output=True, env=environment, check=False).returncode

    assert status("q5") != 0
    stopped = load_run(tmp_path / "run")
    assert stopped.info.status == "stopped: interrupted" and "q0" in stopped.frame()["question_id"].tolist()
    assert status("none") == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    assert load_run(tmp_path / "run").info.finished
    assert status("q5") != 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == whole


async def other_method(rag: Rag, question: Question) -> str:
    return await rag.answer()


OTHERS: dict[str, dict[str, Any]] = {
    "setting of a method": {"methods": {"vanilla": partial(vanilla, top_k=3), "deepnote": deepnote}},
    "function of a method": {"methods": {"vanilla": other_method, "deepnote": deepnote}},
    "fewer methods": {"methods": [vanilla]},
    "another gold answer": {"questions": [*QUESTIONS[:-1], Question("q11", QUESTIONS[-1].question, ("x",))]},
    "temperature": {"llm": {"temperature": 0.7}},
    "repeat": {"repeat": 1},
    "corpus": {"retriever": bm25(CORPUS[:-1], cache=None)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_run_in_the_same_folder_is_refused(
    server: Loopback, retriever: BM25, tmp_path: Path, other: str
) -> None:
    store = ResponseStore(":memory:")
    run_in(tmp_path, server.base_url, retriever, store=store, llm={"concurrency": 1})
    before = {name: (tmp_path / name).read_bytes() for name in ("run.json", "samples.jsonl")}
    with pytest.raises(RecordError, match="holds a run with other settings; name another folder"):
        run_in(tmp_path, server.base_url, **{"retriever": retriever} | OTHERS[other])
    run_in(tmp_path, server.base_url, retriever, store=store, llm={"concurrency": 32}, study="cost")  # how, not what
    assert (tmp_path / "samples.jsonl").read_bytes() == before["samples.jsonl"]
    assert json.loads((tmp_path / "run.json").read_bytes()) == json.loads(before["run.json"]) | {"studies": ["cost"]}
    assert run_in(tmp_path, None, retriever, store=store, study="ablation").info.studies == ["ablation", "cost"]


def test_a_run_says_what_determined_it(server: Loopback, retriever: BM25) -> None:
    info = run_in(None, server.base_url, retriever, methods=METHODS | {"again": partial(vanilla)}).info
    assert info.methods["vanilla"].function == "rag_notes.methods.vanilla.vanilla"
    assert (info.methods["again"].family, info.methods["again"].label) == ("vanilla", "Vanilla RAG")
    assert {"en/answer_short", "en/note_init"} <= set(info.prompts) and "zh/answer_short" not in info.prompts
    assert info.llm["model"] == "tiny" and {"temperature", "seed"} <= set(info.llm)
    assert {"python", "rag-notes"} <= set(info.versions)


def test_the_same_question_or_method_twice_is_refused(retriever: BM25) -> None:
    with pytest.raises(ValueError, match="same id"):
        run_in(None, None, retriever, questions=[QUESTIONS[0], QUESTIONS[0]])


def test_the_chosen_methods_are_played_from_the_recordings_into_folders_of_their_settings(tmp_path: Path) -> None:
    options = [f"runs={tmp_path}", "dataset=mini", "limit=3", "method=[vanilla]"]
    (run,) = asyncio.run(run_methods(load_config(options), progress=False))
    assert run.folder is not None and run.folder.parent == tmp_path
    assert run.folder.name == f"mini-Qwen2.5-Coder-1.5B-Instruct-{run.info.fingerprint}" and errors(run) == 0
    content = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    (again,) = asyncio.run(run_methods(load_config(options), progress=False))
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == content and again.folder == run.folder
    (noisy,) = asyncio.run(run_methods(load_config(options), noise_percent=40, progress=False))
    assert noisy.label == "mini-noise40" and noisy.frame()["noise_percent"].eq(40).all()
    repeated = load_config([*options, "repeat=[0,1]"])
    assert [run.info.repeat for run in asyncio.run(run_methods(repeated, progress=False))] == [0, 1]
    with pytest.raises(ConfigError, match=r"repeat=\[0, 1\]: one repeat at a time"):
        one_repeat(repeated)


HALF = "half \ud83d of a pair"


async def with_half_a_pair(rag: Rag, question: Question) -> str:
    rag.note(f"{question.id}: {HALF}", kept=True)
    if question.id == "q1":
        raise RuntimeError(HALF)
    return await rag.ask_text("any", f"{HALF}: {question.question}") if question.id == "q2" else HALF


def test_half_a_surrogate_pair_costs_neither_answer_nor_run(server: Loopback, retriever: BM25, tmp_path: Path) -> None:
    run = run_in(tmp_path, server.base_url, retriever, questions=QUESTIONS[:3], methods=[with_half_a_pair])
    assert run.info.status == "finished" and run.sample("with_half_a_pair", "q0").answer == "half \ufffd of a pair"
    assert "RuntimeError: half \ufffd of a pair" in str(run.sample("with_half_a_pair", "q1").error)
    assert run.sample("with_half_a_pair", "q2").answer


def test_the_answers_of_a_large_run_are_not_in_memory(tmp_path: Path) -> None:
    async def long_winded(rag: Rag, question: Question) -> str:
        rag.note(question.id * 10_000, kept=True)  # 40 MB in all
        return question.id

    questions = tuple(Question(f"{number:05}", "Which?", ("x",)) for number in range(800))

    async def run() -> Run:
        async with ScriptedLLM(lambda ask: "") as llm:
            methods, dataset = {"long_winded": long_winded}, Dataset("large", questions, ())
            return await evaluate(methods, dataset, bm25(CORPUS, cache=None), llm, folder=tmp_path / "run")

    tracemalloc.start()
    large = asyncio.run(run())
    assert len(large.frame()) == 800 and large.sample("long_winded", "00799").counts.steps == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "run" / "samples.jsonl").stat().st_size > 40e6 > 2 * peak
