"""A study: the runs it needs, and the notebook that shows them."""

import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
import papermill
import traitlets.config
import zmq
from nbconvert import HTMLExporter

from rag_notes.config import (
    PROJECT,
    Config,
    ConfigError,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
    choices,
    load_config,
)
from rag_notes.evaluate import Method, describe, evaluate, fingerprint
from rag_notes.llm.client import LLM
from rag_notes.records import Run, write_atomically
from rag_notes.report.calls import count_calls
from rag_notes.retrieval.base import Retriever
from rag_notes.sharing import made_elsewhere
from rag_notes.types import Dataset

# A kernel that can encrypt what it sends over TCP does so; it would warn each time that it does not.
_ENCRYPTED = traitlets.config.Config(
    {"KernelManager": {"transport_encryption": "auto" if zmq.has("curve") else "disabled"}}
)

Change = Callable[[Dataset, Retriever], tuple[Dataset, Retriever]]


async def run_study(
    config: Config, given: Sequence[str] = (), *, change: Change | None = None, progress: bool = True
) -> list[Run]:
    """Evaluate the chosen methods on each chosen data set.

    There is one run a data set, in a folder named by data set, model and a hash of everything that determines the
    result, so that a study continues what was interrupted; what runs of other studies have of it is taken over. `given`
    are the options as the user gave them. `change` puts another data set and retriever in the place of those chosen.
    Raises as `rag_notes.evaluate.evaluate` does.
    """
    methods = build_methods(config)
    runs = []
    async with build_llm(config) as llm:
        for chosen in build_datasets(config):
            dataset, retriever = chosen, build_retriever(config, chosen.corpus)
            if change is not None:
                dataset, retriever = change(dataset, retriever)
            run = await run_methods(config, methods, dataset, retriever, llm, given=given, progress=progress)
            runs.append(run)
            if run.info["status"] != "finished":
                break
    return runs


async def run_methods(
    config: Config,
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    *,
    given: Sequence[str] = (),
    progress: bool = True,
) -> Run:
    """Evaluate these methods on one data set, in the folder that belongs to just this run; see `run_study`."""
    templates = build_templates(config)
    info = describe(methods, dataset.questions, retriever, llm, templates, dataset=dataset.name, repeat=config.repeat)
    folder = PROJECT / config.runs / f"{dataset.name}-{_slug(llm.model)}-{fingerprint(info)[:10]}"
    return await evaluate(
        methods,
        dataset.questions,
        retriever,
        llm,
        folder=folder,
        dataset=dataset.name,
        templates=templates,
        repeat=config.repeat,
        retry_errors=config.retry_errors,
        made=made_elsewhere(PROJECT / config.runs, info, folder),
        study=config.study.name,
        given=given,
        progress=progress,
    )


async def count_study_calls(config: Config) -> dict[str, pd.DataFrame]:
    """What `rag_notes.report.calls.count_calls` counts for the chosen methods, by data set."""
    async with build_llm(config) as llm:
        return {
            dataset.name: await count_calls(
                build_methods(config),
                dataset.questions,
                build_retriever(config, dataset.corpus),
                llm,
                build_templates(config),
            )
            for dataset in build_datasets(config)
        }


def label(config: Config) -> str:
    """A short name for the files of a study: its data sets, its model, and its retriever where it is not BM25."""
    retriever = str(config.retriever["_target_"]).rpartition(".")[2]
    parts = ["+".join(config.dataset), config.llm["model"], *([] if retriever == "bm25" else [retriever])]
    return _slug("-".join(parts))


def studies() -> list[str]:
    """The studies there are, in the order of their notebooks."""
    return sorted(choices("study"), key=lambda name: load_config([f"study={name}"]).study.notebook)


def reproduce(overrides: Sequence[str] = ()) -> Path:
    """Execute the notebook of the chosen study with these options; returns the executed copy (HTML lies beside it).

    The copy goes to `runs/<study>/`, whole or not at all. Raises ConfigError for a bad option before anything runs,
    papermill's PapermillExecutionError where a cell fails (the copy then shows it, as `*.failed.ipynb`).
    """
    config = load_config(overrides)
    source = PROJECT / config.study.notebook
    if not source.is_file():
        raise ConfigError(f"study.notebook: {source} does not exist")
    parameters: dict[str, Any] = {"options": list(overrides)}
    known = papermill.inspect_notebook(str(source))
    if unknown := set(parameters) - set(known):
        raise ConfigError(f"{source.name}: its cell tagged `parameters` lacks {sorted(unknown)}")
    folder = PROJECT / config.runs / config.study.name
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{source.stem}-{label(config)}.ipynb"
    part = target.with_suffix(".failed.ipynb")
    papermill.execute_notebook(
        str(source),
        str(part),
        parameters=parameters,
        cwd=str(PROJECT),
        progress_bar=False,
        stderr_file=sys.stderr,
        config=_ENCRYPTED,
    )
    notebook = nbformat.read(part, as_version=4)  # type: ignore[no-untyped-call]
    _strip(notebook)
    write_atomically(target, nbformat.writes(notebook))  # type: ignore[no-untyped-call]
    part.unlink()
    page, _ = HTMLExporter().from_notebook_node(notebook)  # type: ignore[no-untyped-call]
    write_atomically(target.with_suffix(".html"), page)
    return target


def reproduce_all(chosen: Sequence[Sequence[str]]) -> Iterator[Path]:
    """Execute a study for each of these lists of options, as many at once as there are processors, as `reproduce` does.

    Yields the executed copies, in the order of the lists.
    """
    if len(chosen) == 1:
        yield reproduce(chosen[0])
        return
    with ProcessPoolExecutor(min(len(chosen), os.cpu_count() or 1), multiprocessing.get_context("spawn")) as workers:
        yield from workers.map(reproduce, chosen)


def _strip(notebook: nbformat.NotebookNode) -> None:
    """Take out what differs from one execution to the next: paths, times, progress bars."""
    for holder in (notebook, *notebook.cells):
        for name in ("papermill", "execution"):
            holder.metadata.pop(name, None)
    for cell in notebook.cells:
        if "outputs" in cell:
            cell.outputs = [out for out in cell.outputs if not (out.get("name") == "stderr" and "\r" in out.text)]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", text).strip("-")
