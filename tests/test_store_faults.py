"""A store that cannot be written or was damaged: found before a call is paid, named, and mended by the command."""

import asyncio
import json
import multiprocessing
import resource
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.llm.client import LLM, FatalLLMError
from rag_notes.llm.response import canonical_json
from rag_notes.llm.store import Response, ResponseStore, StoreError, request_key
from rag_notes.methods.vanilla import vanilla
from rag_notes.running.evaluate import evaluate
from rag_notes.running.run_files import load_run
from rag_notes.types import Question
from tests.loopback import Loopback
from tests.scripted import ScriptedRetriever

ANSWER = Response("Paris", "stop", 12, 3, 0.25)
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.test_store_faults"])


def request(prompt: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0.1, "repeat": 0}


def filled(path: Path, *prompts: str) -> ResponseStore:
    store = ResponseStore(path)
    for prompt in prompts:
        store.put(request(prompt), Response(f"answer to {prompt}", "stop", 1, 2, 0.5))
    return store


def limit_files(size: int) -> None:
    """Let no file of this process grow beyond `size` bytes, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def open_on_full_disk(path: str, results: Any) -> None:
    limit_files(1)
    try:
        ResponseStore(path)
    except StoreError as error:
        results.put(str(error))
    else:
        results.put("opened")


def run_on_filling_disk(path: str, folder: Path, base_url: str, results: Any) -> None:
    questions = [Question(f"q{number}", f"Question {number}?", ("x",)) for number in range(60)]

    async def run() -> None:
        async with LLM("tiny", store=ResponseStore(path), base_url=base_url, concurrency=2) as llm:
            await evaluate([vanilla], questions, ScriptedRetriever(lambda _: "ab"), llm, folder=folder, progress=False)

    limit_files(120_000)
    try:
        asyncio.run(run())
    except FatalLLMError as error:
        results.put(str(error))
    else:
        results.put("finished")


def told(target: Any, *arguments: Any) -> str:
    results = CONTEXT.Queue()
    process = CONTEXT.Process(target=target, args=(*arguments, results))
    process.start()
    said = results.get(timeout=60)
    process.join(60)
    return str(said)


def test_a_full_disk_is_found_when_the_store_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    filled(path, "x").close()
    assert "store.sqlite: the disk is full or failing" in told(open_on_full_disk, str(path))
    assert len(ResponseStore(path)) == 1


def test_a_disk_that_fills_up_ends_the_run_and_no_more_is_paid(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    with Loopback(tmp_path / "requests.log") as server:
        said = told(run_on_filling_disk, str(path), tmp_path / "run", server.base_url)
        sent = len(server.seen())
    assert "store.sqlite: the disk is full or failing" in said
    assert "the same command continues" in said
    kept = len(ResponseStore(path))
    assert 0 < kept < 60
    assert sent <= kept + 2  # what was under way when the disk was full: at most `concurrency`
    stopped = load_run(tmp_path / "run")
    assert stopped.info.status.startswith("stopped: ")
    assert stopped.info.samples.errors == 0


class Failing(ResponseStore):
    """A store whose disk is full for the first `failures` answers."""

    failures = 1

    def put(self, request: dict[str, Any], response: Response) -> Response:
        if self.failures:
            self.failures -= 1
            raise StoreError("there: the disk is full")
        return super().put(request, response)


def test_an_answer_that_could_not_be_stored_is_kept_and_stored_at_the_end(tmp_path: Path) -> None:
    store = Failing(":memory:")
    with Loopback(tmp_path / "requests.log") as server:

        async def use() -> None:
            async with LLM("tiny", store=store, base_url=server.base_url) as llm:
                with pytest.raises(FatalLLMError, match=r"disk is full .*nothing more is asked"):
                    await llm.ask("paid")
                with pytest.raises(FatalLLMError, match="nothing more is asked"):
                    await llm.ask("not paid")

        asyncio.run(use())
        assert len(server.seen()) == 1
    ((_, kept, _),) = store.rows()
    assert kept["messages"][0]["content"] == "paid"


def test_a_store_that_may_not_be_written_is_refused_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store.sqlite"
    filled(path, "x").close()
    connect = sqlite3.connect
    monkeypatch.setattr(  # the one who runs the tests may write anything
        "rag_notes.llm.store.sqlite3.connect",
        lambda path, **more: connect(f"file:{path}?mode=ro", **more | {"uri": True}),
    )
    with pytest.raises(StoreError, match=r"store\.sqlite: cannot be written .*writable or name another file"):
        ResponseStore(path)


def old_store(path: Path, *prompts: str, change: tuple[str, str] = ("", "")) -> None:
    """A store as it was before digests."""
    fields = {"text": "Paris", "finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.5}
    fields |= {"retries": 0, "logprobs": [["Paris", -0.5]]}
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE responses (key TEXT PRIMARY KEY, request TEXT, response TEXT) WITHOUT ROWID")
        for prompt in prompts:
            row = (request_key(request(prompt)), canonical_json(request(prompt)), canonical_json(fields))
            db.execute("INSERT INTO responses VALUES (?, ?, ?)", (*row[:2], row[2].replace(*change)))


def test_a_store_of_before_is_taken_as_it_is_and_gets_digests(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    old_store(path, "x", "y")
    store = ResponseStore(path)
    assert store.get(request_key(request("x"))) == Response("Paris", "stop", 1, 1, 0.5, 0, (("Paris", -0.5),))
    assert store.verify() == []
    store.put(request("z"), ANSWER)
    store.close()
    assert len(ResponseStore(path)) == 3


@pytest.mark.parametrize("bad", ["null", "NaN", "Infinity", "0.5"])
def test_a_bad_answer_that_an_old_store_holds_is_named_with_how_to_delete_it(
    tmp_path: Path, bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = tmp_path / "old.sqlite", request_key(request("x"))
    old_store(path, "x", change=("-0.5", bad))
    with pytest.raises(StoreError, match=rf"the response under {key} cannot be used .*rag-notes store drop"):
        ResponseStore(path).get(key)
    assert ResponseStore(path).verify() == [key]
    assert main(["store", "drop", str(path), key]) == 0
    assert capsys.readouterr().out == "1 responses dropped\n"
    assert ResponseStore(path).get(key) is None


def test_responses_are_dropped_by_a_text_of_their_prompt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store.sqlite"
    filled(path, 'Who wrote "Emma"?', 'Why "Emma"\nat all?', "100 % of what_", "Wer schrieb „Emma“?").close()
    assert main(["store", "drop", str(path), "--question", '"Emma"\nat', "--question", "0 %"]) == 0
    assert capsys.readouterr().out == "2 responses dropped\n"
    assert main(["store", "drop", str(path), "--question", "100 x of"]) == 0
    assert capsys.readouterr().out == "0 responses dropped\n"
    assert len(ResponseStore(path)) == 2
    assert main(["store", "drop", str(path)]) == 2
    assert "needs keys, or --question TEXT" in capsys.readouterr().err


def test_a_flipped_bit_in_a_response_is_found_by_verify_and_never_used(tmp_path: Path) -> None:
    path, key = tmp_path / "store.sqlite", request_key(request("x"))
    filled(path, "x", "y").close()
    with sqlite3.connect(path) as db:  # 't' and 'u' differ in one bit
        db.execute("UPDATE responses SET response = replace(response, 'answer to x', 'answer uo x')")
    store = ResponseStore(path)
    assert store.verify() == [key]
    with pytest.raises(StoreError, match="changed after it was stored"):
        store.get(key)
    with pytest.raises(StoreError, match="changed after it was stored"):
        store.export_jsonl(tmp_path / "out.jsonl")
    assert store.get(request_key(request("y"))) is not None
    assert main(["store", "verify", str(path)]) == 1


def test_a_bad_answer_in_the_store_ends_a_run_instead_of_failing_its_questions(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    llm = LLM("tiny", store=ResponseStore(path))
    llm.store.put(llm.request("x"), ANSWER)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE responses SET response = replace(response, 'Paris', 'Patis')")
    with pytest.raises(FatalLLMError, match="changed after it was stored"):
        asyncio.run(llm.ask("x"))


def test_rows_are_read_page_by_page_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rag_notes.llm.store._PAGE", 2)
    store = filled(tmp_path / "store.sqlite", *"abcde")
    rows = store.rows()
    first = next(rows)
    store.put(request("f"), ANSWER)
    keys = [first[0], *(key for key, _, _ in rows)]
    assert keys == sorted(keys)
    assert {request_key(request(prompt)) for prompt in "abcde"} <= set(keys)
    assert [json.dumps(row[1]["repeat"]) for row in store.rows()] == ["0"] * 6
