"""The response store: what is put is kept, by many writers at once, and travels as JSON lines without loss."""

import json
import lzma
import multiprocessing
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_notes.llm.store import Imported, Response, ResponseStore, StoreError, request_key

RESPONSE = Response("Paris", "stop", prompt_tokens=12, completion_tokens=3, seconds=0.25, retries=1)
PROCESSES, THREADS, ROWS = 3, 4, 50


def request(prompt: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0.1, "repeat": 0}


def filled(path: Path, texts: list[str]) -> ResponseStore:
    store = ResponseStore(path)
    for text in texts:
        store.put(request(text), Response(f"answer to {text}", "stop", 1, 2, 0.5))
    return store


def test_what_is_put_is_got_with_every_field(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "deep" / "er" / "store.sqlite")
    full = Response("Yes", "length", 5, 1, 1.5, retries=2, logprobs=(("Yes", -0.25), (" sir", -2.0)))
    assert store.get(request_key(request("a"))) is None
    assert store.put(request("a"), RESPONSE) == RESPONSE
    assert store.put(request("b"), full) == full
    store.close()
    again = ResponseStore(tmp_path / "deep" / "er" / "store.sqlite")
    assert again.get(request_key(request("a"))) == RESPONSE
    assert again.get(request_key(request("b"))) == full
    assert len(again) == 2


def test_the_key_depends_on_every_field_but_not_on_their_order() -> None:
    base = request("a")
    assert request_key(dict(reversed(base.items()))) == request_key(base)
    others = [base | {name: "other"} for name in base] + [base | {"more": 1}, {**base, "messages": []}]
    assert len({request_key(other) for other in [base, *others]}) == len(others) + 1


def test_the_first_response_wins() -> None:
    store = ResponseStore(":memory:")
    store.put(request("a"), RESPONSE)
    assert store.put(request("a"), Response("Rome", "stop", 1, 1, 9.0)) == RESPONSE
    assert store.get(request_key(request("a"))) == RESPONSE
    assert len(store) == 1


