"""The notebooks: clean sources with one cell of literal parameters, and executed from recordings without a model."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import papermill
import pytest

from rag_notes.cli import main
from rag_notes.config import ConfigError, load_config
from rag_notes.events import Counts
from rag_notes.files import SHIPPED
from rag_notes.options import choices
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.running.run import label
from rag_notes.studies import notebook
from rag_notes.studies.base import RUNS_MIME
from rag_notes.studies.notebook import as_page, lacking, reproduce, reproduce_all, studies
from tests.loopback import Loopback
from tests.samples import samples

ALL = ["llm.unrecorded=[]"]
OWN = sorted(set(choices("study")) - {"quickstart"})  # the studies with a module of their own
NOTEBOOKS = sorted((SHIPPED / "notebooks").glob("*.ipynb"))
RECORDING = SHIPPED / "data" / "recordings" / "mini.jsonl.xz"


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
    named = {load_config([f"study={study}", *ALL]).study.notebook for study in choices("study")}
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


@pytest.mark.parametrize("study", OWN)
def test_a_notebook_runs_its_own_study_first_and_shows_it(study: str) -> None:
    parameters, first, *others = code(SHIPPED / load_config([f"study={study}", *ALL]).study.notebook)
    names = {target.id for line in parse(parameters).body for target in line.targets}  # type: ignore[attr-defined]
    assert {"options", "dataset", "llm", "limit"} <= names
    lines = "".join(first["source"]).splitlines()
    assert f"from rag_notes.studies import {study}" in lines
    assert any(line.startswith(f"study = await {study}.run(options") for line in lines)
    assert lines[-1] == "study"
    for cell in others:  # what the study does is in its module
        tree = parse(cell)
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom | ast.Await)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_tells_a_story(path: Path) -> None:
    assert cells(path)[0]["cell_type"] == cells(path)[-1]["cell_type"] == "markdown"
    assert "".join(cells(path)[0]["source"]).startswith("# ")
    assert all(len(cell["source"]) <= 15 for cell in code(path))


@pytest.mark.skipif(not RECORDING.exists(), reason=f"{RECORDING.relative_to(SHIPPED)} is not there")
@pytest.mark.parametrize("study", choices("study"))
def test_a_study_is_reproduced_from_recordings(study: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    options = [f"study={study}", f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}", "resamples=1000"]
    check(study, options, tmp_path)
    assert "WARNING" not in capfd.readouterr().err  # not of the kernel either, such as of a channel left unencrypted


@pytest.mark.skipif(not RECORDING.exists(), reason=f"{RECORDING.relative_to(SHIPPED)} is not there")
def test_figures_are_made_again_from_records_alone_and_are_the_same(tmp_path: Path) -> None:
    options = ["study=fair_top_k", "dataset=mini", f"runs={tmp_path / 'runs'}", "resamples=1000", "limit=12"]
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


@pytest.mark.parametrize("study", OWN)
def test_a_study_runs_on_real_data_with_a_server(study: str, tmp_path: Path) -> None:
    only = load_config([f"study={study}", *ALL]).study.datasets  # such a study is of data that need no file
    options = [
        *(f"study={study}", f"dataset=[{','.join(only or REAL)}]", "limit=3", "retriever.cache=null", "resamples=200"),
        *(f"dataset.{name}.path={samples(path)}" for name, path in REAL.items() if not only),
        *("llm=openai", "llm.model=tiny", f"llm.store={tmp_path / 'store.sqlite'}"),
        *(f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}"),
    ]
    asked = load_config([f"study={study}", "llm=openai"])
    if "flare" in asked.method:  # this server has no log-probabilities to give
        others = [name for name in asked.method if name != "flare" and name not in asked.study.variants]
        options.append(f"method=[{','.join(others)}]")
    with Loopback(tmp_path / "log") as server:
        check(study, [*options, f"llm.base_url={server.base_url}"], tmp_path, sends=True)


def check(study: str, options: list[str], folder: Path, *, sends: bool = False) -> None:
    """Reproduce a study and check what it leaves behind; `sends` says whether it may ask a model."""
    executed, missing = reproduce(options)
    assert missing == 0
    config = load_config(options)
    assert executed.parent == folder / "runs" / study
    assert {path.name for path in executed.parent.iterdir()} == {executed.name, f"{executed.stem}.html"}

    made = nbformat.read(executed, as_version=4)  # type: ignore[no-untyped-call]
    outputs = [output for cell in made.cells if cell.cell_type == "code" for output in cell.outputs]
    assert outputs
    assert [output for output in outputs if output.output_type == "error"] == []
    stderr = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stderr")
    assert stderr == ""
    assert all(cell.execution_count for cell in made.cells if cell.cell_type == "code")
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("text/html" in output.get("data", {}) for output in outputs)

    text = executed.read_text(encoding="utf-8")
    page = executed.with_suffix(".html").read_text(encoding="utf-8")
    assert made.cells[0].source.splitlines()[0].removeprefix("# ") in page
    for place in (SHIPPED, Path.home()):
        assert f"{place}/" not in text
        assert f"{place}/" not in page

    shown = [output for output in outputs if output.output_type in {"display_data", "execute_result"}]
    tables = "".join(output["data"].get("text/html", "") for output in shown)
    assert re.findall(r">\s*[-+]?\d+\.\d{6,}\s*<", tables) == []  # numbers are rounded
    heads = set(re.findall(r"<th[^>]*>\s*(\w+_\w+)\s*</th>", tables))
    if study not in {"main_results", "verification"}:  # which name papers, two of them like their methods
        assert heads & {*choices("method"), *METRIC_LABELS, *Counts.__dataclass_fields__, "later_searches"} == set()
    if study != "quickstart":
        assert RUNS_MIME in shown[0]["data"]  # the runs come first
        files = {path.name for path in (folder / "figures").glob(f"{study}-*")}
        stems = {Path(name).stem for name in files}
        assert stems or study == "training"  # which draws nothing where there are no trainings
        assert all(stem.endswith(f"-{label(config)}") for stem in stems)
        assert files == {f"{stem}.{kind}" for stem in stems for kind in ("png", "pdf", "csv")}
        for stem in stems:
            for kind, magic in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
                assert (folder / "figures" / f"{stem}.{kind}").read_bytes().startswith(magic)
            assert len((folder / "figures" / f"{stem}.csv").read_text(encoding="utf-8").splitlines()) > 1
    for run_file in (folder / "runs").glob("*/run.json"):
        info = json.loads(run_file.read_text(encoding="utf-8"))
        assert (info["status"], info["samples"]["errors"]) == ("finished", 0)
        assert sends or info["endpoint"] == "recorded"


def test_a_page_loads_nothing_and_runs_no_script() -> None:
    evil = "<script>document.title = 'run'</script><img src=x onerror=alert(1)>"
    cell = nbformat.v4.new_code_cell(  # type: ignore[no-untyped-call]
        "1",
        outputs=[nbformat.v4.new_output("display_data", data={"text/html": evil})],  # type: ignore[no-untyped-call]
    )
    page = as_page(nbformat.v4.new_notebook(cells=[cell]))  # type: ignore[no-untyped-call]
    (policy,) = re.findall(r'<meta content="([^"]*)" http-equiv="Content-Security-Policy"/>', page)
    assert policy.startswith("default-src 'none';")
    assert "script-src" not in policy  # none may run: that of default-src holds
    assert page.index("Content-Security-Policy") < min(page.index("<style"), page.index("<script"))
    assert page.count("<script") == evil.count("<script")  # no other is there
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//|@import|url\(["']?https?:""", page)


