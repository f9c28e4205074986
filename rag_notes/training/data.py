"""Makes the training data of a recipe from a data set, or plans what that will take."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_method

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
from rag_notes.running.describe import describe
from rag_notes.running.records import Condition
from rag_notes.training.cards import card_table, write_examples
from rag_notes.training.examples import Batch, Data, make_examples, training_questions
from rag_notes.types import Dataset


@dataclass(frozen=True)
class Plan:
    """What making training data takes: questions, most calls, and the calls and the examples that are stored."""

    questions: int
    calls: int
    stored: int
    batch: Batch

    def __str__(self) -> str:
        complete, examples = self.batch.questions - self.batch.incomplete, len(self.batch.examples)
        return (
            f"{self.questions} questions, at most {self.calls} calls (fewer where sizes are reached earlier)\n"
            f"stored: {self.stored} calls; {complete} questions are complete and give {examples} examples"
        )


@dataclass(frozen=True)
class TrainingData:
    """A file of examples and its data card."""

    path: Path
    card: dict[str, Any]

    def __str__(self) -> str:
        counts = f"{sum(self.card['sizes'].values())} examples of {self.card['questions']} questions"
        kinds = ", ".join(f"{kind}: {count}" for kind, count in self.card["kinds"].items())
        table = card_table(self.card).to_string(index=False)
        return f"{self.path}: {counts}, sha256 {self.card['sha256']}\n\n{table}\n\n{kinds}".rstrip()


def load_data(name: str, options: Sequence[str]) -> tuple[Config, Data]:
    """Compose the configuration and the training data, whose own options begin with `training_data.`.

    Raises ConfigError where an option does not fit, a size is of no stage, and where several data sets are chosen.
    """
    data_options = [option for option in options if option.lstrip("+~").startswith("training_data.")]
    settings = load_settings("training_data", [f"+training_data={name}", *data_options], passed=1, after=Data)
    config = load_config([option for option in options if option not in data_options])
    if len(config.dataset) != 1:
        raise ConfigError(f"training data is made from one data set, not from {list(config.dataset)}: dataset=NAME")
    extent = {field.name: settings.pop(field.name) for field in fields(Data) if field.name in settings}
    data = Data(partial(get_method(settings.pop("_target_")), **settings), **extent)
    stages = about_of(data.maker).prompts or ()
    for stage in data.sizes or {}:
        if stage not in stages:
            near = ", ".join(get_close_matches(stage, stages, n=3, cutoff=0.4) or stages)
            raise ConfigError(f"training_data.sizes.{stage}: no such stage; did you mean {near}?")
    return config, data


async def make_training_data(
    name: str, options: Sequence[str], tests: Sequence[str], *, progress: bool = True
) -> TrainingData:
    """Make the examples and write them with their data card.

    Each of `tests` are the options of data sets that the model will be tested on, such as "dataset=hotpotqa limit=300".
    Raises as `load_data`, `training_questions`, `make_examples` and `write_examples`.
    """
    config, data = load_data(name, options)
    dataset, llm, batch = await _make(config, data, tests, plan=False, progress=progress)
    templates, about = build_templates(config), about_of(data.maker)
    info = describe({}, dataset, build_retriever(config, dataset.corpus), llm, templates, condition=Condition())
    card = {
        "name": name,
        "source": about.source,
        "settings": settings_of(data.maker) | {"questions": data.questions, "sizes": data.sizes, "seed": data.seed},
        "dataset": {"name": dataset.name, "questions_sha256": info.dataset.sha256, "asked": len(dataset.questions)},
        "retriever": info.retriever,
        "llm": info.llm,
        "prompt_set": info.prompt_set,
        "prompts": templates.hashes(about.prompts),
        "tests": list(tests),
    }
    path = here() / data.out
    return TrainingData(path, write_examples(path, batch, card))


async def plan_training_data(name: str, options: Sequence[str], tests: Sequence[str]) -> Plan:
    """Return what `make_training_data` takes, asking nothing; raises as it does."""
    config, data = load_data(name, options)
    dataset, llm, batch = await _make(config, data, tests, plan=True, progress=False)
    calls, questions = about_of(data.maker).calls, len(dataset.questions)
    return Plan(questions, questions * (calls(settings_of(data.maker)) if calls else 0), llm.usage.stored, batch)


async def _make(
    config: Config, data: Data, tests: Sequence[str], *, plan: bool, progress: bool
) -> tuple[Dataset, LLM, Batch]:
    """Make the examples of the data set without the questions of the tests, or only those that are stored."""
    (dataset,) = build_datasets(config)
    others = {test: build_datasets(load_config(shlex.split(test))) for test in tests}
    excluded = {test: [question for part in parts for question in part.questions] for test, parts in others.items()}
    dataset = replace(dataset, questions=tuple(training_questions(data, dataset.questions, excluded)))
    retriever, templates = build_retriever(config, dataset.corpus), build_templates(config)
    async with build_llm(config, offline=plan) as llm:
        return (
            dataset,
            llm,
            await make_examples(
                data, dataset.questions, retriever, llm, templates, stored_only=plan, progress=progress
            ),
        )
