"""What is done with finished runs: tables from their records alone, marks anew, lists, and what is kept unharmed."""

import json
from pathlib import Path

import pytest
from filelock import FileLock

from rag_notes.cli import main
from rag_notes.options import choices
from rag_notes.running import evaluate
from rag_notes.running.evaluate import rescore_run
from rag_notes.running.records import Condition, RecordError
from rag_notes.running.run_files import load_run, write_info
from rag_notes.types import Question
from tests.made import make_info
from tests.plain import finished_run, record, run_folder
from tests.test_records import OLD_INFO, OLD_SAMPLE, written

Files = dict[str, bytes]


def files(folder: Path) -> Files:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.fixture
def options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    made = finished_run(tmp_path)
    assert "4 of 4 answers failed" in capsys.readouterr().err
    return made


def test_a_table_from_records_changes_no_byte_of_the_run_and_no_verdict(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path)
    took = {"one": 0.5, "two": 0.5}
    assert load_run(folder).info.seconds == {"no_retrieval": took, "vanilla": took}
    assert main(["run", *options]) == 0
    table, before = capsys.readouterr().out, files(folder)
    assert main(["verify", str(folder), "--out", str(tmp_path / "first")]) == 0
    record(tmp_path / "recording.jsonl")  # no response is left
    assert main(["run", *options, "from_records=true"]) == 0
    assert capsys.readouterr().out.endswith(table)
    assert files(folder) == before
    assert main(["verify", str(folder), "--out", str(tmp_path / "again")]) == 0
    assert files(tmp_path / "first") == files(tmp_path / "again")
    assert main(["run", *options, "from_records=true", "method.vanilla.top_k=3"]) == 2
    assert "there are no records of this run" in capsys.readouterr().err


def test_a_run_taken_up_without_its_responses_keeps_their_seconds(options: list[str], tmp_path: Path) -> None:
    before = load_run(run_folder(tmp_path)).info
    record(tmp_path / "recording.jsonl")
    assert main(["run", *options]) == 0
    after = load_run(run_folder(tmp_path)).info
    assert (after.seconds, after.samples) == (before.seconds, before.samples)


def shout(question: Question, answer: str, _: object) -> dict[str, float]:
    return {"em": float(answer.isupper())}


def test_answers_are_marked_anew_by_a_changed_metric(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_folder(tmp_path)
    before, unchanged = load_run(folder), files(folder)
    assert main(["score", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: 4 answers marked, 0 of them otherwise than before\n"
    assert files(folder) == unchanged
    monkeypatch.setattr(evaluate, "score", shout)
    assert main(["score", str(folder)]) == 0
    assert capsys.readouterr().out == f"{folder}: 4 answers marked, 4 of them otherwise than before\n"
    after = load_run(folder)
    assert [sample.metrics for sample in after.samples] == [{"em": 0.0}] * 4
    assert [sample.trace for sample in after.samples] == [sample.trace for sample in before.samples]
    assert after.info.scoring != before.info.scoring
    assert after.info.seconds == before.info.seconds


def test_answers_are_not_marked_while_another_process_works_on_them(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path)
    before = files(folder)
    with FileLock(folder / ".lock"):
        assert main(["score", str(folder)]) == 2
    assert "another process works in this run" in capsys.readouterr().err
    assert files(folder) == before
    assert main(["score", str(folder)]) == 0  # the lock is given back


def test_what_has_no_marks_or_lacks_what_they_need_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = tmp_path / "old"
    old.mkdir()
    before = files(written(old, OLD_INFO, OLD_SAMPLE))
    with pytest.raises(RecordError, match=r"old: is of version 0\.1, which kept too little of the questions"):
        rescore_run(old)
    assert files(old) == before
    annotations = tmp_path / "annotations"
    annotations.mkdir()
    write_info(annotations, make_info("made", ["vanilla"], condition=Condition(annotates="evidence")))
    assert main(["score", str(annotations)]) == 0
    assert "annotates other answers and has no scores" in capsys.readouterr().out
    assert main(["score", str(tmp_path / "nowhere")]) == 2
    assert "nowhere/run.json: no such run" in capsys.readouterr().err
    assert not (tmp_path / "nowhere").exists()


def test_runs_are_listed(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", str(tmp_path / "runs")]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["run", "studies"]
    for word in (run_folder(tmp_path).name, "plain", "tiny", "4 of 4", "finished"):
        assert word in row
    assert main(["runs", str(tmp_path / "none")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'none'}: no runs; make one with `rag-notes run`\n"


def test_a_trace_and_a_call_are_shown(options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(run_folder(tmp_path))
    (asked,) = [event for event in load_run(folder).sample("vanilla", "one").trace if event.event == "ask"]
    assert main(["show", folder, "vanilla", "one"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("question  Where was Géricault born?\ngold      Rouen\nanswer    Rouen  [✓ em")
    assert out.endswith(f"call 1: answer_short, key {asked.key}\n")
    assert main(["show", folder, "vanilla", "one", "--call", "1"]) == 0
    out = capsys.readouterr().out
    assert out == f"stage answer_short\nkey {asked.key}\n\n{asked.prompt}\n\n--- response (stop)\n\nRouen\n"
    for arguments, message in (
        (["vanilla", "one", "--call", "2"], "--call 2: there are 1 calls"),
        (["react", "one"], "has no method 'react'; there is no_retrieval, vanilla"),
        (["vanilla", "three"], "has no question 'three', for example one, two"),
    ):
        assert main(["show", folder, *arguments]) == 2
        assert message in capsys.readouterr().err


def test_methods_are_listed_with_their_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    table = capsys.readouterr().out
    assert len(table.splitlines()) == 2 + len(choices("method"))
    assert "DeepNote" in table


def test_a_file_that_is_not_there_is_named_by_its_whole_path(
    options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in (
        "dataset.plain.path=nowhere/one.jsonl",
        "dataset.plain.corpus=nowhere/one.jsonl",
        "llm.recordings=[nowhere/one.jsonl]",
        "prompts=nowhere/one.jsonl",
    ):
        assert main(["run", *options, option]) == 2
        error = capsys.readouterr().err
        assert f"{tmp_path}/nowhere/one.jsonl: no such" in error, option
    assert json.loads((run_folder(tmp_path) / "run.json").read_text(encoding="utf-8"))["status"] == "finished"


@pytest.mark.parametrize(
    "command",
    [
        ["show", "nowhere", "vanilla", "one"],
        ["score", "nowhere"],
        ["report", "nowhere", "--out", "report"],
        ["table", "nowhere"],
        ["download", "--table", "nowhere"],
        ["store", "import", "store.sqlite", "nowhere"],
        ["pages", "nowhere"],
    ],
    ids=lambda command: command[0],
)
def test_every_command_names_a_file_that_is_not_there_by_its_whole_path(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(command) == 2
    assert f"{tmp_path}/nowhere" in capsys.readouterr().err
