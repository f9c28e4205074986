"""The notebooks: sources with typed literal parameters and no results, executed from recordings without a model."""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from rag_notes.cli import main
from rag_notes.config import load_config
from rag_notes.files import SHIPPED
from rag_notes.options import choices
from rag_notes.parts import ConfigError
from rag_notes.studies.notebook import page, reproduce, studies
from tests.loopback import Loopback
from tests.samples import samples

NOTEBOOKS = sorted((SHIPPED / "notebooks").glob("*.ipynb"))
SOURCES = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
Executed = dict[str, tuple[Path, int | None]]


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    every: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in every if cell["cell_type"] == kind]


def parse(cell: dict[str, Any]) -> ast.Module:
    tree = compile("".join(cell["source"]), cell["id"], "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(tree, ast.Module)
    return tree


def test_every_notebook_belongs_to_a_study_in_order() -> None:
    files = [load_config([f"study={name}"]).study.notebook for name in studies()]
    assert files == [f"notebooks/{path.name}" for path in NOTEBOOKS]
    assert sorted(studies()) == choices("study")
    assert set(studies()) - set(studies(["limit=3", "dataset=[mini,world]"])) == {"chain_of_facts", "quickstart"}


@SOURCES
def test_a_source_tells_a_story_and_holds_no_results(path: Path) -> None:
    source = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(source)
    assert source.cells[0].cell_type == source.cells[-1].cell_type == "markdown"
    assert source.cells[0].source.startswith("# ")
    assert set(source.metadata) <= {"kernelspec", "language_info"}
    for cell in cells(path):
        assert parse(cell).body
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        assert set(cell["metadata"]) <= {"tags"}
        assert len(cell["source"]) <= 20


@SOURCES
def test_parameters_are_typed_literals_that_papermill_shows(path: Path) -> None:
    (tagged,) = [cell for cell in cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    names = []
    for statement in parse(tagged).body:
        assert isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value
        ast.literal_eval(statement.value)  # a derived value would be stale once a parameter is set
        names.append(statement.target.id)
    parameters = papermill.inspect_notebook(str(path))
    assert list(parameters) == names
    assert "options" in names
    assert all(parameter["inferred_type_name"] in ("str", "int", "list") for parameter in parameters.values())


@pytest.fixture(scope="session")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Executed, Path]:
    """Every notebook executed on few questions, with the folder of its runs and figures."""
    folder = tmp_path_factory.mktemp("notebooks")
    options = [f"runs={folder / 'runs'}", f"figures={folder / 'figures'}", "resamples=50"]
    few = [f"study={name}" for name in studies() if name != "fair_top_k"]  # whose fair number is recorded for more
    done = [*reproduce([*few, *options, "limit=3"]), *reproduce(["study=fair_top_k", *options])]
    return {path.parent.name: (path, missing) for path, missing in done}, folder


def outputs(path: Path) -> list[Any]:
    executed_copy = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    assert all(cell.execution_count for cell in executed_copy.cells if cell.cell_type == "code")
    return [output for cell in executed_copy.cells for output in cell.get("outputs", [])]


@pytest.mark.xdist_group("notebooks")  # executed by one worker, for all
@pytest.mark.parametrize("name", choices("study"))
def test_a_notebook_executes_from_recordings(executed: tuple[Executed, Path], name: str) -> None:
    path, missing = executed[0][name]
    assert missing == 0
    assert {file.name for file in path.parent.iterdir()} == {path.name, f"{path.stem}.html"}
    results = outputs(path)
    assert [output for output in results if output.output_type in ("error", "stream") and name != "quickstart"] == []
    assert any("text/html" in output.get("data", {}) for output in results)
    assert any("image/png" in output.get("data", {}) for output in results)
    html = path.with_suffix(".html").read_text(encoding="utf-8")
    for text in (path.read_text(encoding="utf-8"), html):
        assert f"{SHIPPED}/" not in text and f"{Path.home()}/" not in text
    files = {file.name for file in (executed[1] / "figures").glob(f"{name}-*")}
    stems = {Path(file).stem for file in files}
    assert stems or (name == "compare" and (executed[1] / "figures" / "compare.png").exists()) or name == "quickstart"
    assert files == {f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf", "csv")}


def test_a_page_loads_nothing_and_runs_no_script() -> None:
    evil = "<script>document.title = 'run'</script><img src=x onerror=alert(1)>"
    output = nbformat.v4.new_output("display_data", data={"text/html": evil})  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell("1", outputs=[output])  # type: ignore[no-untyped-call]
    html = page(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', html)
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy  # none may run: that of default-src holds
    assert html.index("Content-Security-Policy") < min(html.index("<style"), html.index("<script"))


MINE = """\
limit: int = 2  # so many questions
name: str = "mini"
---
import sys
import rag_notes as rn
run = await rn.open(name, "limit=1", "runs=runs").run(["vanilla"], limit)
print(sys.executable, len(run.frame()), run.dataset)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A notebook of one's own in an otherwise empty folder, and no kernel that could be another interpreter's."""
    first, second = MINE.split("---\n")
    parameters = nbformat.v4.new_code_cell(first, metadata={"tags": ["parameters"]})  # type: ignore[no-untyped-call]
    notebook = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=[parameters, nbformat.v4.new_code_cell(second)],  # type: ignore[no-untyped-call]
    )  # which names no kernel
    kernel = tmp_path / "kernels" / "python3"
    kernel.mkdir(parents=True)
    (kernel / "kernel.json").write_text('{"argv": ["false"], "display_name": "x", "language": "python"}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.delenv("RAG_NOTES_RUNS", raising=False)
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    nbformat.write(notebook, folder / "mine.ipynb")  # type: ignore[no-untyped-call]
    yield folder


def test_a_notebook_of_ones_own_runs_from_an_empty_folder_in_this_interpreter(mine: Path) -> None:
    ((path, missing),) = reproduce(["study=mine.ipynb", "limit=1"])
    assert (path, missing) == (mine / "runs" / "mine" / "mine.ipynb", 0)
    (output,) = outputs(path)
    assert output.text == f"{sys.executable} 1 mini\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["study=nowhere.ipynb"], "study=nowhere.ipynb: .*No such file.*nowhere.ipynb"),
        (["study=mine.ipynb", "llm=openai"], "llm=openai: mine.ipynb has no such parameter; there is limit, name"),
        (["study=main_results", "metrc=f1"], "metrc: no such option"),
        (["study=main_results", "limit=no"], "limit: .*valid integer"),
        (["study=mains"], "no such study; there is main_results"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_before_anything_runs(
    mine: Path, options: list[str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        list(reproduce(options))
    assert [file.name for file in mine.iterdir()] == ["mine.ipynb"]


def test_a_notebook_that_fails_does_not_hide_the_others(mine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = (mine / "mine.ipynb").read_text(encoding="utf-8")
    (mine / "failing.ipynb").write_text(text.replace("import sys", "raise RuntimeError('on purpose')"), "utf-8")
    assert main(["reproduce", "study=failing.ipynb", "study=mine.ipynb"]) == 1
    out, err = capfd.readouterr()
    assert out == "runs/mine/mine.ipynb and mine.html\n"
    assert "RuntimeError: on purpose" in err and "runs/failing/failing.failed.ipynb" in err
    (mine / "text.ipynb").write_text("no JSON", "utf-8")
    assert main(["reproduce", "study=text.ipynb"]) == 2
    assert capfd.readouterr().err.startswith("rag-notes: study=text.ipynb: ")


def test_missing_answers_are_counted(tmp_path: Path) -> None:
    options = ["study=case_studies", f"runs={tmp_path / 'runs'}", f"figures={tmp_path}", "limit=2"]
    # Nothing is recorded for this.
    ((_, missing),) = reproduce([*options, "method=[vanilla,amber]", "llm.max_tokens=1"])
    assert missing == 4


def test_parameters_of_a_notebook_are_set_on_the_command_line(tmp_path: Path) -> None:
    folders = [f"runs={tmp_path / 'runs'}", f"figures={tmp_path}"]
    ((path, _),) = reproduce(["study=ablation", *folders, "dataset=mini", "limit=2", "metric=acc", "resamples=50"])
    source = nbformat.read(path, as_version=4).cells[2].source  # type: ignore[no-untyped-call]
    assert 'dataset = "mini"\nlimit = 2\nmetric = "acc"' in source
    table = tmp_path / "ablation-mini-Qwen2.5-Coder-1.5B-Instruct.csv"
    assert "Acc., difference" in table.read_text(encoding="utf-8")


REAL = {"twowikimultihopqa": "2wikimultihopqa/dev.sample500.json", "musique": "musique/musique_ans_dev.sample200.jsonl"}


@pytest.mark.parametrize("study", ["main_results", "robustness"])
def test_a_study_runs_on_several_data_sets_with_a_server(study: str, tmp_path: Path) -> None:
    options = [
        *(f"study={study}", f"dataset=[{','.join(REAL)}]", "limit=2", "retriever.cache=null", "resamples=50"),
        *(f"dataset.{name}.path={samples(path)}" for name, path in REAL.items()),
        *("llm=openai", "llm.model=tiny", f"llm.store={tmp_path / 'store.sqlite'}", "method=[vanilla,retrieve_read]"),
        *(f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}"),
    ]
    with Loopback(tmp_path / "log") as server:
        ((path, missing),) = reproduce([*options, f"llm.base_url={server.base_url}"])
    assert missing == 0
    assert any("image/png" in output.get("data", {}) for output in outputs(path))