def write_from_threads(path: str, process: int, barrier: Any, errors: Any) -> None:
    """Half of the rows are this thread's own, half are written by every thread of every process."""
    barrier.wait()  # all open the new file at the same moment
    try:
        store = ResponseStore(path)
    except StoreError as error:
        errors.put(repr(error))
        return

    def write(thread: int) -> None:
        try:
            for row in range(ROWS):
                name = f"{row}" if row % 2 else f"{process} {thread} {row}"
                stored = store.put(request(name), Response(f"by {process} {thread}", "stop", 1, 1, 0.1))
                if store.get(request_key(request(name))) != stored:
                    errors.put(f"{name} changed after it was put")
        except Exception as error:
            errors.put(repr(error))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_processes_and_threads_write_at_once_without_error_or_loss(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, errors = context.Barrier(PROCESSES), context.Queue()
    path = str(tmp_path / "store.sqlite")
    processes = [
        context.Process(target=write_from_threads, args=(path, number, barrier, errors)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert errors.empty(), errors.get()
    store = ResponseStore(path)
    assert len(store) == PROCESSES * THREADS * ROWS // 2 + ROWS // 2
    assert store.verify() == []
    assert {response.text for _, _, response in store.rows()} <= {
        f"by {process} {thread}" for process in range(PROCESSES) for thread in range(THREADS)
    }


def test_a_store_that_another_process_holds_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "held.sqlite"
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    other.execute("CREATE TABLE other (x)")

    def wait(seconds: float) -> None:
        if other.in_transaction:
            other.execute("COMMIT")

    with monkeypatch.context() as patched:
        patched.setattr("rag_notes.llm.store._PATIENCE", 0)
        with pytest.raises(StoreError, match=r"held\.sqlite: another process holds it; end it or name another file"):
            ResponseStore(path)
        patched.setattr("rag_notes.llm.store._PATIENCE", 0.5)
        patched.setattr("rag_notes.llm.store.time.monotonic", lambda: 0.0)
        patched.setattr("rag_notes.llm.store.time.sleep", wait)
        store = ResponseStore(path)
    assert not other.in_transaction
    store.put(request("x"), RESPONSE)
    assert len(store) == 1


UNICODE = [
    "ascii",
    "中文问题？",
    "naïve 😀",
    'quote " and \\',
    "line\nbreak\r\n",
    "next\x85line",
    "para\u2029 sep\u2028 x\x0cy\x1cz",
]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.xz"])
def test_an_export_is_imported_whole_and_exported_again_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    first = filled(tmp_path / "a.sqlite", UNICODE)
    second = ResponseStore(tmp_path / "b.sqlite")
    assert first.export_jsonl(tmp_path / "one" / name) == len(UNICODE)
    assert second.import_jsonl(tmp_path / "one" / name) == Imported(len(UNICODE), 0)
    assert list(second.rows()) == list(first.rows())
    second.export_jsonl(tmp_path / "two" / name)
    assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert [path.name for path in (tmp_path / "two").iterdir()] == [name]
    assert second.import_jsonl(tmp_path / "one" / name) == Imported(0, len(UNICODE))


def test_the_lines_of_an_export_are_sorted_and_whole(tmp_path: Path) -> None:
    filled(tmp_path / "a.sqlite", ["x", "y", "z"]).export_jsonl(tmp_path / "out.jsonl")
    filled(tmp_path / "b.sqlite", ["z", "x", "y"]).export_jsonl(tmp_path / "other_order.jsonl")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "other_order.jsonl").read_bytes()
    items = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().split(b"\n")[:-1]]
    assert [item["key"] for item in items] == sorted(request_key(request(text)) for text in "xyz")
    assert items[0]["response"] == {
        "text": f"answer to {items[0]['request']['messages'][0]['content']}",
        "finish_reason": "stop",
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "seconds": 0.5,
        "retries": 0,
        "logprobs": None,
    }


def test_an_export_can_be_limited_to_some_keys(tmp_path: Path) -> None:
    store = filled(tmp_path / "a.sqlite", ["x", "y", "z"])
    assert store.export_jsonl(tmp_path / "out.jsonl", keys={request_key(request("y")), "no such key"}) == 1
    assert store.export_jsonl(tmp_path / "none.jsonl", keys=set()) == 0
    other = ResponseStore(":memory:")
    assert other.import_jsonl(tmp_path / "out.jsonl") == Imported(1, 0)
    assert other.import_jsonl(tmp_path / "none.jsonl") == Imported(0, 0)
    assert [text["messages"][0]["content"] for _, text, _ in other.rows()] == ["y"]


def test_an_import_keeps_what_the_store_already_has(tmp_path: Path) -> None:
    filled(tmp_path / "a.sqlite", ["x", "y"]).export_jsonl(tmp_path / "out.jsonl")
    store = ResponseStore(":memory:")
    store.put(request("x"), RESPONSE)
    assert store.import_jsonl(tmp_path / "out.jsonl") == Imported(1, 1)
    assert store.get(request_key(request("x"))) == RESPONSE
    assert store.get(request_key(request("y"))) == Response("answer to y", "stop", 1, 2, 0.5)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "edited request": lambda line: line.replace(b'"tiny"', b'"tinier"'),
    "edited key": lambda line: line.replace(b'"key":"', b'"key":"0'),
    "not JSON": lambda line: line[:-3],
    "no object": lambda line: b"[1, 2]",
    "no response": lambda line: line.replace(b'"response"', b'"answer"'),
    "response no object": lambda line: b'{"key": "k", "request": {}, "response": "Paris"}',
    "unknown field": lambda line: line.replace(b'"seconds"', b'"minutes"'),
    "no UTF-8": lambda line: line.replace(b"answer", b"\xff\xfe"),
    "empty": lambda line: b"",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_refused_by_file_and_line_and_nothing_is_imported(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "out.jsonl"
    filled(tmp_path / "a.sqlite", ["x", "y", "z"]).export_jsonl(path)
    lines = path.read_bytes().split(b"\n")
    changed = DAMAGES[damage](lines[1])
    assert changed != lines[1]
    path.write_bytes(b"\n".join([lines[0], changed, *lines[2:]]))
    store = ResponseStore(":memory:")
    with pytest.raises(StoreError, match=r"out\.jsonl, line 2: "):
        store.import_jsonl(path)
    assert len(store) == 0


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.xz"])
def test_a_truncated_or_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    filled(tmp_path / "a.sqlite", ["x", "y"]).export_jsonl(path)
    path.write_bytes(path.read_bytes()[:-20])
    store = ResponseStore(":memory:")
    with pytest.raises(StoreError, match=name):
        store.import_jsonl(path)
    assert len(store) == 0
    path.unlink()
    with pytest.raises(StoreError, match=f"{name}: no such recording"):
        store.import_jsonl(path)


def test_what_is_no_xz_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "out.xz").write_text("plain", encoding="utf-8")
    with pytest.raises(StoreError, match=r"out\.xz"):
        ResponseStore(":memory:").import_jsonl(tmp_path / "out.xz")
    (tmp_path / "binary.xz").write_bytes(lzma.compress(b"\xff\xfe\xfd"))
    with pytest.raises(StoreError, match=r"binary\.xz"):
        ResponseStore(":memory:").import_jsonl(tmp_path / "binary.xz")


def test_verify_finds_rows_that_were_tampered_with(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    filled(path, ["x", "y", "z"]).close()
    with sqlite3.connect(path) as db:
        db.execute("UPDATE responses SET request = replace(request, 'tiny', 'huge') WHERE request LIKE '%\"y\"%'")
        db.execute("UPDATE responses SET key = 'made up' WHERE request LIKE '%\"z\"%'")
    assert ResponseStore(path).verify() == sorted([request_key(request("y")), "made up"])


def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("shopping list\n" * 100, encoding="utf-8")
    with pytest.raises(StoreError, match=r"notes\.txt: not a response store"):
        ResponseStore(path)
    assert path.read_text(encoding="utf-8") == "shopping list\n" * 100
    with pytest.raises(StoreError, match="cannot be opened"):
        ResponseStore(tmp_path)
