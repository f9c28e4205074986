"""Runs given away without a word of their data set: what stays, what is compared, and which are in the project."""

import json
import lzma
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from rag_notes.events import Ask, Decision, Event, Found, Note, ParseFailure, Search, Stop, count
from rag_notes.running.annotate import Subjects, quest_texts
from rag_notes.running.publish import PUBLISHED, check, publish, published_like, published_runs, without_text
from rag_notes.running.records import Condition, MethodInfo, Run, save_run
from rag_notes.running.samples import RecordError, Sample, SampleError, encode
from rag_notes.types import InputError, Question
from tests.made import make_info

SECRET = "Ann Ro was born in the town of Tis, and nobody else was ever born there, as far as anybody knows"
TRACE: list[Event] = [
    Search(SECRET, 5, [Found("other " + SECRET, SECRET, SECRET, 1.0), Found(SECRET, SECRET, SECRET, 0.5)]),
    Ask("amber_chunk_filter", SECRET, '{"result": "useful"}', "stop", 7, 3, "0123456789abcdef" * 4, [(SECRET, -0.1)]),
    Ask("amber_chunk_filter", SECRET, "Useless", "stop", 7, 3, "b" * 64),
    Ask("note_init", SECRET, "A useful town: " + SECRET, "stop", 7, 3, "a" * 64),
    Note(SECRET, kept=True),
    Decision("summary", SECRET),
    Decision("amber_chunk_filter", "useful"),
    ParseFailure("note_query"),
    Stop("max_step"),
]
QUESTION = Question("q", SECRET, (SECRET,), gold_titles=(SECRET,), gold_ids=(SECRET,), type="bridge", hops=2)
SAMPLES = [
    Sample("deepnote", QUESTION, "Tis", None, {"acc": 1.0}, count(TRACE), TRACE, 0.1 + 0.2),
    Sample("vanilla", QUESTION, SECRET, None, {"acc": 0.0}, count(TRACE), TRACE[:1], 1e-7),
    Sample("ircot", QUESTION, "", SampleError("LLMError", SECRET), {}, count([]), [], None),
]


def save(folder: Path, samples: Sequence[Sample] = SAMPLES, **settings: object) -> Path:
    info = make_info("towns", [sample.method for sample in samples], llm={"model": "tiny"})
    save_run(folder, replace(info, **settings), map(encode, samples))  # type: ignore[arg-type] # of any field
    return folder


def test_a_published_run_has_its_scores_and_counts_and_no_text(tmp_path: Path) -> None:
    folder, results = save(tmp_path / "run"), tmp_path / "results"
    assert publish([folder], results) == ["run"]
    assert sorted(path.name for path in results.iterdir()) == ["runs.json", "towns.csv.xz"]
    table = lzma.decompress((results / "towns.csv.xz").read_bytes()).decode()
    assert not any(word in table + (results / "runs.json").read_text(encoding="utf-8") for word in ("Ann", "town of"))
    (run,) = published_runs(results)
    whole = Run(run.info, SAMPLES)
    columns = whole.frame().columns.drop(["question", "gold", "answer", "error"])
    pd.testing.assert_frame_equal(run.frame()[columns], whole.frame()[columns], check_dtype=False, check_exact=True)
    short, long, failed = run.frame().to_dict("records")
    assert short["answer"] == "Tis" and long["answer"].startswith("sha256:") and len(long["answer"]) == 23
    assert (failed["error_kind"], failed["error"], failed["answer"]) == ("LLMError", "(not published)", "")
    steps = "search:01 amber_chunk_filter=useful amber_chunk_filter=useless note_init amber_chunk_filter>useful"
    assert (short["trace"], long["trace"], failed["trace"]) == (f"{steps} !note_query", "search:01", "")
    assert run.folder == results / "run" and list(run.samples) == [] and run.info.published
    assert without_text(run) is run


