"""The command line, in this process: what it prints, where, and its exit codes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from rag_notes.cli import main
from rag_notes.events import Ask
from rag_notes.llm.client import LLM
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.complexity import read_labels
from rag_notes.options import choices
from rag_notes.running.records import Progress
from rag_notes.running.run_files import load_run, write_info, write_samples
from rag_notes.running.silver_labels import STRATEGIES
from tests.made import changed, make_info, make_sample
from tests.pages import check_links
from tests.test_site import toy_run

ANSWER = Response("Rouen", "stop", 10, 1, seconds=0.5)


def lines(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def store_of(path: Path, *prompts: str) -> ResponseStore:
    """A store with an answer to each prompt, asked as llm=recorded asks with the settings below."""
    store = ResponseStore(path)
    llm = LLM("tiny", store=store)
    for prompt in prompts:
        store.put(llm.request(prompt), ANSWER)
    return store


@pytest.fixture
def options(tmp_path: Path) -> list[str]:
    """Two questions of one's own, asked of an empty recording; everything is written below tmp_path."""
    lines(
        tmp_path / "questions.jsonl",
        {"id": "one", "question": "Where was Géricault born?", "answers": ["Rouen"]},
        {"id": "two", "question": "Where did Bizet die?", "answers": ["Bougival"]},
    )
    lines(tmp_path / "passages.jsonl", {"id": "p", "title": "Géricault", "text": "He was born in Rouen."})
    store_of(tmp_path / "none.sqlite").export_jsonl(tmp_path / "recording.jsonl")
    return [
        "dataset=plain",
        f"dataset.plain.path={tmp_path / 'questions.jsonl'}",
        f"dataset.plain.corpus={tmp_path / 'passages.jsonl'}",
        "retriever.cache=null",
        "llm.model=tiny",
        "llm.max_tokens=1280",
        f"llm.recordings=[{tmp_path / 'recording.jsonl'}]",
        "method=[no_retrieval,vanilla]",
        f"runs={tmp_path / 'runs'}",
        f"figures={tmp_path / 'figures'}",
        "resamples=100",
    ]


def test_help_names_the_commands_and_every_choice(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    words = capsys.readouterr().out.replace(",", " ").split()
    assert {"reproduce", "run", "calls", "config", "complexity", "report", "compare", "store"} <= set(words)
    for group in ("study", "dataset", "method", "retriever", "llm"):
        assert {group, *choices(group)} <= set(words)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        *((name, "method.deepnote.max_step=2") for name in ("reproduce", "run", "config")),
        ("store", "sqlite"),
        ("report", "--baseline"),
        ("compare", "--method-a"),
    ],
)
def test_each_command_has_help(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([command, "--help"])
    assert exit_.value.code == 0
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [[], ["runn"], ["store"], ["store", "delete", "x.sqlite"], ["run", "--fast"], ["report", "x"], ["compare"]],
)
def test_a_command_that_does_not_exist_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: rag-notes" in capsys.readouterr().err


def test_options_may_stand_before_and_behind_a_flag(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["method=vanilla", "limit=3", "--cfg", "job"], ["method=vanilla", "--cfg", "job", "limit=3"]):
        assert main(["run", *words]) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "limit: 3" in shown[0]
    for words in (["run", "--cfg", "job", "limit=3", "--bogus"], ["runs", "a", "b"]):
        with pytest.raises(SystemExit, match="2"):
            main(words)
        assert f"unrecognized arguments: {words[-1]}" in capsys.readouterr().err


def test_config_shows_what_the_options_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["config", "dataset=musique", "method=[vanilla,deepnote]", "method.deepnote.max_step=1", "limit=4"]) == 0
    )
    shown = yaml.safe_load(capsys.readouterr().out)
    assert list(shown["method"]) == ["vanilla", "deepnote"]
    assert shown["method"]["deepnote"]["max_step"] == 1
    assert shown["dataset"]["musique"]["limit"] == shown["limit"] == 4


@pytest.mark.parametrize("command", ["config", "run", "reproduce"])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["study=main_results", "method.deepnote.max_stp=2"], "did you mean method.deepnote.max_step"),
        (["study=main_results", "dataset=hotpot"], "there is hotpotqa"),
        (["study=main_results", "limit=ten"], "limit: Input should be a valid integer (given: 'ten')"),
        (["study=main_result"], "study=main_result: no such study; there is main_results"),
    ],
)
def test_a_bad_option_is_one_message_and_code_2(
    command: str, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *options]) == 2
    refused(capsys, message)


def refused(capsys: pytest.CaptureFixture[str], message: str) -> None:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rag-notes: ")
    assert len(err.splitlines()) == 1
    assert message in err


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


