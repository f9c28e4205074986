"""Recordings: what was forged, damaged or made to exhaust the reader is refused by line; read once, then found."""

import hashlib
import json
import lzma
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rag_notes.events import Ask
from rag_notes.llm import recording
from rag_notes.llm.client import LLM, RecordingMissError
from rag_notes.llm.response import canonical_json
from rag_notes.llm.sources import recorded
from rag_notes.llm.store import Imported, Response, ResponseStore, StoreError, request_key
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.bm25 import bm25
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Sample
from rag_notes.types import Passage, Question
from tests.scripted import asked

RECORDINGS = Path(__file__).parents[1] / "data" / "recordings"


def request(prompt: str) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": prompt}], "temperature": 0.1, "repeat": 0}


def recording_of(path: Path, *prompts: str) -> Path:
    store = ResponseStore(":memory:")
    for prompt in prompts:
        store.put(request(prompt), Response(f"answer to {prompt}", "stop", 1, 2, 0.5, logprobs=(("an", -0.5),)))
    store.export_jsonl(path)
    return path


def unsigned(line: bytes) -> bytes:
    """A line as it was before digests."""
    return canonical_json({key: value for key, value in json.loads(line).items() if key != "sha256"}).encode()


def edited(line: bytes, **fields: Any) -> bytes:
    item = json.loads(unsigned(line))
    item["response"] |= fields
    return json.dumps(item).encode()


def with_request(line: bytes, value: str) -> bytes:
    """A line whose request has a further field, under the key that a forger would compute where there is one."""
    text = canonical_json(request("y"))[:-1] + f',"x":{value}}}'
    try:
        key = request_key(json.loads(text))
    except (ValueError, RecursionError):
        key = "k"
    response = canonical_json(json.loads(line)["response"])
    return f'{{"key":"{key}","request":{text},"response":{response}}}'.encode()


def test_every_line_carries_a_digest_over_key_request_and_response(tmp_path: Path) -> None:
    path = recording_of(tmp_path / "r.jsonl", "x")
    item = json.loads(path.read_bytes())
    texts = [item["key"], canonical_json(item["request"]), canonical_json(item["response"])]
    assert item["sha256"] == hashlib.sha256("\n".join(texts).encode()).hexdigest()


def test_lines_of_before_are_read_and_counted_as_unchecked(tmp_path: Path) -> None:
    path = recording_of(tmp_path / "r.jsonl", "x", "y")
    first, second = path.read_bytes().splitlines()
    path.write_bytes(unsigned(first) + b"\n" + second + b"\n")
    store = ResponseStore(":memory:")
    assert store.import_jsonl(path) == Imported(2, 0, unchecked=1)
    assert store.verify() == []


FORGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "a forged answer": (lambda line: line.replace(b"answer to", b"anSwer to"), "was it edited"),
    "a forged answer with more tokens": (
        lambda line: line.replace(b'"prompt_tokens":1', b'"prompt_tokens":9'),
        "edited",
    ),
    "NaN": (lambda line: edited(line, seconds=float("nan")), "NaN is not JSON"),
    "Infinity": (lambda line: edited(line, seconds=float("inf")), "Infinity is not JSON"),
    "an infinite number": (lambda line: edited(line).replace(b"0.5", b"1e999"), "seconds|log-probability"),
    "an infinite setting": (lambda line: with_request(line, "1e999"), "Infinity"),
    "a log-probability of null": (lambda line: edited(line, logprobs=[["an", None]]), "log-probability"),
    "a log-probability above 0": (lambda line: edited(line, logprobs=[["an", 3.5]]), "log-probability"),
    "a negative count": (lambda line: edited(line, completion_tokens=-1), "completion_tokens is -1"),
    "a count of true": (lambda line: edited(line, prompt_tokens=True), "prompt_tokens is True"),
    "a text of null": (lambda line: edited(line, text=None), "text is None"),
    "deep nesting": (lambda line: with_request(line, "[" * 100_000 + "]" * 100_000), "nested too deeply"),
    "a number of 5,000 digits": (lambda line: with_request(line, "9" * 5000), "digits"),
    "half a surrogate pair": (lambda line: with_request(line, '"\\ud800"'), "surrogates not allowed"),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_what_is_no_recorded_response_is_refused_by_file_and_line(tmp_path: Path, forgery: str) -> None:
    change, message = FORGED[forgery]
    path = recording_of(tmp_path / "r.jsonl", "x", "y", "z")
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], change(lines[1]), *lines[2:]]))
    store = ResponseStore(":memory:")
    with pytest.raises(StoreError, match=rf"r\.jsonl, line 2: .*({message})"):
        store.import_jsonl(path)
    assert len(store) == 0


