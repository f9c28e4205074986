"""Requests under way are claimed in the store: processes that share one make each request once."""

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.client import LLM, LLMError
from rag_notes.llm.store import Response, ResponseStore, request_key
from tests.loopback import Loopback

ANSWER = Response("Paris", "stop", 1, 1, 0.1)


def claims(path: str | Path) -> list[Any]:
    with sqlite3.connect(path) as db:
        return db.execute("SELECT * FROM claims").fetchall()


def test_a_claim_keeps_others_from_asking_until_the_answer_is_there(tmp_path: Path) -> None:
    first, second = (ResponseStore(tmp_path / "store.sqlite") for _ in range(2))
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> Response:
            async with LLM("tiny", store=second, base_url=server.base_url) as llm:
                request = llm.request("asked elsewhere")
                with first.claim(request_key(request)) as claimed:
                    assert claimed
                    waiting = asyncio.create_task(llm.ask("asked elsewhere"))
                    assert (await llm.ask("something else")).text  # waiting does not hold up the loop
                    assert not waiting.done()
                    first.put(request, ANSWER)
                return await waiting

        assert asyncio.run(use()) == ANSWER
        assert len(server.seen()) == 1


def test_calls_that_fail_or_are_given_up_give_their_claims_back(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> None:
            async with LLM("tiny", store=str(path), base_url=server.base_url, max_retries=0) as llm:
                with pytest.raises(LLMError):
                    await llm.ask("broken <500>")
                assert claims(path) == []
                stalled = asyncio.create_task(llm.ask("stalled <hang>"))
                await asyncio.to_thread(server.when_seen(2).recv, 1)
                assert len(claims(path)) == 1
            with pytest.raises(asyncio.CancelledError):
                await stalled

        asyncio.run(use())
    assert claims(path) == []


def test_the_claim_of_a_call_is_renewed_even_while_the_event_loop_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> None:
            async with LLM("tiny", store=ResponseStore(path, lease=0.3), base_url=server.base_url) as llm:
                stalled = asyncio.create_task(llm.ask("stalled <hang>"))
                await asyncio.to_thread(server.when_seen(1).recv, 1)
                before, deadline = claims(path), time.monotonic() + 30
                while claims(path) == before:  # which keeps the event loop busy
                    assert time.monotonic() < deadline, "the claim is not renewed"
            stalled.cancel()

        asyncio.run(use())


def test_claims_end_by_an_answer_with_their_block_or_with_their_lease(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = (ResponseStore(tmp_path / "store.sqlite", lease=5.0) for _ in range(2))
    request = {"model": "tiny"}
    key = request_key(request)

    def is_free(store: ResponseStore) -> bool:
        with store.claim(key) as claimed:
            return claimed

    with first.claim(key) as claimed:
        assert claimed
        assert not is_free(second)
        ((_, _, until),) = claims(tmp_path / "store.sqlite")
        monkeypatch.setattr("time.time", lambda: until + 0.1)
        late = second.claim(key)
        assert late.__enter__()
    assert not is_free(first)  # its end did not end the later claim of the other store
    late.__exit__(None, None, None)
    monkeypatch.undo()
    assert is_free(first)
    first.put(request, ANSWER)
    assert not is_free(second)
