"""A method of one's own, named by an option: found in the current folder, run, and nothing else imported for it."""

import re
import sys
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from rag_notes.cli import main
from rag_notes.config import ConfigError, load_config
from rag_notes.files import SHIPPED
from rag_notes.running.run_files import load_run
from tests.plain import plain_options, run_folder

PARROT = """
async def parrot(rag, question, *, word: str = "Rouen"):
    rag.note(word, kept=True)
    return word


async def broken(rag, question):
    raise RuntimeError("a \\x1b[31mred\\x1b[0m error")


def not_async(rag, question):
    return "x"


NUMBER = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a module of methods, which no other test has seen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)
    (tmp_path / "my_methods.py").write_text(PARROT, encoding="utf-8")
    return tmp_path


def options(folder: Path, *more: str) -> list[str]:
    return ["dataset=plain", *plain_options(folder), "method=[no_retrieval]", "~method.no_retrieval", *more]


def test_a_method_in_the_current_folder_runs_with_its_settings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = ["+method.parrot._target_=my_methods.parrot", "baseline=null"]
    assert main(["run", *options(folder, *mine, "+method.parrot.word=Bougival")]) == 0
    assert "parrot" in capsys.readouterr().out
    run = load_run(run_folder(folder))
    assert [sample.answer for sample in run.samples] == ["Bougival", "Bougival"]
    assert [sample.metrics["em"] for sample in run.samples] == [0, 1]
    assert run.info.methods["parrot"].function == "my_methods.parrot"
    assert run.info.methods["parrot"].settings == {"word": "Bougival"}
    with pytest.raises(ConfigError, match=r"method\.parrot\.wrod: no such option; did you mean word"):
        load_config(options(folder, *mine, "+method.parrot.wrod=x"))


def readme_examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (SHIPPED / "README.md").read_text(encoding="utf-8"), re.DOTALL)


def test_the_examples_of_the_readme_run_when_pasted(folder: Path) -> None:
    shell = InteractiveShell()  # type: ignore[no-untyped-call]
    for example in readme_examples():
        shell.run_cell(example).raise_error()  # type: ignore[no-untyped-call]
    run = shell.user_ns["run"]
    assert (run.methods, run.info.samples.errors) == (["vanilla", "one_note"], 0)
    assert run.folder.parent == folder / "runs"


def test_the_method_of_the_readme_runs_from_a_file_of_the_current_folder(folder: Path) -> None:
    definition = next(text for text in readme_examples() if "one_note" in text).partition("\n\n\nrun = ")[0]
    (folder / "my_methods.py").write_text(f"{definition}\n", encoding="utf-8")
    mine = "+method.mine._target_=my_methods.one_note"
    assert main(["run", "dataset=mini", "limit=2", "method=vanilla", mine, "resamples=100"]) == 0
    assert load_run(run_folder(folder)).methods == ["vanilla", "mine"]


def test_a_bug_in_a_method_says_where_it_is_and_steers_no_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *options(folder, "+method.broken._target_=my_methods.broken", "baseline=null")]) == 1
    out, err = capsys.readouterr()
    assert "2 of 2 answers failed" in err
    assert r"2 x RuntimeError: a \x1b[31mred\x1b[0m error (my_methods.py:8 in broken)" in err
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("os.system", "'os' is a module of Python or an installed one"),
        ("antigravity.fly", "'antigravity' is a module of Python or an installed one"),
        ("sys.exit", "'sys' is a module of Python or an installed one"),
        ("idlelib.run.main", "'idlelib' is a module of Python or an installed one"),
        ("faiss.contrib.datasets.x", "'faiss' is a module of Python or an installed one"),
        ("nowhere_at_all.f", "there is no module 'nowhere_at_all' here: neither in"),
        ("my_methods.none", "'my_methods.none' cannot be imported"),
        ("my_methods.NUMBER", "'my_methods.NUMBER' is no function or class"),
        ("my_methods.not_async", "a method is an async function of (rag, question) and its settings"),
        ("parrot", "expected MODULE.FUNCTION, found 'parrot'"),
        ("3", "expected MODULE.FUNCTION, found 3"),
        (".os.system", "expected MODULE.FUNCTION, found '.os.system'"),
    ],
)
def test_what_is_no_method_is_refused_and_nothing_installed_is_imported_for_it(
    folder: Path, target: str, message: str
) -> None:
    before = set(sys.modules)
    with pytest.raises(ConfigError) as error:
        load_config(options(folder, f"+method.mine._target_={target}", "baseline=null"))
    assert message in str(error.value)
    assert str(error.value).startswith("method.mine._target_: ")
    assert {"antigravity", "idlelib", "idlelib.run", "faiss"} & (set(sys.modules) - before) == set()


def test_no_part_of_any_kind_imports_what_is_installed(folder: Path) -> None:
    for option in ("llm", "retriever", "dataset.plain"):
        with pytest.raises(ConfigError, match=rf"{option}\._target_: 'antigravity' is a module of Python"):
            load_config(["dataset=plain", *plain_options(folder), f"{option}._target_=antigravity.fly"])
    assert "antigravity" not in sys.modules


def test_a_module_in_a_virtual_environment_below_the_current_folder_is_an_installed_one(folder: Path) -> None:
    packages = folder / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "someones.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    sys.path.append(str(packages))
    with pytest.raises(ConfigError, match="'someones' is a module of Python or an installed one"):
        load_config(options(folder, "+method.mine._target_=someones.method", "baseline=null"))
