"""Execute the notebooks of studies, or one's own, each with a page of it that opens from disk and runs nothing."""

import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import papermill
import yaml
import zmq
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import DeadKernelError
from nbconvert import HTMLExporter
from papermill.exceptions import PapermillExecutionError
from papermill.translators import PythonTranslator
from traitlets.config import Config as Traits

from rag_notes.config import load_config
from rag_notes.files import here, here_or_shipped, write_atomically
from rag_notes.options import CONF, choices
from rag_notes.parts import ConfigError
from rag_notes.running.run import label
from rag_notes.studies.base import COMMON, RUNS_MIME
from rag_notes.terminal import say

# A kernel that can encrypt what it sends over TCP does so; it would warn each time that it does not.
_ENCRYPTED = Traits({"KernelManager": {"transport_encryption": "auto" if zmq.has("curve") else "disabled"}})
_POLICY = "default-src 'none'; img-src data:; font-src data:; style-src 'unsafe-inline'"


class _ThisInterpreter(AsyncKernelManager):
    @property
    def kernel_spec(self) -> KernelSpec:
        return KernelSpec(**get_kernel_dict())


def reproduce(options: Sequence[str] = ()) -> Iterator[tuple[Path, int | None]]:
    """Execute the notebook of `study=NAME`, or of every study; yield each executed copy with its missing answers.

    `study=PATH.ipynb` executes a notebook of one's own. An option with the name of one of the notebook's parameters
    sets it; the others are its `options`. A page as HTML lies beside the copy in `runs/<study>/`. Recorded responses
    let as many notebooks run at once as there are processors; a model that is asked lets one, since its concurrency
    and its limit on spending are those of one study. A copy in which a cell failed is named `*.failed.ipynb` and has
    None for its missing answers. Raises ConfigError for a bad option before anything runs.
    """
    chosen = [option.removeprefix("study=") for option in options if option.startswith("study=")]
    others = [option for option in options if not option.startswith("study=")]
    jobs = [_job(name, others) for name in chosen or studies(others)]
    jobs.sort(key=lambda job: "verification" not in job[0].name)  # which takes longest, first
    llm = load_config([option for option in others if option.startswith("llm=")]).llm
    with ThreadPoolExecutor(os.cpu_count() if "recordings" in llm else 1) as pool:
        yield from pool.map(lambda job: execute(*job), jobs)


def studies(options: Sequence[str] = ()) -> list[str]:
    """Return the studies that can be made of the data sets that the options choose, in the order of the notebooks."""
    chosen = [option for option in options if option.startswith("dataset=")]
    datasets = set(load_config(chosen).dataset) if chosen else set()
    texts = [(CONF / "study" / f"{name}.yaml").read_text(encoding="utf-8") for name in choices("study")]
    configured = sorted((yaml.safe_load(text)["study"] for text in texts), key=lambda study: str(study["notebook"]))
    return [study["name"] for study in configured if not study.get("datasets") or datasets <= {*study["datasets"]}]


def _job(study: str, options: Sequence[str]) -> tuple[Path, Path, dict[str, Any]]:
    """The notebook of a study, its executed copy, and the parameters to set. Raises ConfigError for a bad option."""
    mine = study.endswith(".ipynb")
    source = here() / (study if mine else here_or_shipped(load_config([f"study={study}"]).study.notebook))
    try:
        cells = nbformat.read(source, as_version=4).cells  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ConfigError(f"study={study}: {error}") from None
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    names = [parameter.name for cell in tagged[:1] for parameter in PythonTranslator.inspect(cell)]
    by_name = {option.partition("=")[0]: option for option in options}
    parameters = {name: yaml.safe_load(by_name[name].partition("=")[2]) for name in names if name in by_name}
    rest = [option for name, option in by_name.items() if name not in names]
    if "options" in names:
        parameters["options"] = rest
    elif rest:
        raise ConfigError(f"{rest[0]}: {source.name} has no such parameter; there is {', '.join(names)}")
    checked = [*rest, *(by_name[name] for name in parameters if name in COMMON)]
    config = load_config(checked if mine else [f"study={study}", *checked])
    name = source.stem if mine else f"{source.stem}-{label(config)}"
    return source, here() / config.runs / (source.stem if mine else study) / f"{name}.ipynb", parameters


def execute(source: Path, target: Path, parameters: dict[str, Any]) -> tuple[Path, int | None]:
    """Execute a notebook into `target`, and its page beside it; return what `reproduce` yields."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_suffix(".failed.ipynb")
    places = {"cwd": str(here()), "stderr_file": sys.stderr, "kernel_manager_class": _ThisInterpreter}
    kernel = {"kernel_name": "python3", "language": "python", "config": _ENCRYPTED, "shutdown_kernel": "immediate"}
    try:
        papermill.execute_notebook(str(source), str(part), parameters, progress_bar=False, **places, **kernel)
    except (PapermillExecutionError, DeadKernelError) as error:
        say(f"{source.name}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
        return part, None
    notebook = nbformat.read(part, as_version=4)  # type: ignore[no-untyped-call]
    missing = 0
    notebook.metadata.pop("papermill", None)
    for cell in notebook.cells:  # without what differs from one execution to the next: times, paths, progress
        cell.metadata = {"tags": cell.metadata.get("tags", [])}
        if "outputs" in cell:
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
            missing += sum(output.get("data", {}).get(RUNS_MIME, {}).get("missing", 0) for output in cell.outputs)
    write_atomically(target, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    part.unlink()
    write_atomically(target.with_suffix(".html"), page(notebook))
    return target, missing


def page(notebook: nbformat.NotebookNode) -> str:
    """Return a notebook as one HTML file that loads nothing and in which no script runs."""
    html: str = HTMLExporter(embed_images=True).from_notebook_node(notebook)[0]  # type: ignore[no-untyped-call]
    return html.replace("<head>", f'<head><meta http-equiv="Content-Security-Policy" content="{_POLICY}">', 1)
