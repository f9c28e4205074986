"""Run the chosen methods on the chosen data sets, each run in the folder that belongs to just it."""

from collections.abc import Mapping, Sequence
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
from rag_notes.llm.store import canonical_json
from rag_notes.retrieval.base import Retriever
from rag_notes.retrieval.noise import ControlledNoise, NoiseFrom, RetrievedNoise, controllable, retrieved
from rag_notes.running.describe import Method, check_same_run, describe, describe_method, fingerprint, identity
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Condition, RecordError, Run, RunInfo
from rag_notes.running.run_files import load_run, read_info, run_folders
from rag_notes.types import Dataset


async def run_methods(
    config: Config,
    overrides: Sequence[str] = (),
    *,
    methods: Mapping[str, Method] | None = None,
    noise_percent: int | None = None,
    progress: bool = True,
) -> list[Run]:
    """Evaluate methods, those of the configuration unless others are given, on each chosen data set, in every repeat.

    A run's folder is named by data set, model and a hash of what determines the result, so that the same command
    continues what was interrupted. `overrides` are the options as the user gave them. With `noise_percent` so many per
    cent of the passages are noise, and only questions are asked for which that can be controlled. A run that stops at
    the spending limit is the last one. With `from_records` runs are read where the data set's file is not there, too:
    by the data set's name, methods, model, prompts and how many questions were asked for. Raises ConfigError where no
    question can be controlled, RecordError where not just one run fits, and as `evaluate`.
    """
    try:
        datasets = build_datasets(config)
    except FileNotFoundError as missing:
        if not config.from_records:
            raise
        chosen, condition = build_methods(config) if methods is None else methods, Condition(noise_percent)
        wanted = [(name, repeat) for name in config.dataset for repeat in dict.fromkeys(config.repeat)]
        return [_without_data(config, name, repeat, chosen, condition, missing) for name, repeat in wanted]
    runs = []
    async with build_llm(config) as llm:
        for dataset in datasets:
            retriever, condition = build_retriever(config, dataset.corpus), Condition(noise_percent)
            if noise_percent is not None:
                source = config.study.noise_from
                dataset, retriever = with_noise(dataset, retriever, noise_percent, source)  # noqa: PLW2901 - noisy
            chosen = build_methods(config) if methods is None else methods
            place = (config, chosen, dataset, retriever, llm, condition, overrides)
            for repeat in dict.fromkeys(config.repeat):
                runs.append(await run_on(*place, repeat=repeat, progress=progress))
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
    overrides: Sequence[str] = (),
    *,
    repeat: int | None = None,
    progress: bool = True,
) -> Run:
    """Evaluate these methods on one data set, or read the finished run where the configuration says `from_records`.

    Raises ConfigError where no `repeat` is given and the configuration has several.
    """
    repeat = one_repeat(config) if repeat is None else repeat
    templates = build_templates(config)
    info = describe(methods, dataset, retriever, llm, templates, condition=condition, repeat=repeat)
    name = "-".join(part for part in (dataset.name, str(condition), llm.model) if part)
    folder = here() / config.runs / f"{slug(name)}-{fingerprint(info)[:10]}"
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
        repeat=repeat,
        retry_errors=config.retry_errors,
        study=config.study.name,
        overrides=overrides,
        progress=progress,
    )


def _without_data(
    config: Config,
    name: str,
    repeat: int,
    methods: Mapping[str, Method],
    condition: Condition,
    missing: FileNotFoundError,
) -> Run:
    """The finished run of a data set whose file is not there."""
    described = {method: describe_method(function) for method, function in methods.items()}
    of_methods = canonical_json({method: [of.function, of.settings] for method, of in described.items()})
    label, prompt_set = config.dataset[name].get("name", name), build_templates(config).name
    wanted = (label, condition, config.llm["model"], prompt_set, repeat)

    def fits(info: RunInfo) -> bool:
        about = (info.dataset.name, info.condition, info.model, info.prompt_set, info.repeat)
        as_many = config.limit in (None, info.dataset.questions)
        return about == wanted and as_many and canonical_json(identity(info)["methods"]) == of_methods

    folder = here() / config.runs
    fitting = [place for place in run_folders(folder) if fits(read_info(place))]
    if len(fitting) != 1:
        names = ", ".join(place.name for place in fitting)
        there = f"several are of this run, choose by limit= ({names})" if fitting else "none is of this run"
        raise RecordError(f"{missing}; and of the records in {folder} {there}: `rag-notes runs {folder}` lists them")
    return load_run(fitting[0])


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