def test_a_damaged_data_set_is_named_by_file_and_line(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "questions.jsonl").write_text('{"id": "one", "question": "Q?"}\n{"id": \n', encoding="utf-8")
    assert main(["run", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "questions.jsonl" in err
    assert "2" in err.split("questions.jsonl", 1)[1]
    assert "Traceback" not in err


def test_questions_that_were_not_recorded_are_errors_of_those_questions(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options]) == 1
    out, err = capsys.readouterr()
    assert "4 of 4 answers failed" in err
    assert " x stage " in err
    assert "no recorded response, and the network is forbidden" in err
    assert "retry_errors=true" in err
    assert "Traceback" not in out + err
    (folder,) = (tmp_path / "runs").iterdir()
    run = load_run(folder)
    assert run.info.samples == Progress(4, 4, 4)
    assert run.info.overrides == options
    assert all("llm=openai" in str(sample.error) for sample in run.samples)


def test_a_run_from_recordings_ends_with_a_table_and_code_0(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["run", *options])
    (folder,) = (tmp_path / "runs").iterdir()
    prompts = [ask.prompt for sample in load_run(folder).samples for ask in sample.trace if isinstance(ask, Ask)]
    store_of(tmp_path / "all.sqlite", *prompts).export_jsonl(tmp_path / "recording.jsonl")
    capsys.readouterr()
    assert main(["run", *options]) == 1  # the errors are kept until one asks for another try
    capsys.readouterr()
    assert main(["run", *options, "retry_errors=true"]) == 0
    out, err = capsys.readouterr()
    assert "Vanilla RAG" in out
    assert "failed" not in err
    run = load_run(folder)
    assert run.info.samples == Progress(4, 4, 0)
    assert [sample.metrics["em"] for sample in run.samples] == [1, 0, 1, 0]
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [folder.name]


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Two run folders: the second's deepnote is right where the first's is wrong."""
    first = toy_run()
    second = changed(first, 10, answer="Bougival", metrics=first.samples[3].metrics)
    folders = [tmp_path / "runs" / name for name in ("first", "second")]
    for folder, run in zip(folders, (first, second), strict=True):
        folder.mkdir(parents=True)
        write_info(folder, run.info)
        write_samples(folder / "samples.jsonl", run.samples)
    return str(folders[0]), str(folders[1])


def test_a_report_and_a_comparison_that_links_to_it(
    runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report, page = str(tmp_path / "report"), str(tmp_path / "page.html")
    assert main(["report", *runs, "--out", report]) == 0
    assert capsys.readouterr().out == f"{report}/index.html\n"
    assert main(["compare", *runs, "--report", report, "--out", page, "--out", str(tmp_path / "table.csv")]) == 0
    out = capsys.readouterr().out
    assert "A  first\nB  second\n" in out
    assert "city-2 (DeepNote), wrong -> right: Paris -> Bougival" in out
    assert f"   {report}/runs/2-second/0003-city-2.html#3-deepnote" in out
    assert out.endswith(f"{page}\n{tmp_path / 'table.csv'}\n{tmp_path / 'table.questions.csv'}\n")
    assert check_links(tmp_path) > 0


def test_two_methods_of_one_run_are_compared(runs: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for folders in (runs[:1], (runs[0], runs[0])):
        assert main(["compare", *folders, "--method-a", "vanilla", "--method-b", "deepnote"]) == 0
        out = capsys.readouterr().out
        assert "Vanilla RAG → DeepNote: 4 questions compared" in out
        assert "city-1, wrong -> right: Paris -> Rouen" in out


def test_what_cannot_be_reported_or_compared_is_one_message_and_code_2(
    runs: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = runs
    out = str(tmp_path / "out")
    nowhere = str(tmp_path / "nowhere")
    for arguments, message in (
        (["report", nowhere, "--out", out], "nowhere/run.json: no such run; make one with `rag-notes run`"),
        (["report", first, first, "--out", out], "a run named first was given before"),
        (["report", first, "--out", second], "holds something else than a report"),
        (["report", first, "--out", out, "--baseline", "react"], "baseline 'react' is not in the run"),
        (["compare", first, nowhere], "nowhere/run.json: no such run"),
        (["compare", first], "would be compared with itself; name two of its methods with --method-a and --method-b"),
        (
            ["compare", first, second, "--method-a", "react"],
            "first has no method 'react'; it has no_retr",
        ),
        (["compare", first, second, "--out", f"{out}.txt"], "out.txt: a comparison is written as .html or .csv"),
        (["compare", first, second, "--report", out], "out: no report here; make one of it with"),
    ):
        assert main(arguments) == 2
        refused(capsys, message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]
    assert main(["report", first, "--out", out]) == 0
    capsys.readouterr()
    assert main(["compare", first, second, "--report", out, "--out", f"{out}.html"]) == 2
    refused(capsys, "a report of first, not of second; make one of it with `rag-notes report")
    assert not Path(f"{out}.html").exists()


def strategies(folder: Path, outcomes: dict[str, str], methods: Sequence[str] = STRATEGIES) -> str:
    """A run folder with the three strategies: for each question which of them are right (1)."""
    samples = [
        make_sample(method, question, {"acc": float(mark)}, question=question)
        for question, marks in outcomes.items()
        for method, mark in zip(methods, marks, strict=True)
    ]
    folder.mkdir()
    write_samples(folder / "samples.jsonl", samples)
    write_info(folder, make_info("made", methods))
    return str(folder)


def test_complexity_labels_the_questions_of_runs_and_says_what_they_are_worth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = strategies(tmp_path / "one", {f"What is the colour of thing {n}, in short?": "111" for n in range(6)})
    two = strategies(tmp_path / "two", {f"Who wrote book {n}?": "011" for n in range(5)} | {"Why?": "000"})
    out = tmp_path / "new" / "labels.csv"
    assert main(["complexity", one, two, "--out", str(out)]) == 0
    printed, err = capsys.readouterr()
    assert (printed.splitlines(), err) == (
        [
            f"11 labels written to {out}, 1 questions left out that no strategy answers",
            "  A (no_retrieval): 6",
            "  B (vanilla): 5",
            "  C (ircot): 0",
            "cross-validated accuracy 1.000, always the most frequent label 0.545",
            "predicted  A  B",
            "true           ",
            "A          6  0",
            "B          0  5",
        ],
        "",
    )
    labels = read_labels(str(out))
    assert labels["label"].tolist() == ["A"] * 6 + ["B"] * 5
    assert labels["question"][0] == "What is the colour of thing 0, in short?"
    written = out.read_bytes()
    assert main(["complexity", one, two, "--out", str(out)]) == 0
    assert out.read_bytes() == written
    assert [path.name for path in out.parent.iterdir()] == ["labels.csv"]


def test_complexity_of_too_few_questions_is_written_and_not_cross_validated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = strategies(tmp_path / "few", {"谁？": "111", "哪里？": "001"})
    assert main(["complexity", few, "--out", str(tmp_path / "few.csv"), "--language", "zh"]) == 0
    out, _ = capsys.readouterr()
    assert out.splitlines()[-1] == "not cross-validated: label A has 1 questions; 5 folds need as many each"
    assert (tmp_path / "few.csv").read_text(encoding="utf-8") == "question,label\n谁？,A\n哪里？,C\n"
    none = strategies(tmp_path / "none", {"Q?": "000"})
    assert main(["complexity", none, "--out", str(tmp_path / "none.csv")]) == 0
    assert "not cross-validated: 0 of 3 labels occur" in capsys.readouterr().out


def test_complexity_names_what_is_missing_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.csv"
    lacking = strategies(tmp_path / "lacking", {"Q?": "10"}, ["no_retrieval", "vanilla"])
    assert main(["complexity", lacking, "--out", str(out)]) == 2
    refused(capsys, "the run of made lacks ircot; silver labels need method=[no_retrieval,vanilla,ircot]")
    assert main(["complexity", str(tmp_path / "nowhere"), "--out", str(out)]) == 2
    refused(capsys, "run.json: no such run")
    assert not out.exists()
    with pytest.raises(SystemExit):
        main(["complexity", lacking])
    assert "--out" in capsys.readouterr().err


def test_a_store_is_exported_and_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second, file = (str(tmp_path / name) for name in ("first.sqlite", "second.sqlite", "all.jsonl.xz"))
    store_of(tmp_path / "first.sqlite", "A?", "B?").close()
    store_of(tmp_path / "second.sqlite", "B?", "C?").close()
    assert main(["store", "export", first, file]) == 0
    assert capsys.readouterr().out == f"2 responses written to {file}\n"
    assert main(["store", "import", second, file]) == 0
    assert capsys.readouterr().out == "1 responses added\n"


def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(tmp_path / "s.sqlite")
    store_of(tmp_path / "s.sqlite", "A?").close()
    for action in ("export", "import"):
        assert main(["store", action, store]) == 2
        refused(capsys, f"store {action} needs a file, for example recording.jsonl.xz")
    assert main(["store", "import", store, str(tmp_path / "none.jsonl")]) == 2
    refused(capsys, "none.jsonl: no such recording")
    edited = lines(tmp_path / "edited.jsonl", {"key": "0" * 64, "request": {"model": "x"}, "response": {}})
    assert main(["store", "import", store, str(edited)]) == 2
    refused(capsys, "edited.jsonl, line 1: ")
    (tmp_path / "text.sqlite").write_text("not a database " * 100, encoding="utf-8")
    assert main(["store", "drop", str(tmp_path / "text.sqlite"), "key"]) == 2
    refused(capsys, "text.sqlite: cannot be used (file is not a database)")


def test_tables_say_which_answers_are_lacking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["study=top_k", "dataset=mini", "limit=1", "method=[vanilla]", f"runs={tmp_path}", "resamples=100"]
    assert main(["tables", *options, "~study.variants.vanilla_k7", "--show", "display"]) == 0
    assert "failed" not in capsys.readouterr().err
    unknown = "++study.variants.vanilla_k2={method: vanilla, top_k: 2}"
    assert main(["tables", *options, unknown, "--show", "display"]) == 1
    out, err = capsys.readouterr()
    assert "| mini | EM | Vanilla RAG |" in out
    assert "1 of 4 answers failed, for example" in err and "no recorded response" in err
