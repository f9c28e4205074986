import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_notes.cli import main
from rag_notes.report.compare import compare_runs
from rag_notes.report.foreign import read_foreign
from rag_notes.running.records import Run
from rag_notes.running.run_files import write_info, write_samples
from rag_notes.types import InputError, Question
from tests.made import make_run, row_of

TEXTS = {"q0": "Who built the tower?", "q1": "When was it built?", "q2": "Where is it?", "q3": "Where is it?"}
GOLD = {"q0": "Ada", "q1": "1901", "q2": "Bath", "q3": "York"}


@pytest.fixture
def ours() -> Run:
    run = make_run("toy", {"vanilla": {"em": [0, 1, 1, 1], "f1": [0, 1, 1, 1], "acc": [0, 1, 1, 1]}})
    samples = [
        replace(sample, question=Question(id_, TEXTS[id_], (GOLD[id_],)))
        for sample in run.samples
        if (id_ := sample.question.id)
    ]
    return replace(run, samples=samples)


def written(path: Path, entries: list[dict[str, Any]]) -> Path:
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, entries)) if lines else json.dumps(entries), encoding="utf-8")
    return path


def flashrag(question: str, pred: str) -> dict[str, Any]:
    return {"id": "x", "question": question, "golden_answers": ["of theirs"], "output": {"pred": pred}}


def test_flashrags_answers_are_paired_by_normalised_text_and_marked_by_our_gold(ours: Run, tmp_path: Path) -> None:
    entries = [
        flashrag("who built THE tower", "Ada"),
        flashrag("When was it built ?", "1800"),
        flashrag("Where is it?", "Bath"),
        flashrag("What is it for?", "Light"),
    ]
    theirs = read_foreign(written(tmp_path / "intermediate_data.json", entries), ours)
    comparison = compare_runs(ours, theirs)
    (pair,) = comparison.pairs
    assert (pair.method_a, pair.method_b) == ("vanilla", "flashrag")
    assert [both.id for both in pair.matched] == ["q0", "q1"]
    assert pair.left_out == {
        "only in A": ["q2", "q3"],
        "only in B": [
            "intermediate_data.json:3 (several have this text)",
            "intermediate_data.json:4 (no question has this text)",
        ],
    }
    row = row_of(comparison.table, metric="em")
    assert (row["mean_a"], row["mean_b"], row["n"]) == (0.5, 0.5, 2)
    assert set(comparison.table["kind"]) == {"answer"}  # what theirs cost is not known


def test_the_authors_lines_are_read_without_the_last_of_scores(ours: Run, tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {
            "id": 0,
            "question": TEXTS["q0"],
            "answer": ["Ada", "A."],
            "output": "It was Ada.",
            "note": "n",
            "ref_log": [],
        },
        {"id": 1, "query": TEXTS["q1"], "answer": "1901", "output": "1902"},
        {"Acc": 0.5, "F1": 0.1, "EM": 0.0},
    ]
    theirs = read_foreign(written(tmp_path / "topk-5.jsonl", entries), ours)
    assert [(s.question.id, s.metrics["acc"]) for s in theirs.samples] == [("q0", 1.0), ("q1", 0.0)]
    alone = read_foreign(tmp_path / "topk-5.jsonl")
    assert [sample.gold for sample in alone.samples] == [["Ada", "A."], ["1901"]]


def test_the_command_compares_a_run_with_a_file(ours: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    write_info(folder, ours.info)
    write_samples(folder / "samples.jsonl", ours.samples)
    file = written(tmp_path / "intermediate_data.json", [flashrag(TEXTS["q0"], "Ada"), flashrag("Why?", "So")])
    assert main(["compare", str(folder), str(file)]) == 0
    shown = capsys.readouterr().out
    assert "flashrag" in shown
    assert "only in B" in shown
    assert main(["compare", str(file), str(folder), "--method-b", "vanilla"]) == 0
    assert main(["compare", str(folder), str(file), "--method-b", "deepnote"]) == 2
    assert "has vanilla and intermediate_data.json flashrag; name one of each" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '[{"question": "Q?", "golden_answers": [], "output": {}}]', "item 1: field output.pred is missing"),
        ("a.json", '[{"question": 3, "golden_answers": [], "output": {"pred": "a"}}]', "item 1: field question is '3'"),
        ("a.jsonl", '{"query": "Q?", "output": "a"}', "line 1: field answer is missing"),
        ("a.jsonl", "no json", "not JSON"),
        ("a.json", "{}", "expected FlashRAG's intermediate_data.json"),
    ],
)
def test_what_does_not_fit_is_named(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=f"{name}.*{said}"):
        read_foreign(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        read_foreign(tmp_path / "none.json")
