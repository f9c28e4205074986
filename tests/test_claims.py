"""Requests under way are claimed in the store: processes that share one make each request once."""

import asyncio
import multiprocessing
import signal
import sqlite3
import time
from collections import Counter
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.client import LLM, LLMError
from rag_notes.llm.store import Response, ResponseStore, request_key
from tests.loopback import Loopback

PROMPTS = [f"question number {number}" for number in range(40)]
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.test_claims"])  # so that a process starts in milliseconds
ANSWER = Response("Paris", "stop", 1, 1, 0.1)


def ask_all(base_url: str, store: str, prompts: list[str], barrier: Any = None) -> None:
    async def run() -> None:
        async with LLM("tiny", store=ResponseStore(store), base_url=base_url, concurrency=8, timeout=60.0) as llm:
            await asyncio.gather(*(llm.ask(prompt) for prompt in prompts))

    if barrier is not None:
        barrier.wait(60)
    asyncio.run(run())


def test_two_processes_that_ask_the_same_make_each_request_once(tmp_path: Path) -> None:
    store, barrier = str(tmp_path / "store.sqlite"), CONTEXT.Barrier(2)
    with Loopback(tmp_path / "requests.log", delay=0.02) as server:
        orders = (PROMPTS, PROMPTS[::-1])
        processes = [CONTEXT.Process(target=ask_all, args=(server.base_url, store, order, barrier)) for order in orders]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        seen = Counter(request.hash for request in server.seen())
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(seen) == len(PROMPTS) == len(ResponseStore(store))
    assert max(seen.values()) == 1
    assert claims(store) == []


def claims(path: str) -> list[Any]:
    with sqlite3.connect(path) as db:
        return db.execute("SELECT * FROM claims").fetchall()


def test_what_a_killed_process_had_under_way_is_all_that_is_asked_again(tmp_path: Path) -> None:
    store = str(tmp_path / "store.sqlite")
    with Loopback(tmp_path / "requests.log", delay=0.005) as server:
        server.pause_after(20)  # the calls after the 20th get no answer: at most 8 are under way at the kill
        killed = CONTEXT.Process(target=ask_all, args=(server.base_url, store, PROMPTS))
        killed.start()
        with server.when_seen(24) as reached:
            assert reached in wait([reached, killed.sentinel], timeout=60)
        killed.kill()
        killed.join(60)
        assert killed.exitcode == -signal.SIGKILL
        server.wait_until_left()
        answered, open_calls = len(ResponseStore(store)), len(claims(store))
        assert 0 < open_calls <= 8
        server.pause_after(None)
        ask_all(server.base_url, store, PROMPTS)
        seen = Counter(request.hash for request in server.seen())
    assert len(seen) == len(PROMPTS)
    assert sum(seen.values()) - len(PROMPTS) <= open_calls
    assert answered >= 20 - 8


def test_a_claim_keeps_others_from_asking_until_the_answer_is_there(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    first, second = ResponseStore(path), ResponseStore(path)
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> Response:
            async with LLM("tiny", store=second, base_url=server.base_url) as llm:
                request = llm.request("asked elsewhere")
                assert first.claim(request_key(request))
                waiting = asyncio.create_task(llm.ask("asked elsewhere"))
                other = await llm.ask("something else")  # waiting does not hold up the loop
                assert other.text
                assert not waiting.done()
                first.put(request, ANSWER)
                return await waiting

        assert asyncio.run(use()) == ANSWER
        assert len(server.seen()) == 1


def test_a_call_that_failed_gives_its_claim_back(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> None:
            async with LLM("tiny", store=ResponseStore(path), base_url=server.base_url, max_retries=0) as llm:
                with pytest.raises(LLMError):
                    await llm.ask("broken <500>")
                stalled = asyncio.create_task(llm.ask("stalled <hang>"))
                await asyncio.to_thread(server.when_seen(2).recv, 1)
                assert len(claims(str(path))) == 1
                stalled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await stalled

        asyncio.run(use())
    assert claims(str(path)) == []


def test_a_claim_is_renewed_while_its_owner_lives_and_expires_after_it(tmp_path: Path) -> None:
    path, key = str(tmp_path / "store.sqlite"), "a key"
    owner, other = ResponseStore(path, lease=0.3), ResponseStore(path)
    assert owner.claim(key)
    assert not other.claim(key)
    ((_, _, until),) = claims(path)
    while claims(path)[0][2] == until:  # ends as soon as the lease was renewed; a missing renewal is a time-out
        time.sleep(0.01)
    assert not other.claim(key)
    owner.close()  # as if gone: renews no more
    while not other.claim(key):
        time.sleep(0.01)


def test_a_claim_of_a_process_that_is_gone_is_taken_over_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "store.sqlite")
    process = CONTEXT.Process(target=claim_and_die, args=(path,))
    process.start()
    process.join(60)
    assert len(claims(path)) == 1
    assert ResponseStore(path).claim("a key")  # though its lease is an hour


def claim_and_die(path: str) -> None:
    assert ResponseStore(path, lease=3600.0).claim("a key")


def test_an_answered_request_cannot_be_claimed() -> None:
    store = ResponseStore(":memory:")
    request = {"model": "tiny"}
    assert store.claim(request_key(request))
    assert not store.claim(request_key(request))
    store.put(request, ANSWER)
    assert not store.claim(request_key(request))