def test_what_a_study_lacks_is_read_from_its_notebook() -> None:
    outputs = [
        nbformat.v4.new_output("execute_result", data={RUNS_MIME: {"lacking": number}, "text/plain": "a study"})  # type: ignore[no-untyped-call]
        for number in (2, 3)
    ]
    cells = [nbformat.v4.new_markdown_cell("# A"), nbformat.v4.new_code_cell("a", outputs=outputs)]  # type: ignore[no-untyped-call]
    assert lacking(nbformat.v4.new_notebook(cells=cells)) == 5  # type: ignore[no-untyped-call]


def test_failed_answers_are_counted_by_reproduce_and_its_exit_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["study=content_filter", f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}", "limit=2"]
    assert main(["reproduce", *options, "llm.max_tokens=1"]) == 1  # nothing is recorded for this
    out, err = capfd.readouterr()
    assert "content_filter" in out
    assert "2 answers are lacking: the notebooks say why; retry_errors=true asks again" in err


def test_studies_run_beside_each_other_and_share_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 12)
    common = [f"runs={tmp_path / 'runs'}", f"figures={tmp_path / 'figures'}", "dataset=mini", "limit=2"]
    common += ["method=[vanilla,chain_of_note]", "resamples=50", "retriever.cache=null"]
    chosen = ["case_studies", "cost", "main_results"]  # all but cost, which lets answers vote, need the same run
    made = list(reproduce_all([[f"study={study}", *common] for study in chosen]))
    assert [each.notebook.parent.name for each in made] == ["main_results", "case_studies", "cost"]
    assert [each.lacking for each in made] == [0, 0, 0]
    infos = [json.loads(path.read_text(encoding="utf-8")) for path in (tmp_path / "runs").glob("mini-Qwen*/run.json")]
    both = [info for info in infos if list(info["methods"]) == ["vanilla", "chain_of_note"]]
    assert [info["studies"] for info in both] == [["case_studies", "main_results"]]
    assert [(info["status"], info["samples"]["done"]) for info in both] == [("finished", 4)]


def test_the_verification_comes_last_and_with_a_model_that_is_asked_studies_run_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def made(options: list[str]) -> notebook.Reproduced:
        return notebook.Reproduced(Path(options[0]), 0)

    monkeypatch.setattr(notebook, "reproduce", made)
    monkeypatch.setattr(notebook, "ProcessPoolExecutor", None)  # calling it would fail
    asked = ["llm=openai", "llm.base_url=http://127.0.0.1:9/v1"]
    named = [f"study={study}" for study in ("verification", "cost", "top_k", "main_results")]
    order = [str(each.notebook) for each in reproduce_all([[study, *asked] for study in named])]
    assert order == [named[3], named[1], named[2], named[0]]


def test_studies_are_named_in_the_order_of_their_notebooks() -> None:
    assert studies()[:2] == ["quickstart", "main_results"]
    assert sorted(studies()) == choices("study")
    assert set(studies()) - set(studies(["limit=3", "dataset=[mini,world]"])) == {"chain_of_facts"}
    assert studies(["dataset=world"]) == studies()


def test_a_notebook_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"study\.notebook: .*nowhere\.ipynb does not exist"):
        reproduce(["study=cost", "study.notebook=notebooks/nowhere.ipynb"])
