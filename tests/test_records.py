"""What is read back from a run's folder, as samples and as a frame; repeats as one; and what is no run."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.events import Ask, Counts, Decision, Event, Found, Note, ParseFailure, Search, Stop, count
from rag_notes.running.publish import published_runs
from rag_notes.running.records import (
    Condition,
    DatasetInfo,
    MethodInfo,
    Run,
    RunInfo,
    load_run,
    pooled_frames,
    run_folders,
    save_run,
)
from rag_notes.running.samples import RecordError, Sample, SampleError, encode
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
    "q1", "Where?", ("there", "here"), (QAPair("Where now?", ("here",)),), ("A",), ("p1",), "short", "bridge", 2
)
SAMPLES = [
    Sample("deepnote", QUESTION, "there", None, {"acc": 1.0, "f1": 0.5}, count(TRACE), TRACE, 1.5),
    Sample("deepnote", replace(QUESTION, id="q2"), "x", None, {"acc": 0.0, "cost": 0.25}, Counts(), [TRACE[4]]),
    Sample("vanilla", QUESTION, "", SampleError("KeyError", "'x'", "a.py:1 in f\nb.py:2 in g"), {}, Counts(), []),
]
INFO = RunInfo(
    dataset=DatasetInfo("rivers", 2, "0" * 64),
    condition=Condition(noise_percent=40),
    methods={"deepnote": MethodInfo("m.deepnote", {"top_k": 5}, "DeepNote"), "vanilla": MethodInfo("m.vanilla", {})},
    retriever={"name": "bm25"},
    llm={"model": "tiny"},
    prompt_set="papers",
    prompts={"en/note_init": "h"},
    status="finished",
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return save_run(tmp_path / "run", INFO, map(encode, SAMPLES))


def test_a_run_is_read_as_it_was_written(run: Run) -> None:
    assert run.folder is not None
    again = load_run(run.folder)
    assert again.info == INFO and list(again.samples) == list(again.samples) == SAMPLES
    assert [path.name for path in sorted(run.folder.iterdir())] == ["run.json", "samples.jsonl"]
    before = (run.folder / "samples.jsonl").read_bytes()
    save_run(run.folder, again.info, map(encode, SAMPLES))
    assert (run.folder / "samples.jsonl").read_bytes() == before
    assert run_folders(run.folder.parent) == [run.folder]


@pytest.mark.parametrize("in_memory", [True, False])
def test_parts_of_a_run_are_found(run: Run, in_memory: bool) -> None:
    if in_memory:
        run = Run(INFO, SAMPLES)
    assert run.of("deepnote") == SAMPLES[:2] and list(run.only(["vanilla"]).samples) == SAMPLES[2:]
    assert run.only(["vanilla"]).methods == ["vanilla"] and run.only(["vanilla"]).frame()["method"].eq("vanilla").all()
    assert run.sample("deepnote", "q2") == SAMPLES[1] and run.sample("vanilla", "q1").gold == ["there", "here"]
    with pytest.raises(KeyError, match="no sample of 'vanilla' on 'q2'"):
        run.sample("vanilla", "q2")
    with pytest.raises(KeyError):
        run.only(["amber"])
    assert repr(run) == "Run('rivers-noise40', 'tiny', 2 methods, 2 questions, 'finished')"


def test_a_frame_has_a_row_for_each_answer(run: Run) -> None:
    frame = run.frame()
    pd.testing.assert_frame_equal(frame, Run(INFO, SAMPLES).frame())
    first, second, failed = frame.to_dict("records")
    settings = {"dataset": "rivers-noise40", "model": "tiny", "noise_percent": 40, "repeat": 0, "method": "deepnote"}
    question = {"question_id": "q1", "cluster": "q1", "type": "bridge", "hops": 2, "task": "short"}
    answer = {"question": "Where?", "gold": "there; here", "answer": "there", "correctness": "right"}
    counts = {"searches": 1, "distinct_passages": 1, "steps": 1, "calls": 2, "truncated": 1, "tokens": 18}
    expected = settings | question | answer | counts | {"acc": 1.0, "f1": 0.5, "seconds": 1.5}
    assert {name: first[name] for name in expected} == expected
    assert list(frame.columns[:6]) == [*settings, "question_id"] and pd.isna([first["cost"], first["error"]]).all()
    assert (second["cluster"], second["correctness"], second["cost"]) == ("q1", "parse failure", 0.25)
    assert (failed["error"], failed["error_kind"]) == ("KeyError: 'x' (b.py:2 in g)", "KeyError")
    frame["acc"] = 0.5
    assert run.frame()["acc"].tolist()[:2] == [1.0, 0.0]  # a frame is the caller's own
    assert replace(run, table=frame).frame()["acc"].eq(0.5).all()
    assert Run(INFO).frame().empty and "method" in Run(INFO).frame()


def test_a_frame_of_many_answers_is_that_of_its_parts(tmp_path: Path) -> None:
    questions = [replace(QUESTION, id=f"q{number}", gold_ids=(f"p{number // 2}",)) for number in range(5000)]
    samples = [replace(SAMPLES[number % 2], question=question) for number, question in enumerate(questions)]
    frame = save_run(tmp_path, INFO, map(encode, samples)).frame()
    assert len(frame) == 5000 and frame["cluster"].nunique() == 2500
    assert frame["question_id"].tolist() == [question.id for question in questions]
    assert (frame["acc"].sum(), frame["f1"].count(), frame["cost"].count()) == (2500, 2500, 2500)


UNREAD: list[Event] = [ParseFailure("chain_of_note")]
JUDGED: list[Event] = [ParseFailure("note_judge"), Note("n", kept=False)]


@pytest.mark.parametrize(
    ("metrics", "fields", "expected"),
    [
        ({"acc": 1.0, "em": 0.0, "empty": 0.0}, {}, "right"),
        ({"acc": 0.0, "f1": 0.9, "empty": 0.0}, {}, "wrong"),
        ({"acc": 0.0, "empty": 1.0}, {}, "parse failure"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 0.0}, {}, "wrong"),
        ({"yes_no_acc": 0.0, "yes_no_unread": 1.0}, {}, "parse failure"),
        ({"str_em": 0.5, "str_hit": 0.0}, {}, "wrong"),
        ({"reject": 1.0, "rejected": 1.0, "acc": 0.0}, {}, "right"),
        ({"empty": 0.0}, {}, "unscored"),
        ({}, {"error": SampleError("LLMError", "refused")}, "error"),
        # What a response without its marker gave is right if it is right: the counts are those of the table.
        ({"acc": 1.0}, {"trace": UNREAD}, "right"),
        ({"acc": 0.0}, {"trace": UNREAD}, "parse failure"),
        ({"acc": 0.0}, {"trace": JUDGED}, "wrong"),
    ],
)
def test_correctness_is_decided_by_the_metric_of_the_task(
    tmp_path: Path, metrics: dict[str, float], fields: dict[str, Any], expected: str
) -> None:
    sample = replace(SAMPLES[0], metrics=metrics, **{"trace": []} | fields)
    assert save_run(tmp_path, INFO, [encode(sample)]).frame()["correctness"].tolist() == [expected]
    assert Run(INFO, [sample]).frame()["correctness"].tolist() == [expected]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"method": "vanilla", "questi\n', "Invalid JSON: control character"),
        (b"[1]\n", "Input should be an object"),
        (b"\xff\n", "Invalid JSON: expected value"),
        (b"\n", "Invalid JSON: EOF"),
        (encode(SAMPLES[0]).replace(b'"acc":1.0', b'"acc":"x"'), "metrics: acc: Input should be a valid number"),
        (encode(SAMPLES[0])[:-100], "Invalid JSON: EOF"),
    ],
)
def test_a_malformed_line_is_named_with_its_field(run: Run, line: bytes, problem: str) -> None:
    assert run.folder is not None
    with (run.folder / "samples.jsonl").open("ab") as file:
        file.write(line)
    with pytest.raises(RecordError, match=rf"samples\.jsonl, line 4: not a sample: .*{problem}.*run the same command"):
        load_run(run.folder).frame()


def test_a_line_whose_trace_is_malformed_is_named(run: Run) -> None:
    assert run.folder is not None
    path = run.folder / "samples.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"event":"stop"', b'"event":"jump"'))
    with pytest.raises(RecordError, match=r"samples\.jsonl, line 1: not a sample: trace: 8: .*jump"):
        list(load_run(run.folder).samples)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "not the settings of a run"),
        ("[]", "not the settings of a run"),
        (json.dumps({"dataset": {"name": "x"}}), r"missing required field `questions`.* - at `\$\.dataset`"),
        (json.dumps({"settings": {"methods": {}}}), "missing required field `dataset`.*; run the same command again"),
    ],
)
def test_settings_that_cannot_be_read_say_what_to_do(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "run.json").write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match=problem):
        load_run(tmp_path)


def test_a_run_that_is_not_there_says_how_to_make_it(tmp_path: Path, run: Run) -> None:
    with pytest.raises(RecordError, match=r"no such run; make one with `rag-notes run`"):
        load_run(tmp_path / "none")
    assert run.folder is not None
    (run.folder / "samples.jsonl").unlink()
    with pytest.raises(RecordError, match=r"samples\.jsonl: is missing; run the same command"):
        load_run(run.folder)


def test_a_run_of_the_same_settings_has_the_folder_that_it_had() -> None:
    assert INFO.fingerprint == replace(INFO, status="stopped", studies=["cost"], prompts={}).fingerprint
    assert INFO.fingerprint != replace(INFO, repeat=1).fingerprint
    # Published whole, a run has the name of its folder, which has the hash of its settings.
    same = [run for run in published_runs() if run.folder and run.folder.name.endswith(run.info.fingerprint)]
    assert len(same) > 30


VANILLA: Sequence[Sequence[float]] = ([1, 0, 0, 1], [1, 1, 0, 1], [1, 0, 0, 0])
DEEPNOTE: Sequence[Sequence[float | None]] = ([1, 1, 0, 1], [1, 1, 1, 1], [1, 1, 0, None])


def repeated(repeat: int) -> Run:
    """Four questions; the last one failed by DeepNote in the last repeat, and vanilla's has no answer in the first."""
    samples = []
    for method, scores in (("vanilla", VANILLA[repeat]), ("deepnote", DEEPNOTE[repeat])):
        for number, score in enumerate(scores):
            error = SampleError("LLMError", "no answer") if score is None else None
            metrics = {} if score is None else {"acc": score}
            question = replace(QUESTION, id=f"q{number}")
            counts = Counts(calls=1 + repeat)
            samples.append(Sample(method, question, f"answer {repeat}", error, metrics, counts, [], 1.0 + repeat))
    return Run(replace(INFO, repeat=repeat), samples)


