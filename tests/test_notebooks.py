"""The notebooks: clean sources with one cell of literal parameters, and executed from recordings without a model."""

import ast
import json
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from rag_notes.config import CONF, PROJECT, choices, load_config
from rag_notes.study import label, reproduce
from tests.loopback import Loopback
from tests.samples import samples

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
RECORDING = PROJECT / "data" / "recordings" / "mini.jsonl.xz"


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return found


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in cells(path) if cell["cell_type"] == "code"]


def parse(cell: dict[str, Any]) -> ast.Module:
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile("".join(cell["source"]), cell["id"], "exec", flags)
    assert isinstance(tree, ast.Module)
    return tree


def test_every_notebook_belongs_to_a_study() -> None:
    named = {load_config([f"study={study}"]).study.notebook for study in choices("study")}
    assert named == {f"notebooks/{path.name}" for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_source_holds_no_results(path: Path) -> None:
    nbformat.validate(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]
    assert code(path)
    for cell in code(path):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        assert set(cell["metadata"]) <= {"tags"}
    assert set(json.loads(path.read_text(encoding="utf-8"))["metadata"]) <= {"kernelspec", "language_info"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_code_cell_is_python(path: Path) -> None:
    for cell in code(path):
        assert parse(cell).body


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_parameters_are_literals_in_one_cell_and_papermill_sees_them(path: Path) -> None:
    (tagged,) = [cell for cell in cells(path) if "parameters" in cell["metadata"].get("tags", [])]
    names = []
    for statement in parse(tagged).body:
        assert isinstance(statement, ast.Assign)
        ast.literal_eval(statement.value)  # a derived value would be stale once a parameter is injected
        (name,) = statement.targets
        assert isinstance(name, ast.Name)
        names.append(name.id)
    assert "options" in names
    assert list(papermill.inspect_notebook(str(path))) == names


@pytest.mark.parametrize("study", sorted(set(choices("study")) - {"quickstart"}))
def test_a_notebook_that_is_opened_by_hand_is_its_own_study(study: str) -> None:
    source = PROJECT / load_config([f"study={study}"]).study.notebook
    assert any(f'load_study("{study}", options)' in "".join(cell["source"]) for cell in code(source))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_tells_a_story(path: Path) -> None:
    assert cells(path)[0]["cell_type"] == cells(path)[-1]["cell_type"] == "markdown"
    assert "".join(cells(path)[0]["source"]).startswith("# ")
    assert all(len(cell["source"]) <= 15 for cell in code(path))


@pytest.mark.skipif(not RECORDING.exists(), reason=f"{RECORDING.relative_to(PROJECT)} is not there")
@pytest.mark.parametrize("study", [path.stem for path in sorted((CONF / "study").glob("*.yaml"))])
def test_a_study_is_reproduced_from_recordings(study: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = [f"study={study}", f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}", "resamples=1000"]
    check(study, options, tmp_path)
    assert "WARNING" not in capfd.readouterr().err  # not of the kernel either, such as of a channel left unencrypted


@pytest.mark.skipif(not RECORDING.exists(), reason=f"{RECORDING.relative_to(PROJECT)} is not there")
def test_figures_are_made_again_from_records_alone_and_are_the_same(tmp_path: Path) -> None:
    options = ["study=fair_top_k", f"runs={tmp_path / 'runs'}", "resamples=1000", "limit=12"]
    reproduce([*options, f"figures={tmp_path / 'first'}"])
    reproduce([*options, f"figures={tmp_path / 'again'}", "llm.recordings=[]"])
    first, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("first", "again")
    )
    assert len(first) == 3
    assert first == again


REAL = {
    "twowikimultihopqa": "2wikimultihopqa/dev.sample500.json",
    "musique": "musique/musique_ans_dev.sample200.jsonl",
}


@pytest.mark.parametrize("study", sorted(set(choices("study")) - {"quickstart"}))
def test_a_study_runs_on_real_data_with_a_server(study: str, tmp_path: Path) -> None:
    options = [
        *(f"study={study}", f"dataset=[{','.join(REAL)}]", "limit=3", "retriever.cache=null", "resamples=200"),
        *(f"dataset.{name}.path={samples(path)}" for name, path in REAL.items()),
        *("llm=openai", "llm.model=tiny", f"llm.store={tmp_path / 'store.sqlite'}"),
        *(f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}"),
    ]
    if "flare" in load_config([f"study={study}"]).method:  # this server has no log-probabilities to give
        options.append(f"method=[{','.join(name for name in load_config().method if name != 'flare')}]")
    with Loopback(tmp_path / "log") as server:
        check(study, [*options, f"llm.base_url={server.base_url}"], tmp_path, sends=True)


def check(study: str, options: list[str], folder: Path, *, sends: bool = False) -> None:
    """Reproduce a study and check what it leaves behind; `sends` says whether it may ask a model."""
    executed = reproduce(options)
    config = load_config(options)
    assert executed.parent == folder / "runs" / study
    assert {path.name for path in executed.parent.iterdir()} == {executed.name, f"{executed.stem}.html"}

    notebook = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    assert [output for output in outputs if output.output_type == "error"] == []
    stderr = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    assert [line for line in stderr.splitlines() if line and "answer" not in line] == []  # the progress bar only
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)

    text = executed.read_text(encoding="utf-8")
    page = executed.with_suffix(".html").read_text(encoding="utf-8")
    assert notebook.cells[0].source.splitlines()[0].removeprefix("# ") in page
    for place in (PROJECT, Path.home()):
        assert f"{place}/" not in text
        assert f"{place}/" not in page

    if any("save_figure" in cell.source for cell in notebook.cells):
        files = {path.name for path in (folder / "figures").iterdir() if path.name.startswith(f"{study}-")}
        stems = {Path(name).stem for name in files}
        assert stems
        assert all(stem.endswith(f"-{label(config)}") for stem in stems)
        assert files == {f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf", "csv")}
        for stem in stems:
            for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
                assert (folder / "figures" / f"{stem}.{kind}").read_bytes().startswith(magic)
            assert len((folder / "figures" / f"{stem}.csv").read_text(encoding="utf-8").splitlines()) > 1
    for run_file in (folder / "runs").glob("*/run.json"):
        info = json.loads(run_file.read_text(encoding="utf-8"))
        assert (info["status"], info["samples"]["errors"]) == ("finished", 0)
        assert sends or info["usage"]["sent"] == 0
