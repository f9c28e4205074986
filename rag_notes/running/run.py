"""Run the chosen methods on the chosen data sets, each run in the folder of its settings."""

from collections.abc import Mapping
from typing import Any

from rag_notes.config import Config, build_datasets, build_llm, build_methods, build_retriever, build_templates
from rag_notes.files import here, slug
from rag_notes.llm.client import LLM
from rag_notes.parts import ConfigError, target_of
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import with_noise
from rag_notes.running.evaluate import Method, evaluate
from rag_notes.running.records import Condition, Run
from rag_notes.types import Dataset


async def run_methods(
    config: Config,
    *,
    methods: Mapping[str, Method] | None = None,
    noise_percent: int | None = None,
    progress: bool = True,
    offline: bool = False,
) -> list[Run]:
    """Evaluate methods, those of the configuration unless others are given, on each chosen data set, in every repeat.

    With `noise_percent` so many per cent of the passages are noise, and only questions are asked for which that can be
    controlled; with `offline` only what is stored is answered. A run that stops at the spending limit is the last one.
    Raises as `with_noise` and `run_on`.
    """
    runs: list[Run] = []
    methods, condition = build_methods(config) if methods is None else methods, Condition(noise_percent)
    async with build_llm(config, offline=offline) as llm:
        for dataset in build_datasets(config):
            setup = dataset, build_retriever(config, dataset.corpus)
            if noise_percent is not None:
                setup = with_noise(*setup, noise_percent, config.study.noise_from)
            for repeat in dict.fromkeys(config.repeat):
                part = config.model_copy(update={"repeat": [repeat]})
                runs.append(await run_on(part, methods, *setup, llm, condition, progress=progress))
                if not runs[-1].info.finished:
                    return runs
    return runs


async def run_on(
    config: Config,
    methods: Mapping[str, Method],
    dataset: Dataset,
    retriever: Retriever,
    llm: LLM,
    condition: Condition = Condition(),
    *,
    progress: bool = True,
) -> Run:
    """Evaluate methods on one data set, in a folder below `config.runs`.

    Raises ConfigError where the configuration has several repeats, otherwise as `rag_notes.running.evaluate.evaluate`.
    """
    settings: dict[str, Any] = {"templates": build_templates(config), "repeat": one_repeat(config)}
    settings |= {"condition": condition, "study": config.study.name, "runs": here() / config.runs}
    return await evaluate(methods, dataset, retriever, llm, **settings, progress=progress)


def one_repeat(config: Config) -> int:
    """Return the repeat, where only one is meant. Raises ConfigError where the configuration has several."""
    if len(config.repeat) != 1:
        raise ConfigError(f"repeat={config.repeat}: one repeat at a time is made here; name one, such as repeat=0")
    return config.repeat[0]


def label(config: Config) -> str:
    """Return a short name for the files of a study: data sets, model, and the retriever where it is not BM25."""
    target = target_of(config.retriever, "retriever")
    retriever = name if isinstance(name := getattr(target, "name", None), str) else target.__name__
    parts = ["+".join(config.dataset), config.llm["model"], *([] if retriever == "bm25" else [retriever])]
    return slug("-".join(parts))
