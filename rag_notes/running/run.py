"""Run the chosen methods on the chosen data sets, each run in the folder of its settings."""

import pkgutil
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from rag_notes.running.describe import Method, describe
from rag_notes.running.evaluate import evaluate
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
    controlled. A run that stops at the spending limit is the last one. Raises as `with_noise` and `run_on`.
    """
    runs = []
    async with build_llm(config) as llm:
        for dataset in build_datasets(config):
            parts = dataset, build_retriever(config, dataset.corpus)
            if noise_percent is not None:
                parts = with_noise(*parts, noise_percent, config.study.noise_from)
            chosen = build_methods(config) if methods is None else methods
            for repeat in dict.fromkeys(config.repeat):
                run = run_on(config, chosen, *parts, llm, Condition(noise_percent), repeat=repeat, progress=progress)
                runs.append(await run)
                if not runs[-1].info.finished:
                    return runs
    return runs


async def run_on(
    config: Config,
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    condition: Condition | None = None,
    *,
    repeat: int | None = None,
    progress: bool = True,
) -> Run:
    """Evaluate methods on one data set, in a folder named by data set, model and a hash of the settings.

    Raises ConfigError where no `repeat` is given and the configuration has several, otherwise as
    `rag_notes.running.evaluate.evaluate`.
    """
    repeat, condition = one_repeat(config) if repeat is None else repeat, condition or Condition()
    templates = build_templates(config)
    info = describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=repeat)
    folder = here() / config.runs / f"{slug(f'{Run(info).label}-{llm.model}')}-{info.fingerprint}"
    options: dict[str, Any] = {"folder": folder, "info": info, "templates": templates, "study": config.study.name}
    return await evaluate(methods, dataset, retriever, llm, **options, progress=progress)


def one_repeat(config: Config) -> int:
    """Return the repeat, where only one is meant. Raises ConfigError where the configuration has several."""
    if len(config.repeat) != 1:
        raise ConfigError(f"repeat={config.repeat}: one repeat at a time is made here; name one, such as repeat=0")
    return config.repeat[0]


def with_noise(
    dataset: Dataset, retriever: Retriever, noise_percent: int, source: NoiseFrom = "annotated"
) -> tuple[Dataset, Retriever]:
    """Return the questions of a data set for which noise can be controlled, and a retriever that returns so much of it.

    Raises ConfigError where no question has gold passages in the corpus or, of source "retrieved", among those found.
    """
    annotated = source == "annotated"
    lists = {} if annotated else retrieved(dataset, retriever)
    noisy = replace(dataset, questions=tuple(controllable(dataset) if annotated else lists))
    if not noisy.questions:
        problem = "in the corpus; choose study.noise_from=retrieved, or another data set"
        if not annotated:
            problem = "or answer among the retrieved passages; choose another data set, or set its corpus"
        raise ConfigError(f"dataset {dataset.name}: no question has gold passages {problem}")
    if annotated:
        return noisy, ControlledNoise(retriever, noisy, noise_percent)
    return noisy, RetrievedNoise(retriever, lists, noise_percent)


def label(config: Config) -> str:
    """Return a short name for the files of a study: data sets, model, and the retriever where it is not BM25."""
    target = pkgutil.resolve_name(":".join(config.retriever["_target_"].rsplit(".", 1)))
    retriever = name if isinstance(name := getattr(target, "name", None), str) else target.__name__
    parts = ["+".join(config.dataset), config.llm["model"], *([] if retriever == "bm25" else [retriever])]
    return slug("-".join(parts))
