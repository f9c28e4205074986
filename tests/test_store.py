"""The response store and recordings: what is put is kept, by many writers at once, and travels without loss."""

import json
import lzma
import multiprocessing
import resource
import signal
import socket
import sqlite3
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from rag_notes.cli import main
from rag_notes.files import checksum_of
from rag_notes.llm.client import LLM, FatalLLMError, RecordingMissError
from rag_notes.llm.store import Response, ResponseStore, StoreError, canonical_json, request_key
from tests.scripted import asked

RESPONSE = Response("Paris", "stop", prompt_tokens=12, completion_tokens=3, seconds=0.25, retries=1)
FULL = Response(
    "Yes", "length", 5, 9, 1.5, 2, (("Yes", -0.25), (" sir", -2.0)), "Hm.", 8, "m-2024", "m", "127.0.0.1:8000"
)
RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def request(prompt: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0.1, "repeat": 0}


def filled(path: str | Path, *prompts: str) -> ResponseStore:
    store = ResponseStore(path)
    for prompt in prompts:
        store.put(request(prompt), Response(f"answer to {prompt}", "stop", 1, 2, 0.5))
    return store


def recording_of(path: Path, *prompts: str) -> Path:
    filled(":memory:", *prompts).export_jsonl(path)
    return path


def test_what_is_put_is_got_with_every_field_and_the_first_response_wins(tmp_path: Path) -> None:
    store = ResponseStore(tmp_path / "deep" / "er" / "store.sqlite")
    assert store.get(request_key(request("a"))) is None
    assert store.put(request("a"), RESPONSE) == RESPONSE
    assert store.put(request("b"), FULL) == FULL
    assert store.put(request("a"), Response("Rome", "stop", 1, 1, 9.0)) == RESPONSE
    store.close()
    again = ResponseStore(tmp_path / "deep" / "er" / "store.sqlite")
    assert [again.get(request_key(request(prompt))) for prompt in "ab"] == [RESPONSE, FULL]
    assert len(again) == 2


UNICODE = ["中文问题？", "naïve 😀", 'quote " and \\', "line\nbreak\r\n", "next\x85line", "p\u2029s\u2028x\x0cy\x1c"]


@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.xz"])
def test_an_export_is_imported_whole_and_exported_again_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    first, second = filled(":memory:", *UNICODE), ResponseStore(":memory:")
    first.put(request("full"), FULL)
    assert first.export_jsonl(tmp_path / "one" / name) == len(UNICODE) + 1
    assert second.import_jsonl(tmp_path / "one" / name) == len(UNICODE) + 1
    assert list(second.rows()) == list(first.rows())
    second.export_jsonl(tmp_path / "two" / name)
    assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert [path.name for path in (tmp_path / "two").iterdir()] == [name]
    assert second.import_jsonl(tmp_path / "one" / name) == 0


def test_the_lines_of_an_export_are_sorted(tmp_path: Path) -> None:
    recording_of(tmp_path / "out.jsonl", "x", "y", "z")
    recording_of(tmp_path / "other_order.jsonl", "z", "x", "y")
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "other_order.jsonl").read_bytes()
    items = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [item["key"] for item in items] == sorted(request_key(request(prompt)) for prompt in "xyz")
    fields = {"finish_reason": "stop", "prompt_tokens": 1, "completion_tokens": 2, "seconds": 0.5, "retries": 0}
    text = f"answer to {items[0]['request']['messages'][0]['content']}"
    assert items[0]["response"] == {"text": text, "logprobs": None, **fields}
    other = ResponseStore(":memory:")
    other.put(request("y"), RESPONSE)  # what is there stays
    assert (other.import_jsonl(tmp_path / "out.jsonl"), other.import_jsonl(tmp_path / "out.jsonl")) == (2, 0)
    assert other.get(request_key(request("y"))) == RESPONSE


def edited(line: bytes, **fields: Any) -> bytes:
    item = json.loads(line)
    return json.dumps(item | {"response": item["response"] | fields}).encode()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "edited request": lambda line: line.replace(b'"tiny"', b'"tinier"'),
    "not JSON": lambda line: line[:-3],
    "missing field": lambda line: line.replace(b'"seconds"', b'"minutes"'),
    "no UTF-8": lambda line: line.replace(b"answer", b"\xff\xfe"),
    "NaN": lambda line: edited(line, seconds=float("nan")),
    "a log-probability of null": lambda line: edited(line, logprobs=[["an", None]]),
    "a negative count": lambda line: edited(line, completion_tokens=-1),
    "deep nesting": lambda line: line.replace(b'"tiny"', b"[" * 100_000 + b"]" * 100_000),
    "half a surrogate pair": lambda line: line.replace(b'"tiny"', b'"\\ud800"'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_line_is_refused_by_file_and_line_and_nothing_is_imported(tmp_path: Path, damage: str) -> None:
    path = recording_of(tmp_path / "out.jsonl", "x", "y", "z")
    lines = path.read_bytes().split(b"\n")
    changed = DAMAGES[damage](lines[1])
    assert changed != lines[1]
    path.write_bytes(b"\n".join([lines[0], changed, *lines[2:]]))
    store = ResponseStore(":memory:")
    with pytest.raises(StoreError, match=r"out\.jsonl, line 2: "):
        store.import_jsonl(path)
    assert len(store) == 0
    assert store.put(request("x"), RESPONSE) == RESPONSE  # it can still be used


@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.xz"])
def test_a_truncated_or_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = recording_of(tmp_path / name, "x", "y")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StoreError, match=name):
        ResponseStore(":memory:").import_jsonl(path)
    path.unlink()
    with pytest.raises(StoreError, match=f"{name}: no such recording"):
        ResponseStore(":memory:").import_jsonl(path)
    for content in (b"plain", lzma.compress(b"\xff\xfe\xfd")):
        (tmp_path / "no.xz").write_bytes(content)
        with pytest.raises(StoreError, match=r"no\.xz"):
            ResponseStore(":memory:").import_jsonl(tmp_path / "no.xz")


