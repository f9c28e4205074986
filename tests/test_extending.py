"""A method, a prompt, a data set and a study of one's own, each as docs/extending.md says."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell

from rag_notes.cli import main
from rag_notes.config import load_config
from rag_notes.files import SHIPPED
from rag_notes.parts import ConfigError
from rag_notes.report.figures import forest
from rag_notes.report.rows import described, score_rows
from rag_notes.report.tables import results
from rag_notes.running.records import load_run
from tests.loopback import Loopback
from tests.plain import plain_options, run_folder
from tests.scripted import play

PAGE = (SHIPPED / "docs" / "extending.md").read_text(encoding="utf-8")
BROKEN = """
def not_async(rag, question):
    return 1


async def broken(rag, question):
    raise RuntimeError('a \\x1b[31mred\\x1b[0m error')


NUMBER = 3
"""


def blocks(language: str, page: str = PAGE) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for name, text in fences if name == language]


def command(text: str) -> list[str]:
    """The command of the page that has this text in it, as words without the program's name."""
    return next(line for block in blocks("", PAGE) for line in block.splitlines() if text in line).split()[1:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with the page's method in a file of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_methods.py").write_text(blocks("python")[0] + BROKEN, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    return tmp_path


def test_a_method_in_a_file_runs_and_every_table_and_figure_has_it(folder: Path) -> None:
    with Loopback(folder / "log") as server:
        live = ["llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}", "limit=3", "resamples=100"]
        assert main([*command("method.mine._target_"), *live]) == 0
        run = load_run(run_folder(folder))
        assert run.methods == ["vanilla", "mine"]
        assert run.info.methods["mine"].function == "my_methods.one_note"
        assert run.info.methods["mine"].settings == {"top_k": 3}
        table = described(results([run], resamples=100), [run])
        drawn = [text.get_text() for text in forest(score_rows(table, "f1")).findobj() if hasattr(text, "get_text")]
        assert "mine" in drawn
        assert main(["plan", *command("method.mine._target_")[1:], *live]) == 0


def test_the_method_of_the_page_asks_what_it_says(folder: Path) -> None:
    space: dict[str, Any] = {}
    exec(blocks("python")[0], space)
    played = play(space["one_note"], lambda ask: f"from {ask.stage}")
    assert (played.answer, played.log) == ("from answer_short", ["search", "note_init", "answer_short"])


def test_the_conf_of_the_page_names_a_method_of_the_package(folder: Path) -> None:
    (entry,) = blocks("yaml")
    assert "_target_: rag_notes.methods.one_note.one_note" in entry


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("my_methods.none", "'my_methods.none' cannot be imported"),
        ("my_methods.NUMBER", "'my_methods.NUMBER' is no function or class"),
        ("nowhere_at_all.f", "'nowhere_at_all.f' cannot be imported (No module named 'nowhere_at_all')"),
        ("my_methods.not_async", "a method is an async function of (rag, question) and its settings"),
    ],
)
def test_what_is_no_method_is_refused(folder: Path, target: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_config([f"method.mine._target_={target}"])
    assert str(error.value).startswith("method.mine._target_: ")
    assert message in str(error.value)


def test_a_misspelt_setting_of_ones_own_method_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"method\.mine\.top_kk: no such option; did you mean top_k"):
        load_config(["method.mine._target_=my_methods.one_note", "method.mine.top_kk=3"])


def test_a_bug_in_a_method_says_where_it_is_and_steers_no_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["dataset=plain", *plain_options(folder), "method=[no_retrieval]", "~method.no_retrieval"]
    assert main(["run", *options, "method.broken._target_=my_methods.broken"]) == 1
    out, err = capsys.readouterr()
    assert r"2 x RuntimeError: a \x1b[31mred\x1b[0m error" in err
    assert "my_methods.py" in err
    assert "\x1b" not in out + err


def test_a_prompt_of_ones_own_is_sent(folder: Path) -> None:
    prompt = next(block for block in blocks("") if block.startswith("#"))
    (folder / "mine" / "en").mkdir(parents=True)
    (folder / "mine" / "en" / "note_init.txt").write_text(prompt, encoding="utf-8")
    with Loopback(folder / "log") as server:
        live = ["llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}"]
        assert main(["run", "dataset=mini", "limit=1", "method=deepnote", "prompts=mine", "resamples=100", *live]) == 0
    (first, *_) = [event for event in load_run(run_folder(folder)).of("deepnote")[0].trace if event.event == "ask"]
    assert first.prompt.startswith("Write down what the passages say about the question, in one paragraph.")


def test_questions_and_passages_of_ones_own_are_read_from_files(folder: Path) -> None:
    namespace: dict[str, Any] = {}
    source = blocks("python")[1].replace("lab = rn.open(", "data = dict(")
    exec(source, namespace)
    for name, rows in namespace["data"].items():
        lines = [json.dumps({"id": str(number)} | row) + "\n" for number, row in enumerate(rows)]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    with Loopback(folder / "log") as server:
        live = ["llm=openai", "llm.model=tiny", f"llm.base_url={server.base_url}", "resamples=100"]
        assert main([*command("dataset.plain.path="), "method=[vanilla]", *live]) == 0
    assert load_run(run_folder(folder)).frame()["question"].tolist() == ["Where does the Orne rise?"]


def test_a_study_of_ones_own_is_a_notebook_that_is_executed_from_any_folder(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters, cell = blocks("python")[-2:]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    tagged = nbformat.v4.new_code_cell(parameters, metadata={"tags": ["parameters"]})  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(cells=[tagged, nbformat.v4.new_code_cell(cell)], metadata=kernel)  # type: ignore[no-untyped-call]
    nbformat.write(notebook, folder / "my_study.ipynb")  # type: ignore[no-untyped-call]
    study = ["reproduce", "study=my_study.ipynb", "limit=20"]
    assert f"`rag-notes {' '.join(study)}`" in PAGE
    assert main([*study, "resamples=100"]) == 0
    assert "runs/my_study/my_study.ipynb and my_study.html" in capsys.readouterr().out
    executed = nbformat.read(folder / "runs" / "my_study" / "my_study.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    assert "DeepNote" in str(executed.cells[-1].outputs)
    assert main([*study, "limt=3"]) == 2
    assert "limt" in capsys.readouterr().err


def test_the_examples_of_the_readme_run_when_pasted(folder: Path) -> None:
    shell = InteractiveShell()  # type: ignore[no-untyped-call]
    for example in blocks("python", (SHIPPED / "README.md").read_text(encoding="utf-8")):
        shell.run_cell(example).raise_error()  # type: ignore[no-untyped-call]
    assert list((folder / "runs").iterdir())
