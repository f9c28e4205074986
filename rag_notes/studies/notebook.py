"""Execute the studies' notebooks: the executed copy, and a page of it that opens from disk and runs nothing."""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import nbformat
import papermill
import traitlets.config
import zmq
from nbconvert import HTMLExporter

from rag_notes.config import ConfigError, load_config
from rag_notes.files import here, here_or_shipped, write_atomically
from rag_notes.options import choices
from rag_notes.running.run import label
from rag_notes.studies.base import RUNS_MIME
from rag_notes.terminal import PROGRESS_LINE

# A kernel that can encrypt what it sends over TCP does so; it would warn each time that it does not.
_ENCRYPTED = traitlets.config.Config(
    {"KernelManager": {"transport_encryption": "auto" if zmq.has("curve") else "disabled"}}
)
# nbconvert's page without what it loads from elsewhere; names and answers in it are never run as scripts.
_PAGE = """\
{%- extends 'lab/index.html.j2' -%}
{%- block html_head_js -%}
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; img-src data:; font-src data:; style-src 'unsafe-inline'">
{%- endblock html_head_js -%}
{%- block html_head_js_mathjax -%}{%- endblock html_head_js_mathjax -%}
{%- block html_head_js_mermaidjs -%}{%- endblock html_head_js_mermaidjs -%}
"""
_STAGES = {"main_results": 0, "verification": 2}  # what all others (1) share calls with, and what reads their runs


class Reproduced(NamedTuple):
    """An executed notebook, and how many answers its study lacks: they failed, or the run stopped before."""

    notebook: Path
    lacking: int


def studies(options: Sequence[str] = ()) -> list[str]:
    """The studies that can be made of the data sets that options choose (all), in the order of their notebooks."""
    named = (load_config([f"study={name}", "llm=openai"]).study for name in choices("study"))  # recordings lack some
    known = sorted(named, key=lambda study: study.notebook)
    chosen = [option for option in options if option.startswith("dataset=")]
    wanted = set(load_config(chosen).dataset) if chosen else set()
    return [study.name for study in known if not study.datasets or wanted <= set(study.datasets)]


def reproduce(overrides: Sequence[str] = ()) -> Reproduced:
    """Execute the notebook of the chosen study with these options; a page as HTML lies beside the executed copy.

    The copy goes to `runs/<study>/`, whole or not at all. Raises ConfigError for a bad option before anything runs,
    papermill's PapermillExecutionError where a cell fails (the copy then shows it, as `*.failed.ipynb`).
    """
    config = load_config(overrides)
    source = here() / here_or_shipped(config.study.notebook)
    if not source.is_file():
        raise ConfigError(f"study.notebook: {source} does not exist")
    if "options" not in papermill.inspect_notebook(str(source)):
        raise ConfigError(f"{source.name}: its cell tagged `parameters` lacks `options`")
    folder = here() / config.runs / config.study.name
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}-{label(config)}.ipynb"
    part = target.with_suffix(".failed.ipynb")
    papermill.execute_notebook(
        str(source),
        str(part),
        parameters={"options": list(overrides)},
        cwd=str(here()),
        progress_bar=False,
        stderr_file=sys.stderr,
        config=_ENCRYPTED,
        shutdown_kernel="immediate",  # asked to end, a kernel is interrupted first, which it prints as an error
    )
    notebook = nbformat.read(part, as_version=4)  # type: ignore[no-untyped-call]
    _strip(notebook)
    write_atomically(target, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    part.unlink()
    write_atomically(target.with_suffix(".html"), as_page(notebook))
    return Reproduced(target, lacking(notebook))


def reproduce_all(chosen: Sequence[Sequence[str]]) -> Iterator[Reproduced]:
    """Execute a study for each of these lists of options, as `reproduce` does, and yield each as it is done.

    The main results come first, since the others find most of their calls in the store then, and the verification
    comes last, since it reads every run that there is. Between them run as many at once as there are processors; with
    a model that is asked only one, since its concurrency and its limit on what is spent are those of one study.
    """
    configs = [(load_config(options), options) for options in chosen]
    recorded = all("recordings" in config.llm and not config.stages for config, _ in configs)
    for stage in range(3):
        now = [options for config, options in configs if _STAGES.get(config.study.name, 1) == stage]
        workers = min(len(now), os.cpu_count() or 1) if recorded else 1
        if workers <= 1:
            yield from map(reproduce, now)
            continue
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            yield from pool.map(reproduce, now)


def as_page(notebook: nbformat.NotebookNode) -> str:
    """A notebook as one HTML file that loads nothing and in which no script runs."""
    exporter = HTMLExporter(embed_images=True)  # type: ignore[no-untyped-call]
    exporter.raw_template = _PAGE
    page: str = exporter.from_notebook_node(notebook)[0]
    return page


def lacking(notebook: nbformat.NotebookNode) -> int:
    """How many answers the studies that an executed notebook shows lack, as their outputs say."""
    shown = [output.get("data", {}).get(RUNS_MIME) for cell in notebook.cells for output in cell.get("outputs", [])]
    return sum(int(study["lacking"]) for study in shown if study)


def _strip(notebook: nbformat.NotebookNode) -> None:
    """Take out what differs from one execution to the next: paths, times, progress bars."""
    for holder in (notebook, *notebook.cells):
        for name in ("papermill", "execution"):
            holder.metadata.pop(name, None)
    for cell in notebook.cells:
        for out in cell.get("outputs", []):
            if out.get("name") == "stderr":
                text = PROGRESS_LINE.sub("", out.text)
                out.text = "" if "\r" in text or text.isspace() else text
        if "outputs" in cell:
            cell.outputs = [out for out in cell.outputs if out.get("text") != ""]