# Recordings


def test_a_recording_is_imported_once_and_found_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, cache = [str(recording_of(tmp_path / f"{name}.jsonl.xz", name)) for name in "xy"], str(tmp_path / "cache")
    rows = list(LLM("tiny", recordings=paths, cache=cache).store.rows())
    assert len(rows) == 2
    with monkeypatch.context() as patched:
        patched.setattr(ResponseStore, "import_jsonl", lambda self, path: pytest.fail("it was read again"))
        again = LLM("tiny", recordings=paths, cache=cache)
        assert list(again.store.rows()) == rows
        with pytest.raises(StoreError, match="writable"):
            again.store.put(request("z"), rows[0][2])
    recording_of(tmp_path / "y.jsonl.xz", "y", "z")  # another file under the same name
    assert len(LLM("tiny", recordings=paths, cache=cache).store) == 3
    assert sorted(path.suffix for path in Path(cache).iterdir()) == [".lock", ".lock", ".sqlite", ".sqlite"]
    assert len(LLM("tiny", recordings=paths, cache=None).store) == 3


def test_a_recorded_model_never_touches_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((socket.socket, "connect"), (socket.socket, "connect_ex"), (socket, "getaddrinfo")):
        monkeypatch.setattr(owner, name, Mock(side_effect=AssertionError("the network was touched")))
    store = ResponseStore(":memory:")
    store.put(LLM("tiny", store=store).request("known"), RESPONSE)
    store.export_jsonl(tmp_path / "r.jsonl")
    llm = LLM("tiny", recordings=[str(tmp_path / "r.jsonl")], cache=None, base_url="http://127.0.0.1:9/v1")
    assert asked(llm, lambda llm: llm.ask("known")) == RESPONSE
    with pytest.raises(RecordingMissError, match="no recorded response, and the network is forbidden"):
        asked(llm, lambda llm: llm.ask("unknown"))


def test_our_recordings_are_those_of_their_checksums() -> None:
    lines = (RECORDINGS / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{checksum_of(path)}  {path.name}" for path in sorted(RECORDINGS.glob("*.jsonl.xz"))]


# Files that cannot be used as they are


def test_stores_of_before_are_read_and_written_as_they_are(tmp_path: Path) -> None:
    for columns in ("", ", digest TEXT"):
        path = tmp_path / f"old{len(columns)}.sqlite"
        with sqlite3.connect(path) as db:
            table = "key TEXT PRIMARY KEY, request TEXT NOT NULL, response TEXT NOT NULL"
            db.execute(f"CREATE TABLE responses ({table}{columns}) WITHOUT ROWID")
            row = (request_key(request("x")), canonical_json(request("x")), FULL.to_json())
            db.execute("INSERT INTO responses (key, request, response) VALUES (?, ?, ?)", row)
        store = ResponseStore(path)
        store.put(request("y"), RESPONSE)
        assert store.claim(request_key(request("z")))
        assert [store.get(request_key(request(prompt))) for prompt in "xy"] == [FULL, RESPONSE]


def test_a_bad_answer_ends_a_run_and_says_how_to_delete_it_and_others_are_deleted_by_their_prompt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "store.sqlite"
    llm = LLM("tiny", store=str(path))
    key = request_key(llm.request("x"))
    llm.store.put(llm.request("x"), RESPONSE)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE responses SET response = replace(response, '0.25', 'null')")
    with pytest.raises(FatalLLMError, match=rf"the response under {key} cannot be used .*rag-notes store drop"):
        asked(llm, lambda llm: llm.ask("x"))
    filled(path, 'Who wrote "Emma"?', 'Why "Emma"\nat all?', "100 % of what_", "Wer schrieb „Emma“?")
    for what in ([key], ["--question", '"Emma"\nat', "--question", "0 %"], ["--question", "100 x of"]):
        assert main(["store", "drop", str(path), *what]) == 0
    assert capsys.readouterr().out == "1 responses dropped\n2 responses dropped\n0 responses dropped\n"
    assert (llm.store.get(key), len(llm.store)) == (None, 2)


def test_a_file_that_cannot_be_used_is_named_and_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("shopping list\n" * 100, encoding="utf-8")
    with pytest.raises(StoreError, match=r"notes\.txt: cannot be used \(file is not a database\)"):
        ResponseStore(path)
    assert path.read_text(encoding="utf-8") == "shopping list\n" * 100
    with pytest.raises(StoreError, match="file and folder writable"):
        ResponseStore(tmp_path)
    connect, held = sqlite3.connect, sqlite3.connect(tmp_path / "held.sqlite", isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(sqlite3, "connect", lambda path, **more: connect(path, **more | {"timeout": 0}))
    with pytest.raises(StoreError, match=r"held\.sqlite: .*locked.* end what holds it, or name another file"):
        ResponseStore(tmp_path / "held.sqlite")


def open_on_full_disk(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    ResponseStore(path)


def test_a_full_disk_is_found_when_the_store_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    filled(path, "x").close()
    with (
        ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes,
        pytest.raises(StoreError, match=r"store\.sqlite: cannot be used \(disk I/O error\); make room"),
    ):
        processes.submit(open_on_full_disk, path).result(60)
    assert len(ResponseStore(path)) == 1
