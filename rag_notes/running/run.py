"""Run the chosen methods on the chosen data sets, each run in the folder that belongs to just it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rag_notes.config import (
    PROJECT,
    Config,
    ConfigError,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
)
from rag_notes.files import slug
from rag_notes.llm.client import LLM
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import ControlledNoise, NoiseFrom, RetrievedNoise, controllable, retrievable
from rag_notes.running.describe import Method, check_same_run, describe, fingerprint
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Condition, RecordError, Run, load_run
from rag_notes.types import Dataset


async def run_methods(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    methods: Mapping[str, Method] | None = None,
    noise_percent: int | None = None,
    progress: bool = True,
) -> list[Run]:
    """Evaluate methods, those of the configuration unless others are given, on each chosen data set.

    A run's folder is named by data set, model and a hash of what determines the result, so that the same command
    continues what was interrupted. `overrides` are the options as the user gave them. With `noise_percent` so many per
    cent of the passages are noise, and only questions are asked for which that can be controlled. A run that stops at
    the spending limit is the last one. Raises ConfigError where no question can be controlled, and as `evaluate`.
    """
    runs = []
    async with build_llm(config) as llm:
        for dataset in build_datasets(config):
            retriever, condition = build_retriever(config, dataset.corpus), Condition(noise_percent)
            if noise_percent is not None:
                source = config.study.noise_from
                dataset, retriever = with_noise(dataset, retriever, noise_percent, source)  # noqa: PLW2901 - noisy
            chosen = build_methods(config) if methods is None else methods
            runs.append(await run_on(config, chosen, dataset, retriever, llm, condition, overrides, progress=progress))
            if not runs[-1].info.finished:
                break
    return runs


async def run_on(
    config: Config,
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    condition: Condition,
    overrides: Sequence[str] = (),
    *,
    progress: bool = True,
) -> Run:
    """Evaluate these methods on one data set, or read the finished run where the configuration says `from_records`."""
    templates = build_templates(config)
    info = describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=config.repeat)
    name = "-".join(part for part in (dataset.name, str(condition), llm.model) if part)
    folder = PROJECT / config.runs / f"{slug(name)}-{fingerprint(info)[:10]}"
    if config.from_records:
        if not (folder / "run.json").exists():
            raise RecordError(f"{folder}: there are no records of this run; leave out from_records=true to make it")
        run = load_run(folder)
        check_same_run(folder, run.info, info)
        return run
    return await evaluate(
        methods,
        dataset,
        retriever,
        llm,
        folder=folder,
        condition=condition,
        templates=templates,
        repeat=config.repeat,
        retry_errors=config.retry_errors,
        study=config.study.name,
        overrides=overrides,
        progress=progress,
    )


def with_noise(
    dataset: Dataset, retriever: Retriever, noise_percent: int, source: NoiseFrom = "annotated"
) -> tuple[Dataset, ControlledNoise]:
    """A data set's questions for which noise can be controlled, with its retriever made to return so much of it.

    Raises ConfigError where no question has gold passages in the corpus or, of source "retrieved", among those found.
    """
    annotated = source == "annotated"
    questions = tuple(controllable(dataset) if annotated else retrievable(dataset, retriever))
    if not questions:
        where, other = (
            ("in the corpus", "study.noise_from=retrieved, or another data set")
            if annotated
            else ("or answer among the retrieved passages", "another data set, or set its corpus")
        )
        raise ConfigError(f"dataset {dataset.name}: no question has gold passages {where}; choose {other}")
    noisy = replace(dataset, questions=questions)
    return noisy, (ControlledNoise if annotated else RetrievedNoise)(retriever, noisy, noise_percent)


def label(config: Config) -> str:
    """A short name for the files of a study: its data sets, its model, and its retriever where it is not BM25."""
    retriever = str(config.retriever["_target_"]).rpartition(".")[2]
    parts = ["+".join(config.dataset), config.llm["model"], *([] if retriever == "bm25" else [retriever])]
    return slug("-".join(parts))