def test_runs_of_one_data_set_share_a_table_and_are_replaced_one_by_one(tmp_path: Path) -> None:
    one, two, results = save(tmp_path / "b"), save(tmp_path / "a", SAMPLES[:2], repeat=1), tmp_path / "results"
    publish([one], results)
    publish([two], results)
    content = {path.name: path.read_bytes() for path in results.iterdir()}
    assert [(run.methods, run.info.repeat) for run in published_runs(results)] == [
        (["deepnote", "vanilla"], 1),
        (["deepnote", "vanilla", "ircot"], 0),
    ]
    publish([one, two], results)
    assert {path.name: path.read_bytes() for path in results.iterdir()} == content
    publish([one], results, ["vanilla"])
    assert [len(run.frame()) for run in published_runs(results)] == [2, 1]
    assert published_runs(results)[1].only(["vanilla"]).frame()["method"].tolist() == ["vanilla"]
    with pytest.raises(InputError, match="b: has no method amber; there is deepnote, vanilla, ircot"):
        publish([one], results, ["amber"])


def test_a_run_that_is_not_finished_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not finished"):
        publish([save(tmp_path / "run", status="stopped: interrupted")], tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_published_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert published_runs(results) == []
    publish([save(tmp_path / "run")], results)
    table = (results / "towns.csv.xz").read_bytes()
    for content in (table[:-20], b"text"):
        (results / "towns.csv.xz").write_bytes(content)
        with pytest.raises(RecordError, match=r"towns\.csv\.xz: cannot be read"):
            published_runs(results)
    (results / "runs.json").write_text("{", encoding="utf-8")
    with pytest.raises(RecordError, match=r"runs\.json: not the settings of runs"):
        published_runs(results)


def test_a_run_is_compared_with_a_published_one(tmp_path: Path) -> None:
    publish([save(tmp_path / "run")], tmp_path / "results")
    (published,) = published_runs(tmp_path / "results")
    unpublished = replace(published.info, published=False)
    assert check(Run(unpublished, SAMPLES), published) == {(name, "same"): 1 for name in published.methods}
    others = [
        replace(SAMPLES[0], trace=TRACE[:2]),
        replace(SAMPLES[1], answer=SECRET + "!"),
        replace(SAMPLES[0], method="amber"),
    ]
    assert check(Run(unpublished, others), published) == {
        ("deepnote", "other calls"): 1,
        ("vanilla", "other answer"): 1,
        ("ircot", "not run"): 1,
        ("amber", "not published"): 1,
    }


def test_the_scores_of_ragquesteval_join_the_answers_that_they_are_about(tmp_path: Path) -> None:
    samples = [replace(SAMPLES[0], question=replace(QUESTION, id=f"q{number}")) for number in (0, 1)]
    run = save(tmp_path / "run", samples)
    about = {"deepnote": MethodInfo("m.quest_eval", {"sha256": Subjects(samples, quest_texts).sha256})}
    answers = [json.dumps({"scores": {"q_gold": 1.0, "q_r": score}}) for score in (1.0, 0.5)]
    annotated = [replace(sample, answer=answer) for sample, answer in zip(samples, answers, strict=True)]
    condition = Condition(annotates="quest_eval")
    annotation = save(tmp_path / "annotation", annotated, condition=condition, methods=about)
    other = save(tmp_path / "other", [replace(sample, answer="another") for sample in samples])
    model = save(tmp_path / "model", samples, llm={"model": "another"})
    assert publish([run, annotation, other, model], tmp_path / "results") == ["run", "other", "model"]
    scores = [run.frame().get("q_r") for run in published_runs(tmp_path / "results")]
    assert scores[0] is None and scores[1] is None and scores[2] is not None and scores[2].tolist() == [1.0, 0.5]


def test_the_runs_of_the_project_are_read_and_found_by_their_questions() -> None:
    published = published_runs()
    assert len(published) == 49 and sum(len(run.frame()) for run in published) == 7610
    assert {run.dataset for run in published} >= {"hotpotqa", "asqa", "crud"}
    assert all(run.info.finished for run in published)
    headers = [lzma.decompress(path.read_bytes()).partition(b"\n")[0] for path in PUBLISHED.glob("*.csv.xz")]
    assert len(headers) == 9 and not any({b"question", b"gold", b"error"} & {*line.split(b",")} for line in headers)
    assert {"q_r", "t_f1"} <= set(next(run for run in published if run.dataset == "crud").frame().columns)
    variants = next(run for run in published if "vanilla_k7" in run.methods)
    assert published_like(variants).folder == variants.folder
    with pytest.raises(InputError, match="no run of asqa with these questions and this model is published"):
        published_like(replace(variants, info=replace(variants.info, llm={"model": "other"})))
