"""The built wheel has all that a checkout has, and runs in an empty folder."""

import os
import site
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import msgspec
import nbformat
import pytest

from rag_notes.files import SHIPPED

TOP = ("conf", "notebooks", "data")  # what lies beside the package in a checkout, and in it when it is installed


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=SHIPPED, check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel, which finds the dependencies where these tests have them."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", "--ignore-installed", str(wheel)], check=True)
    return folder / "bin"


def of_git(*folders: str) -> set[str]:
    listed = ["git", "-C", str(SHIPPED), "ls-files", "-z", *folders]
    return {name for name in subprocess.check_output(listed, text=True).split("\0") if (SHIPPED / name).is_file()}


def test_the_wheel_has_every_file_that_a_checkout_has_but_the_generator_of_a_data_set(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    beside = {
        f"rag_notes/shipped/{name}" for name in of_git(*TOP) if name != "data/README.md" and not name.endswith(".py")
    }
    assert len(beside) > 80
    assert "rag_notes/shipped/data/world/passages.jsonl" in beside
    assert names == of_git("rag_notes") | beside


def test_a_study_and_a_notebook_of_ones_own_run_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    jupyter = {"JUPYTER_PATH": str(Path(sys.prefix) / "share" / "jupyter")}  # nbconvert's templates, as installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | jupyter

    def output(command: str, *arguments: str) -> str:
        line = [str(installed / command), *arguments]
        return subprocess.check_output(line, cwd=tmp_path, env=environment, text=True)

    where = Path(output("python", "-c", "import rag_notes; print(rag_notes.__file__)").strip())
    assert where.is_relative_to(installed.parent)
    message = output("rag-notes", "reproduce", "study=content_filter", "limit=3", "resamples=100")
    assert "runs/content_filter/10_content_filter-" in message
    assert {path.name for path in tmp_path.iterdir()} == {".cache", "figures", "runs"}
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".pdf", ".csv"}
    records = [msgspec.json.decode(path.read_bytes()) for path in (tmp_path / "runs").glob("world-Qwen*/run.json")]
    assert [record["status"] for record in records] == ["finished"]
    cell = (
        'import rag_notes as rn\nprint(rn.__file__)\nrn.table(await rn.open("world").run("vanilla", 2), resamples=100)'
    )
    mine = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])  # type: ignore[no-untyped-call]
    nbformat.write(mine, tmp_path / "mine.ipynb")  # type: ignore[no-untyped-call]
    output("python", "-m", "papermill", "mine.ipynb", "executed.ipynb", "-k", "python3", "--log-level", "ERROR")
    executed = (tmp_path / "executed.ipynb").read_text(encoding="utf-8")
    assert str(where) in executed and "Vanilla RAG" in executed
