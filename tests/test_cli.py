"""The command line, in this process: what it prints, where, and its exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rag_notes import cli
from rag_notes.cli import main
from rag_notes.files import SHIPPED
from rag_notes.llm.store import ResponseStore
from rag_notes.options import choices
from rag_notes.running.records import load_run
from tests.plain import finished_run, lines, plain_options, record, run_folder

COMMANDS = tuple(cli._COMMANDS)


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Two questions of one's own, asked of an empty recording; everything is written below tmp_path."""
    return ["dataset=plain", *plain_options(tmp_path), "method=[no_retrieval,vanilla]"]


def refused(capsys: pytest.CaptureFixture[str], message: str) -> None:
    """Nothing was printed but one line of error."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rag-notes: ")
    assert len(err.splitlines()) == 1
    assert message in err


def test_help_names_the_commands_and_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert set(COMMANDS) <= set(words)
    assert len(COMMANDS) <= 16
    for group in ("study", "dataset", "method", "retriever", "llm"):
        assert {group, *choices(group)} <= set(words)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_fits_a_screen(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 30
    assert f"usage: rag-notes {command}" in text


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_needed_by_a_page(command: str) -> None:
    pages = [SHIPPED / "README.md", *(SHIPPED / "docs").glob("*.md")]
    assert any(f"rag-notes {command}" in page.read_text(encoding="utf-8") for page in pages)


@pytest.mark.parametrize("arguments", [[], ["runn"], ["store"], ["store", "delete", "x.sqlite"], ["run", "--fast"]])
def test_a_command_that_does_not_exist_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "usage: rag-notes" in capsys.readouterr().err


def test_options_may_stand_behind_a_flag(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options, "--check", "limit=x"]) == 2
    refused(capsys, "limit: Input should be a valid integer")
    with pytest.raises(SystemExit, match="2"):
        main(["runs", "a", "b"])
    assert "unrecognized arguments: b" in capsys.readouterr().err


def test_config_shows_what_the_options_give(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["dataset=musique", "method=[vanilla,deepnote]", "method.deepnote.max_step=1", "limit=4"]
    assert main(["config", *chosen]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert list(shown["method"]) == ["vanilla", "deepnote"]
    assert shown["method"]["deepnote"]["max_step"] == 1
    assert shown["dataset"]["musique"]["limit"] == shown["limit"] == 4


@pytest.mark.parametrize("command", ["config", "run", "reproduce", "plan"])
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("method.deepnote.max_stp=2", "did you mean method.deepnote.max_step"),
        ("dataset=hotpot", "there is hotpotqa"),
        ("limit=ten", "limit: Input should be a valid integer"),
        ("study=main_result", "study=main_result: no such study; there is main_results"),
    ],
)
def test_a_bad_option_is_one_message_and_code_2(
    command: str, option: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *(["study=main_results"] if "study=" not in option else []), option]) == 2
    refused(capsys, message)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("dataset.plain.path=/nowhere/questions.jsonl", "/nowhere/questions.jsonl"),
        ("llm.recordings=[/nowhere/r.jsonl]", "/nowhere/r.jsonl: no such recording"),
        ("prompts=/nowhere/prompts", "/nowhere/prompts: no such folder"),
        ("limit=0", "limit: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_not_there_is_named(
    option: str, message: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options, option]) == 2
    refused(capsys, message)


def test_answers_that_were_not_recorded_are_errors_of_their_questions(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options]) == 1
    out, err = capsys.readouterr()
    assert "4 of 4 answers failed" in err
    assert "no recorded response, and the network is forbidden" in err
    assert "Traceback" not in out + err
    assert load_run(run_folder(tmp_path)).frame()["error"].notna().all()


def test_a_run_ends_with_a_table_and_is_listed_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(tmp_path)
    out = capsys.readouterr().out
    folder = run_folder(tmp_path)
    assert "Vanilla RAG" in out
    assert str(folder) in out
    assert load_run(folder).frame()["em"].tolist() == [1, 0, 1, 0]
    assert main(["runs", str(tmp_path / "runs")]) == 0
    assert folder.name in capsys.readouterr().out
    assert main(["show", str(folder), "vanilla", "two"]) == 0
    assert "call 1: answer_short, key " in capsys.readouterr().out
    assert main(["show", str(folder), "vanilla", "two", "--call", "1"]) == 0
    assert "Where did Bizet die?" in capsys.readouterr().out
    assert main(["show", str(folder), "vanilla", "two", "--call", "2"]) == 2
    refused(capsys, "--call 2: there are 1 calls")
    assert main(["show", str(folder), "vanilla", "three"]) == 2
    refused(capsys, "no question 'three' in this run")
    assert main(["show", str(tmp_path / "none"), "vanilla", "two"]) == 2
    refused(capsys, "no such run; make one with `rag-notes run`")


def test_an_older_run_says_to_run_the_command_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text('{"scoring": "abc", "dataset": {"name": "mini"}}', encoding="utf-8")
    assert main(["show", str(tmp_path / "old"), "vanilla", "one"]) == 2
    refused(capsys, "run the same command again")


def test_a_store_is_exported_imported_and_dropped_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, file = (str(tmp_path / name) for name in ("first.sqlite", "second.sqlite", "all.jsonl.xz"))
    ResponseStore(first).import_jsonl(record(tmp_path / "one.jsonl", "A?", "B?"))
    ResponseStore(second).import_jsonl(record(tmp_path / "two.jsonl", "B?", "C?"))
    assert main(["store", "export", first, file]) == 0
    assert capsys.readouterr().out == f"2 responses written to {file}\n"
    assert main(["store", "import", second, file]) == 0
    assert capsys.readouterr().out == "1 responses added\n"
    assert main(["store", "drop", second, "--question", "C?"]) == 0
    assert capsys.readouterr().out == "1 responses dropped\n"


def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s.sqlite")
    for arguments, message in (
        (["export", store], "store export needs a file, for example recording.jsonl.xz"),
        (["drop", store], "store drop needs keys, or --question TEXT that prompts contain"),
        (["import", store, str(tmp_path / "none.jsonl")], "none.jsonl: no such recording"),
    ):
        assert main(["store", *arguments]) == 2
        refused(capsys, message)
    edited = lines(tmp_path / "edited.jsonl", {"key": "0" * 64, "request": {"model": "x"}, "response": {}})
    assert main(["store", "import", store, str(edited)]) == 2
    refused(capsys, "edited.jsonl, line 1: ")
    (tmp_path / "text.sqlite").write_text("not a database " * 100, encoding="utf-8")
    assert main(["store", "export", str(tmp_path / "text.sqlite"), str(tmp_path / "x.jsonl")]) == 2
    refused(capsys, "text.sqlite: ")


def test_retrievers_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bm25 = [
        "--retriever",
        "bm25 retriever.cache=null",
        "--retriever",
        "bm25 retriever.cache=null retriever.stemming=false",
    ]
    assert main(["retrieval", "dataset=mini", "resamples=100", *bm25]) == 0
    out = capsys.readouterr().out
    assert "All gold, all searches" in out
    assert "retriever.stemming=false" in out
    assert main(["retrieval", "dataset=mini", "--top-k", "0"]) == 2
    refused(capsys, "--top-k 0: must be at least 1")


def test_what_there_is_is_listed_and_notebooks_are_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what, name in (("methods", "deepnote"), ("datasets", "hotpotqa"), ("studies", "main_results")):
        assert main(["list", what]) == 0
        assert name in capsys.readouterr().out
    assert main(["notebooks", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / "00_quickstart.ipynb").is_file()
    capsys.readouterr()
    assert main(["notebooks", str(tmp_path / "mine")]) == 2
    refused(capsys, "is there already; name a new folder")


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    code = "import sys; from rag_notes.cli import main; sys.exit(main(['config']))"
    command = f'{sys.executable} -c "{code}" | head -1'
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
