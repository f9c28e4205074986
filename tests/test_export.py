import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rag_notes.cli import main
from rag_notes.events import Counts, Event
from rag_notes.report.export import write_inspect, write_parquet
from rag_notes.report.foreign import read_foreign
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_run, write_info, write_samples
from rag_notes.types import InputError
from tests.made import ask, make_run, search


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = make_run("toy", {"vanilla": {"acc": [1, 0, None]}}, repeat=2, seconds={"vanilla": {"q0": 1.5}})
    trace: list[Event] = [search("Q?", "T", "text"), ask("answer_short", "an answer")]
    first = replace(run.samples[0], trace=trace, counts=Counts(calls=1, prompt_tokens=7))
    folder = tmp_path / "toy-run"
    folder.mkdir()
    write_info(folder, run.info)
    write_samples(folder / "samples.jsonl", [first, *run.samples[1:]])
    return folder


def test_parquet_has_the_documented_columns(folder: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra parquet: pip install -e '.[parquet]'")
    out = tmp_path / "samples.parquet"
    assert main(["export", str(folder), "--format", "parquet", "--out", str(out)]) == 0
    table = parquet.read_table(out)
    documented = Path("docs/reviewer.md").read_text(encoding="utf-8")
    assert [name for name in table.column_names if f"`{name}`" not in documented] == []
    first, _, failed = table.to_pylist()
    assert (first["question_id"], first["gold"], first["repeat"], first["seconds"]) == ("q0", ["gold"], 2, 1.5)
    assert (first["metrics"], first["calls"], first["prompt_tokens"]) == ([("acc", 1.0)], 1, 7)
    assert [event["event"] for event in json.loads(first["trace"])] == ["search", "ask"]
    assert (failed["error"], failed["metrics"], failed["seconds"]) == ("no answer", [], None)


def test_inspect_reads_its_logs_back_and_so_do_we(folder: Path, tmp_path: Path) -> None:
    inspect = pytest.importorskip("inspect_ai.log", reason="needs the extra inspect: pip install -e '.[inspect]'")
    run = load_run(folder)
    (path,) = write_inspect(run, tmp_path / "logs")
    log = inspect.read_eval_log(str(path))
    assert (log.status, log.eval.dataset.name, log.results.completed_samples) == ("success", "toy", 2)
    assert {score.name: score.metrics["mean"].value for score in log.results.scores} == {"acc": 0.5}
    first, _, failed = log.samples
    assert (first.epoch, first.output.completion, first.scores["acc"].value) == (3, "an answer", 1.0)
    assert [message.role for message in first.messages] == ["user", "assistant"]
    assert failed.error.message == "no answer"
    again = read_foreign(path, run)
    assert [(sample.question.id, sample.answer) for sample in again.samples] == [
        ("q0", "an answer"),
        ("q1", "an answer"),
    ]


def test_a_crate_reads_back_with_the_files_and_the_action(folder: Path, tmp_path: Path) -> None:
    rocrate = pytest.importorskip("rocrate.rocrate", reason="needs the extra crate: pip install -e '.[crate]'")
    out = tmp_path / "ro-crate"
    assert main(["crate", str(folder), "--out", str(out)]) == 0
    crate = rocrate.ROCrate(str(out))
    action = crate.get("#toy-run")
    assert action.type == "CreateAction"
    assert action["instrument"]["name"] == "rag_notes"
    assert sorted(file.id for file in action["result"]) == ["toy-run/run.json", "toy-run/samples.jsonl"]
    assert {value["name"]: value["value"] for value in action["object"]}["data set"] == "toy"
    assert crate.root_dataset["conformsTo"].id.startswith("https://w3id.org/ro/wfrun/process/")
    assert (out / "toy-run" / "samples.jsonl").read_bytes() == (folder / "samples.jsonl").read_bytes()
    assert main(["crate", str(folder), "--out", str(out)]) == 2


def test_an_unfinished_run_is_no_crate(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rocrate.rocrate", reason="needs the extra crate: pip install -e '.[crate]'")
    write_info(folder, replace(load_run(folder).info, status="running"))
    assert main(["crate", str(folder), "--out", str(tmp_path / "crate")]) == 2
    assert "toy-run: the run is not finished: running" in capsys.readouterr().err


@pytest.mark.parametrize(("package", "extra"), [("pyarrow", "parquet"), ("inspect_ai", "inspect")])
def test_a_missing_package_is_named_with_its_extra(
    package: str, extra: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    run: Run = load_run(folder)
    with pytest.raises(InputError, match=rf"{package} is not installed, .*rag-notes\[{extra}\]"):
        write_parquet(run, tmp_path / "x") if extra == "parquet" else write_inspect(run, tmp_path / "x")
