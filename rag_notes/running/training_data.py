"""Makes the training data of a recipe from a data set, resumably, or says what that will take."""

import shlex
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from rag_notes.config import (
    Config,
    ConfigError,
    build_datasets,
    build_llm,
    build_retriever,
    build_templates,
    load_config,
    load_settings,
)
from rag_notes.files import here
from rag_notes.llm.client import LLM
from rag_notes.methods.about import about_of, settings_of
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.base import Retriever
from rag_notes.running.describe import describe
from rag_notes.running.identity import code_hash, unwrapped
from rag_notes.running.records import Condition
from rag_notes.targets import load_target
from rag_notes.training.examples import Data, Made, chosen_questions, make, write_examples
from rag_notes.types import Dataset


class Planned(NamedTuple):
    """What making training data takes at most, and how far the stored responses reach."""

    questions: int
    at_most: int
    stored: int
    made: Made


def load_data(name: str, options: Sequence[str]) -> tuple[Config, Data]:
    """The configuration that options give, and the training data to be made, whose own begin with `training_data.`.

    Raises ConfigError where an option does not fit, a size is of no stage, and where several data sets are chosen.
    """
    ours = [option for option in options if option.lstrip("+~").startswith("training_data.")]
    settings = load_settings("training_data", [f"+training_data={name}", *ours], passed=1, then=Data)
    config = load_config([option for option in options if option not in ours])
    if len(config.dataset) != 1:
        raise ConfigError(f"training data is made from one data set, not from {list(config.dataset)}: dataset=NAME")
    extent = {field.name: settings.pop(field.name) for field in fields(Data) if field.name in settings}
    data = Data(partial(load_target(settings.pop("_target_")), **settings), **extent)
    known = about_of(data.maker).prompts or ()
    for stage in data.sizes or {}:
        if stage not in known:
            near = ", ".join(get_close_matches(stage, known, n=3, cutoff=0.4) or known)
            raise ConfigError(f"training_data.sizes.{stage}: no such stage; did you mean {near}?")
    return config, data


async def make_training_data(
    name: str, options: Sequence[str], tests: Sequence[str], *, progress: bool = True
) -> tuple[Path, dict[str, Any]]:
    """Make the examples and write them with their card; returns the file and the card.

    Each of `tests` are the options of data sets that the model will be tested on, such as "dataset=hotpotqa limit=300".
    Raises as `load_data`, `chosen_questions`, `make` and `write_examples`.
    """
    config, data = load_data(name, options)
    dataset, asked = _asked(config, data, tests)
    retriever, templates = build_retriever(config, dataset.corpus), build_templates(config)
    async with build_llm(config) as llm:
        made = await make(data, asked.questions, retriever, llm, templates, progress=progress)
        about = _about(name, data, asked, retriever, llm, templates) | {"tests": list(tests)}
    path = here() / data.out
    return path, write_examples(path, made, about)


async def plan_training_data(name: str, options: Sequence[str], tests: Sequence[str]) -> Planned:
    """Say what `make_training_data` takes, asking nothing; raises as it does."""
    config, data = load_data(name, options)
    dataset, asked = _asked(config, data, tests)
    async with build_llm(config, offline=True) as llm:
        made = await make(
            data,
            asked.questions,
            build_retriever(config, dataset.corpus),
            llm,
            build_templates(config),
            stored_only=True,
            progress=False,
        )
    calls = about_of(data.maker).calls
    assert calls is not None  # every maker here says
    return Planned(len(asked.questions), calls(settings_of(data.maker)) * len(asked.questions), llm.usage.stored, made)


def _asked(config: Config, data: Data, tests: Sequence[str]) -> tuple[Dataset, Dataset]:
    """The chosen data set, and it with the questions alone that are to be trained on."""
    (dataset,) = build_datasets(config)
    tested = {
        test: [question for one in build_datasets(load_config(shlex.split(test))) for question in one.questions]
        for test in tests
    }
    questions = tuple(chosen_questions(data, dataset.questions, tested))
    return dataset, Dataset(dataset.name, questions, dataset.corpus, dataset.selection, dataset.corpus_kind)


def _about(
    name: str, data: Data, asked: Dataset, retriever: Retriever, llm: LLM, templates: Templates
) -> dict[str, Any]:
    """What the data card says of the making: all that determines the examples."""
    maker = data.maker
    info = describe({}, asked, retriever, llm, templates, condition=Condition())
    return {
        "name": name,
        "source": about_of(maker).source,
        "settings": settings_of(maker) | {"questions": data.questions, "sizes": data.sizes, "seed": data.seed},
        "code": code_hash(unwrapped(maker)),
        "dataset": {"name": asked.name, "questions_sha256": info.dataset.sha256, "asked": len(asked.questions)},
        "retriever": info.retriever,
        "llm": info.llm,
        "prompt_set": info.prompt_set,
        "prompts": templates.hashes(about_of(maker).prompts),
    }