def test_a_key_with_two_responses_is_refused_and_a_line_twice_counts_once(tmp_path: Path) -> None:
    path = recording_of(tmp_path / "r.jsonl", "x")
    line = path.read_bytes().rstrip()
    path.write_bytes(b"\n".join([line, line]))
    assert ResponseStore(":memory:").import_jsonl(path) == Imported(1, 0)
    path.write_bytes(b"\n".join([line, edited(line, text="another")]))
    with pytest.raises(StoreError, match=r"line 2: another response to a request that has one before"):
        ResponseStore(":memory:").import_jsonl(path)


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_while_it_is_read(tmp_path: Path) -> None:
    path, unit = tmp_path / "bomb.jsonl.xz", b" " * (1 << 20)
    compressor = lzma.LZMACompressor(preset=0)
    with path.open("wb") as file:
        file.write(compressor.compress(b"{"))
        for _ in range(200):
            file.write(compressor.compress(unit))
        file.write(compressor.flush())
    assert path.stat().st_size < 100_000
    with pytest.raises(StoreError, match=r"bomb\.jsonl\.xz, line 1: longer than 16,000,000 bytes"):
        ResponseStore(":memory:").import_jsonl(path)
    many = recording_of(tmp_path / "many.jsonl.xz", *(f"{number}" for number in range(50)))
    with pytest.raises(
        StoreError, match=r"many\.jsonl\.xz, line \d+: unpacks to more than 5,000 bytes; raise llm\.max"
    ):
        recorded(model="tiny", recordings=[str(many)], cache=str(tmp_path / "cache"), max_unpacked=5000)


