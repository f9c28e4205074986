"""What is read back from a run's folder: today's records, those of version 0.1, and what is neither."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.events import Ask, Decision, Event, Found, Note, ParseFailure, Search, Stop, count
from rag_notes.running.records import (
    Condition,
    DatasetInfo,
    MethodInfo,
    Progress,
    RecordError,
    Run,
    RunInfo,
    Sample,
    SampleError,
)
from rag_notes.running.run_files import load_run, read_samples, write_info, write_samples
from rag_notes.types import QAPair, Question

TRACE: list[Event] = [
    Search("where?", 2, [Found("p1", "A", "One.", 1.5), Found("p2", "", "Zwei – 二.", 0.5, unread=True)]),
    Ask("note_init", "prompt", "a note", "stop", 10, 2, "key", [("a", -0.1), (" note", 0.0)]),
    Note("a note", kept=True),
    Ask("note_judge", "better?", "hm", "length", 5, 1, "key2"),
    ParseFailure("note_judge"),
    Note("", kept=False),
    Decision("complexity", "B"),
    Ask("answer_short", "cut"),
    Stop("max_step"),
]
QUESTION = Question(
    "q1", "Where?", ("there",), (QAPair("Where now?", ("here",)),), ("A",), ("p1",), "short", "bridge", 2
)
SAMPLES = [
    Sample("deepnote", QUESTION, "there", None, {"acc": 1.0}, count(TRACE), TRACE),
    Sample("vanilla", QUESTION, "", SampleError("LLMError", "no answer"), {}, count([]), []),
]
INFO = RunInfo(
    dataset=DatasetInfo("rivers", 1, "0" * 64),
    condition=Condition(noise_percent=40),
    methods={"deepnote": MethodInfo("m.deepnote", {"top_k": 5}, "c"), "vanilla": MethodInfo("m.vanilla", {}, "d")},
    retriever={"name": "bm25"},
    llm={"model": "tiny"},
    prompt_set="papers",
    prompts={"en/note_init": "h"},
    status="finished",
    samples=Progress(2, 2, 1),
    seconds={"deepnote": {"q1": 1.5}},
)
OLD_TRACE: list[dict[str, Any]] = [
    {"event": "search", "query": "where?", "top_k": 1, "hits": [{"id": "p", "title": "A", "text": "x", "score": 1.0}]},
    {"event": "ask", "stage": "note_judge", "prompt": "?", "response": "hm", "finish_reason": "stop"}
    | {"prompt_tokens": 5, "completion_tokens": 1, "key": "k"},
    {"event": "unreadable", "stage": "note_judge"},
    {"event": "ask", "stage": "answer_short", "prompt": "?"},
]
OLD_SAMPLE: dict[str, Any] = {
    "method": "vanilla",
    "question_id": "q1",
    "question": "Where?",
    "gold": ["there"],
    "type": "bridge",
    "answer": "",
    "error": "stage answer_short: no recorded response, and the network is forbidden",
    "metrics": {},
    "counts": {"searches": 1, "distinct_passages": 1, "steps": 0, "calls": 1, "prompt_tokens": 5}
    | {"completion_tokens": 1, "unreadable": 1, "empty_responses": 0, "truncated": 0},
    "trace": OLD_TRACE,
}
OLD_INFO: dict[str, Any] = {
    "status": "finished",
    "dataset": {"name": "mini-noise40", "questions": 1, "sha256": "0" * 64},
    "settings": {
        "methods": {"vanilla": {"function": "rag_notes.methods.vanilla.vanilla", "settings": {}, "source": "s"}},
        "retriever": {"name": "bm25", "noise_percent": 40},
        "llm": {"model": "tiny", "repeat": 2},
    },
    "prompts": {"en/answer_short": "h"},
    "given": ["limit=1"],
    "studies": ["robustness"],
    "samples": {"done": 1, "of": 1, "errors": 1},
    "usage": {"sent": 3, "stored": 1, "prompt_tokens": 9, "completion_tokens": 4, "retries": 1, "errors": 0, "cost": 0},
}


def written(folder: Path, info: dict[str, Any], *samples: dict[str, Any]) -> Path:
    (folder / "run.json").write_text(json.dumps(info), encoding="utf-8")
    (folder / "samples.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples), encoding="utf-8")
    return folder


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_info(tmp_path, INFO)
    write_samples(tmp_path / "samples.jsonl", SAMPLES)
    assert load_run(tmp_path) == Run(INFO, SAMPLES, tmp_path)
    before = (tmp_path / "samples.jsonl").read_bytes()
    write_samples(tmp_path / "samples.jsonl", load_run(tmp_path).samples)
    assert (tmp_path / "samples.jsonl").read_bytes() == before


def test_samples_are_those_of_the_file_when_it_was_read(tmp_path: Path) -> None:
    write_info(tmp_path, INFO)
    many = [replace(SAMPLES[0], question=replace(QUESTION, id=f"q{i}")) for i in range(3000)]
    write_samples(tmp_path / "samples.jsonl", [*many, SAMPLES[1]])
    run = load_run(tmp_path)
    write_samples(tmp_path / "samples.jsonl", SAMPLES)
    assert run.samples == [*many, SAMPLES[1]] and run.samples != [*many, SAMPLES[0]]
    assert list(run.samples)[::-1] == [SAMPLES[1], *many[::-1]]
    assert run.samples[-2:] == [many[-1], SAMPLES[1]]
    assert run.of("deepnote") == many and run.only(["vanilla"]).samples == [SAMPLES[1]]
    assert run.sample("deepnote", "q2999") == many[-1]
    with pytest.raises(KeyError, match="no sample of 'deepnote' on 'q3000'"):
        run.sample("deepnote", "q3000")


def test_what_stays_in_memory_of_a_large_run_is_bounded(tmp_path: Path) -> None:
    write_info(tmp_path, INFO)
    long = replace(SAMPLES[0], answer="x" * 10_000)
    write_samples(
        tmp_path / "samples.jsonl", (replace(long, question=replace(QUESTION, id=f"{i}")) for i in range(4000))
    )
    tracemalloc.start()
    run = load_run(tmp_path)
    assert sum(len(sample.answer) for sample in run.samples) == 40_000_000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000


def test_a_run_says_what_it_is_in_one_line_and_as_a_table() -> None:
    run = Run(INFO, SAMPLES)
    assert repr(run) == "Run('rivers-noise40', 'tiny', 2 methods, 2 of 2 answers, 1 errors, 'finished')"
    frame = run.frame()
    first = frame.iloc[0]
    assert (first["question"], first["gold"], first["answer"], first["model"]) == ("Where?", "there", "there", "tiny")
    assert (first["dataset"], first["acc"], first["seconds"]) == ("rivers-noise40", 1.0, 1.5)
    assert pd.isna(first["error"])
    assert frame.iloc[1]["error"] == "no answer"


def test_the_counts_of_a_trace() -> None:
    counts = count(TRACE)
    assert (counts.searches, counts.distinct_passages, counts.steps, counts.calls) == (1, 1, 1, 2)
    assert (counts.prompt_tokens, counts.completion_tokens) == (15, 3)
    assert (counts.parse_failures, counts.empty_responses, counts.truncated) == (1, 0, 1)


def test_records_of_the_first_version_are_read(tmp_path: Path) -> None:
    run = load_run(written(tmp_path, OLD_INFO, OLD_SAMPLE))
    assert (run.dataset, run.label, run.info.condition) == ("mini", "mini-noise40", Condition(noise_percent=40))
    assert (run.info.repeat, run.info.model, run.info.overrides) == (2, "tiny", ["limit=1"])
    assert (run.info.usage.calls, run.info.usage.retries) == (3, 1)
    (sample,) = run.samples
    assert (sample.question.id, sample.gold, sample.question.task) == ("q1", ["there"], "short")
    assert sample.error is not None
    assert (sample.error.kind, str(sample.error)) == ("RecordingMissError", OLD_SAMPLE["error"])
    assert sample.trace[2] == ParseFailure("note_judge")
    assert (sample.counts.parse_failures, sample.trace[3]) == (1, Ask("answer_short", "?"))
    judge = {"model": "large", "temperature": 0.0}
    settings = OLD_INFO["settings"] | {"llm": {"model": "tiny", "repeat": 2, "stage note_judge": judge}}
    staged = load_run(written(tmp_path, OLD_INFO | {"settings": settings}, OLD_SAMPLE))
    assert staged.info.llm == {"model": "tiny", "stages": {"note_judge": judge}}
    of_annotation = OLD_INFO | {"dataset": OLD_INFO["dataset"] | {"name": "mini-evidence"}}
    methods = {"evidence_of_vanilla": OLD_INFO["settings"]["methods"]["vanilla"]}
    of_annotation["settings"] = OLD_INFO["settings"] | {"methods": methods, "retriever": {"name": "none"}}
    run = load_run(written(tmp_path, of_annotation))
    assert (run.dataset, run.info.condition.annotates, run.methods) == ("mini", "evidence", ["vanilla"])


def new(**fields: Any) -> dict[str, Any]:
    question = {"id": "q1", "question": "Where?"}
    return {
        **{"method": "vanilla", "question": question, "answer": "", "error": None, "metrics": {}, "counts": {}},
        "trace": [],
        **fields,
    }


@pytest.mark.parametrize(
    ("sample", "said"),
    [
        (new(trace=[{"event": "dream"}]), "field trace.0: Input tag 'dream'"),
        (new(trace=[{"event": "note", "text": "x"}]), "field trace.0.note.kept: Field required"),
        (new(answer=7), "field answer"),
        ({"method": "vanilla"}, "field question: Field required"),
        ({key: value for key, value in OLD_SAMPLE.items() if key != "counts"}, "field counts: missing"),
        (OLD_SAMPLE | {"trace": [{"event": "dream"}]}, "field trace.0: Input tag 'dream'"),
    ],
)
def test_a_record_that_is_neither_names_file_line_and_field_and_stays(
    tmp_path: Path, sample: dict[str, Any], said: str
) -> None:
    folder = written(tmp_path, OLD_INFO, OLD_SAMPLE, new(), sample, new())
    before = (folder / "samples.jsonl").read_bytes()
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 3: not a sample: ") as error:
        load_run(folder)
    assert said in str(error.value)
    assert (folder / "samples.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("info", "said"),
    [
        ({}, "field dataset: Field required"),
        ({key: value for key, value in OLD_INFO.items() if key != "prompts"}, "field prompts: missing"),
        (OLD_INFO | {"samples": {"done": "many"}}, "field samples.done"),
    ],
)
def test_a_run_json_that_is_neither_names_the_field(tmp_path: Path, info: dict[str, Any], said: str) -> None:
    with pytest.raises(RecordError, match=r"run\.json: ") as error:
        load_run(written(tmp_path, info))
    assert said in str(error.value)


def test_a_folder_half_of_each_form_is_read_line_by_line(tmp_path: Path) -> None:
    samples, half_written = read_samples(written(tmp_path, OLD_INFO, OLD_SAMPLE, new()) / "samples.jsonl")
    assert ([sample.question.id for sample in samples], half_written) == (["q1", "q1"], 0)