def test_repeats_are_pooled_by_hand() -> None:
    ((runs, frame),) = pooled_frames([repeated(0), repeated(1), repeated(2)])
    assert [run.info.repeat for run in runs] == [0, 1, 2] and list(frame.columns) == list(runs[0].frame().columns)
    vanilla, deepnote = (frame[frame["method"] == method] for method in ("vanilla", "deepnote"))
    assert vanilla["acc"].tolist() == pytest.approx([1, 1 / 3, 0, 2 / 3])
    assert deepnote["acc"].tolist() == pytest.approx([1, 1, 1 / 3, math.nan], nan_ok=True)
    assert (vanilla["calls"].tolist(), vanilla["seconds"].tolist()) == ([2.0] * 4, [2.0] * 4)
    assert deepnote["error"].tolist()[3] == "no answer" and deepnote["correctness"].tolist()[3] == "error"
    assert frame["answer"].eq("answer 0").all() and frame["error"].isna().sum() == 7


def test_answers_that_a_repeat_lacks_are_left_out() -> None:
    short = replace(repeated(1), samples=list(repeated(1).samples)[1:])
    ((_, frame),) = pooled_frames([repeated(0), short])
    assert len(frame) == 7 and frame["question_id"].tolist()[0] == "q1"


def test_what_is_no_repeat_is_not_pooled() -> None:
    first, second = repeated(0), repeated(1)
    hot = replace(second, info=replace(second.info, llm={"model": "tiny", "temperature": 1}))
    assert [len(runs) for runs, _ in pooled_frames([first, second, first, hot])] == [2, 1, 1]
    pd.testing.assert_frame_equal(pooled_frames([first])[0][1], first.frame())
    with pytest.raises(RecordError, match="repeats of 'rivers-noise40' were made with different prompts"):
        pooled_frames([first, replace(second, info=replace(second.info, prompts={"en/note_init": "other"}))])