def test_a_manifest_beside_a_recording_is_checked_and_kept_up_to_date(tmp_path: Path) -> None:
    path = recording_of(tmp_path / "r.jsonl", "x", "y")
    manifest = tmp_path / "MANIFEST.json"
    manifest.write_text(json.dumps({"r.jsonl": {"sha256": "0" * 64}, "other.xz": {"sha256": "1"}}), encoding="utf-8")
    for read in (ResponseStore(":memory:").import_jsonl, lambda path: recorded(model="m", recordings=[str(path)])):
        with pytest.raises(StoreError, match=r"r\.jsonl: its SHA-256 is .*MANIFEST\.json says 0000"):
            read(path)
    recording_of(path, "x", "y", "z")
    stated = json.loads(manifest.read_text(encoding="utf-8"))
    assert stated["r.jsonl"] == {"responses": 3, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    assert stated["other.xz"] == {"sha256": "1"}
    assert ResponseStore(":memory:").import_jsonl(path).added == 3
    manifest.write_text("[]", encoding="utf-8")
    with pytest.raises(StoreError, match=r"MANIFEST\.json: not a manifest"):
        ResponseStore(":memory:").import_jsonl(path)


def test_our_recordings_are_those_of_their_manifest() -> None:
    stated = json.loads((RECORDINGS / recording.MANIFEST).read_text(encoding="utf-8"))
    files = {path.name for path in RECORDINGS.iterdir()} - {"README.md", recording.MANIFEST}
    assert set(stated) == files
    for name in files:
        assert recording.check_manifest(RECORDINGS / name) == stated[name]["sha256"]


# Read once


def test_a_recording_is_imported_once_and_found_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = recording_of(tmp_path / "r.jsonl.xz", "x", "y"), tmp_path / "cache"
    first = recorded(model="tiny", recordings=[str(path)], cache=str(cache))
    rows = list(first.store.rows())
    assert len(rows) == 2

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("the recording was read again")

    with monkeypatch.context() as patched:
        patched.setattr("rag_notes.llm.store.read_recording", refuse)
        again = recorded(model="tiny", recordings=[str(path)], cache=str(cache))
        assert list(again.store.rows()) == rows
        with pytest.raises(StoreError, match="cannot be written"):
            again.store.put(request("z"), rows[0][2])
        recording_of(path, "x", "y", "z")
        with pytest.raises(AssertionError, match="read again"):  # another file under the same name
            recorded(model="tiny", recordings=[str(path)], cache=str(cache))
    assert len(recorded(model="tiny", recordings=[str(path)], cache=str(cache)).store) == 3
    assert len(list(cache.glob("*.sqlite"))) == 2
    assert list(cache.glob("*.part*")) == []


def test_a_cached_recording_that_was_changed_is_not_used(tmp_path: Path) -> None:
    path, cache = recording_of(tmp_path / "r.jsonl", "x"), tmp_path / "cache"
    recorded(model="tiny", recordings=[str(path)], cache=str(cache))
    (cached,) = cache.glob("*.sqlite")
    data = cached.read_bytes()
    assert b"answer to x" in data
    cached.write_bytes(data.replace(b"answer to x", b"answer to y"))
    llm = recorded(model="tiny", recordings=[str(path)], cache=str(cache))
    with pytest.raises(StoreError, match="changed after it was stored"):
        llm.store.get(request_key(request("x")))


def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = recording_of(tmp_path / "r.jsonl", "x")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(StoreError, match=r"llm\.cache=FOLDER.*llm\.cache=null"):
        recorded(model="tiny", recordings=[str(path)], cache=str(tmp_path / "file" / "cache"))
    assert len(recorded(model="tiny", recordings=[str(path)], cache=None).store) == 1


def test_a_recorded_model_never_touches_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"the network was touched: {arguments}")

    questions = [Question("q7", "Where is Paris?", ("France",)), Question("q8", "Where is Rome?", ("Italy",))]
    retriever = bm25([Passage("p1", "Paris", "Paris is a city in France.")], cache=None)
    bare = recorded(model="tiny", recordings=[])
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)

    async def miss(llm: LLM) -> list[Sample]:
        return list((await evaluate([vanilla], questions, retriever, llm, progress=False)).samples)

    samples = asked(bare, miss)
    assert [str(sample.error) for sample in samples] == [
        f"stage answer_short of vanilla on {question}: no recorded response, and the network is forbidden; to go live "
        "choose another model source, for example llm=openai or llm=local"
        for question in ("q7", "q8")
    ]
    for sample in samples:
        prompt = next(event.prompt for event in sample.trace if isinstance(event, Ask))
        bare.store.put(bare.request(prompt), Response("France", "stop", 1, 1, 0.1))
    bare.store.export_jsonl(tmp_path / "recording.jsonl.xz")
    full = recorded(model="tiny", recordings=[str(tmp_path / "recording.jsonl.xz")])
    assert [sample.answer for sample in asked(full, miss)] == ["France", "France"]
    with pytest.raises(RecordingMissError, match="the network is forbidden"):
        asked(full, lambda llm: llm.ask("something else"))


def test_a_recording_is_read_from_several_files(tmp_path: Path) -> None:
    for name in ("x", "y"):
        llm = recorded(model="tiny", recordings=[])
        llm.store.put(llm.request(name), Response(f"answer to {name}", "stop", 1, 2, 0.5))
        llm.store.export_jsonl(tmp_path / f"{name}.jsonl.xz")
    both = recorded(model="tiny", recordings=[str(tmp_path / f"{name}.jsonl.xz") for name in "xy"])

    async def use(llm: LLM) -> list[str]:
        return [(await llm.ask(name)).text for name in "xy"]

    assert asked(both, use) == ["answer to x", "answer to y"]
    (tmp_path / "edited.jsonl").write_text(json.dumps({"key": "0", "request": {}, "response": {}}), encoding="utf-8")
    with pytest.raises(StoreError, match=r"edited\.jsonl, line 1"):
        recorded(model="tiny", recordings=[str(tmp_path / "edited.jsonl")])
