"""Run the chosen methods on the chosen data sets, each run in the folder of its settings."""

from collections.abc import Mapping
from dataclasses import replace

from rag_notes.config import (
    Config,
    ConfigError,
    build_datasets,
    build_llm,
    build_methods,
    build_retriever,
    build_templates,
)
from rag_notes.files import here, slug
from rag_notes.llm.client import LLM
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import ControlledNoise, NoiseFrom, RetrievedNoise, controllable, retrieved
from rag_notes.running.evaluate import Method, describe, evaluate
from rag_notes.running.records import Condition, Run
from rag_notes.types import Dataset


async def run_methods(
    config: Config,
    *,
    methods: Mapping[str, Method] | None = None,
    noise_percent: int | None = None,
    progress: bool = True,
) -> list[Run]:
    """Evaluate methods, those of the configuration unless others are given, on each chosen data set, in every repeat.

    With `noise_percent` so many per cent of the passages are noise, and only questions are asked for which that can be
    controlled. A run that stops at the spending limit is the last one. Raises ConfigError where no question can be
    controlled, and as `rag_notes.running.evaluate.evaluate`.
    """
    runs = []
    condition = Condition(noise_percent)
    async with build_llm(config) as llm:
        for dataset in build_datasets(config):
            retriever = build_retriever(config, dataset.corpus)
            if noise_percent is not None:
                dataset, retriever = with_noise(  # noqa: PLW2901 - the same with noise
                    dataset, retriever, noise_percent, config.study.noise_from
                )
            parts = (config, build_methods(config) if methods is None else methods, dataset, retriever, llm, condition)
            for repeat in dict.fromkeys(config.repeat):
                runs.append(await run_on(*parts, repeat=repeat, progress=progress))
                if not runs[-1].info.finished:
                    return runs
    return runs


async def run_on(
    config: Config,
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    condition: Condition,
    *,
    repeat: int | None = None,
    progress: bool = True,
) -> Run:
    """Evaluate these methods on one data set, in a folder named by data set, model and a hash of the settings.

    Raises ConfigError where no `repeat` is given and the configuration has several, otherwise as
    `rag_notes.running.evaluate.evaluate`.
    """
    repeat = one_repeat(config) if repeat is None else repeat
    templates = build_templates(config)
    info = describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=repeat)
    return await evaluate(
        methods,
        dataset,
        retriever,
        llm,
        folder=here() / config.runs / f"{slug(f'{Run(info).label}-{llm.model}')}-{info.fingerprint}",
        info=info,
        templates=templates,
        study=config.study.name,
        progress=progress,
    )


def one_repeat(config: Config) -> int:
    """The repeat, where only one is meant. Raises ConfigError where the configuration has several."""
    if len(config.repeat) != 1:
        raise ConfigError(f"repeat={config.repeat}: one repeat at a time is made here; name one, such as repeat=0")
    return config.repeat[0]


def with_noise(
    dataset: Dataset, retriever: Retriever, noise_percent: int, source: NoiseFrom = "annotated"
) -> tuple[Dataset, ControlledNoise]:
    """A data set's questions for which noise can be controlled, with its retriever made to return so much of it.

    Raises ConfigError where no question has gold passages in the corpus or, of source "retrieved", among those found.
    """
    annotated = source == "annotated"
    lists = {} if annotated else retrieved(dataset, retriever)
    questions = tuple(controllable(dataset) if annotated else lists)
    if not questions:
        where, other = (
            ("in the corpus", "study.noise_from=retrieved, or another data set")
            if annotated
            else ("or answer among the retrieved passages", "another data set, or set its corpus")
        )
        raise ConfigError(f"dataset {dataset.name}: no question has gold passages {where}; choose {other}")
    noisy = replace(dataset, questions=questions)
    if annotated:
        return noisy, ControlledNoise(retriever, noisy, noise_percent)
    return noisy, RetrievedNoise(retriever, lists, noise_percent)


def label(config: Config) -> str:
    """A short name for the files of a study: its data sets, its model, and its retriever where it is not BM25."""
    retriever = str(config.retriever["_target_"]).rpartition(".")[2]
    parts = ["+".join(config.dataset), config.llm["model"], *([] if retriever == "bm25" else [retriever])]
    return slug("-".join(parts))
