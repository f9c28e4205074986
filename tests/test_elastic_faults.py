"""Elasticsearch that answers in part or not at all, by a proxy in front of a real one."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.rag import Rag
from rag_notes.retrieval.base import RetrieverError
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_run
from rag_notes.types import Question
from tests.corpora import BIRDS
from tests.elastic import Secured
from tests.elastic_proxy import Forward, Proxy
from tests.indexed import indexed, make, names, passed_on

pytestmark = [pytest.mark.xdist_group("elasticsearch"), pytest.mark.timeout(600)]  # one server at a time


def altered(change: Callable[[dict[str, Any]], None], times: int) -> Callable[[str, bytes, Forward], tuple[int, bytes]]:
    """Change the answer to the first search of the first `times` batches."""
    batches = itertools.count()

    def meddle(path: str, body: bytes, forward: Forward) -> tuple[int, bytes]:
        status, answer = forward(body)
        if path.endswith("_msearch") and next(batches) < times:
            value = json.loads(answer)
            change(value["responses"][0])
            answer = json.dumps(value).encode()
        return status, answer

    return meddle


def fail_shard(answer: dict[str, Any]) -> None:
    answer["_shards"] |= {"failed": 1, "successful": answer["_shards"]["total"] - 1}
    answer["hits"]["hits"] = []


def time_out(answer: dict[str, Any]) -> None:
    answer["timed_out"] = True


def miss_shard(answer: dict[str, Any]) -> None:
    answer["_shards"]["successful"] -= 1


def lose_node(answer: dict[str, Any]) -> None:
    reason = {"type": "no_shard_available_action_exception", "reason": "a node left"}
    answer.clear()
    answer |= {"status": 503, "error": {"type": "search_phase_execution_exception", "root_cause": [reason]}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fail_shard, "a partial answer: 1 of 2 shards"),
        (miss_shard, "a partial answer: 1 of 2 shards"),
        (time_out, "a partial answer: 2 of 2 shards, timed out"),
        (lose_node, "status 503: a node left"),
    ],
)
def test_a_partial_answer_is_asked_again_and_never_a_short_list(
    admin: Secured, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    name = next(names)
    wanted = indexed(admin, BIRDS, index=name, shards=2).search(["water", "acorns"], 3)
    with Proxy(altered(change, times=2), admin) as proxy:
        retriever = make(admin, BIRDS, index=name, hosts=[proxy.url])
        assert retriever.search(["water", "acorns"], 3) == wanted
        assert retriever.retries == 2
        assert [body.count(b"multi_match") for body in proxy.sent("_msearch")] == [2, 1, 1]
    with Proxy(altered(change, times=9), admin) as proxy:
        retriever = make(admin, BIRDS, index=name, hosts=[proxy.url], max_retries=1)
        with pytest.raises(RetrieverError, match=f"failed 2 times in a row .{re.escape(said)}"):
            retriever.search(["water", "acorns"], 3)


def test_an_index_that_goes_away_is_an_error(admin: Secured) -> None:
    name = next(names)
    retriever = indexed(admin, BIRDS, index=name)
    assert retriever.search(["water"], 1)
    [index] = admin.ask("GET", f"/_alias/{name}")
    admin.ask("DELETE", f"/{index}")
    with pytest.raises(RetrieverError, match="index went away"):
        retriever.search(["water"], 1)


def test_a_server_that_goes_away_stops_the_run_and_nothing_done_is_lost(admin: Secured, tmp_path: Path) -> None:
    name = next(names)
    indexed(admin, BIRDS, index=name)
    questions = [Question(f"q{number}", word, ("Oak",)) for number, word in enumerate(["acorns", "coffee", "dives"])]
    first = asyncio.Event()

    async def one_then_the_others(rag: Rag, question: Question) -> str:
        if question.id != "q0":
            await first.wait()
            await asyncio.to_thread(proxy.leave)
        [passage] = await rag.search(question.question, 1)
        first.set()
        return passage.title

    async def run(hosts: list[str]) -> Run:
        retriever = make(admin, BIRDS, index=name, hosts=hosts, max_retries=1)
        async with LLM("none", store=ResponseStore(tmp_path / "none.sqlite")) as llm:
            return await evaluate(
                [one_then_the_others], questions, retriever, llm, folder=tmp_path / "run", progress=False
            )

    with Proxy(passed_on, admin) as proxy:
        with pytest.raises(RetrieverError, match=r"failed 2 times in a row .*the same command continues"):
            asyncio.run(run([proxy.url]))
        stopped = load_run(tmp_path / "run")
        assert [sample.answer for sample in stopped.samples] == ["Oak"]
        assert stopped.info.status.startswith("stopped: Elasticsearch at ")
        assert stopped.info.search_retries >= 1
        with Proxy(passed_on, admin) as again:
            finished = asyncio.run(run([again.url]))
    assert [sample.answer for sample in finished.samples] == ["Oak", "Café", "Kingfisher"]
    assert (finished.info.status, finished.info.search_retries) == ("finished", 0)
