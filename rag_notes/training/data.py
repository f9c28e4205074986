"""Makes the training data of a recipe from a data set, or plans what that will take."""

import shlex
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial

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
from rag_notes.methods.about import about_of, settings_of
from rag_notes.options import did_you_mean
from rag_notes.running.evaluate import describe
from rag_notes.training.cards import card_table, write_examples
from rag_notes.training.examples import Data, make_examples, training_questions


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
    if unknown := [stage for stage in data.sizes or {} if stage not in stages]:
        raise ConfigError(f"training_data.sizes.{unknown[0]}: no such stage{did_you_mean(unknown[0], stages)}")
    return config, data


async def make_training_data(
    name: str, options: Sequence[str], tests: Sequence[str], *, plan: bool = False, progress: bool = True
) -> str:
    """Make the examples and write them with their data card; return a summary of them.

    Each of `tests` are the options of data sets that the model will be tested on, such as "dataset=hotpotqa limit=300".
    With `plan` nothing is asked and written: the summary says what it takes, and how much of it is stored. Raises as
    `load_data`, `training_questions`, `make_examples` and `write_examples`.
    """
    config, data = load_data(name, options)
    about, settings, path = about_of(data.maker), settings_of(data.maker), here() / data.out
    (dataset,) = build_datasets(config)
    others = {test: build_datasets(load_config(shlex.split(test))) for test in tests}
    excluded = {test: [question for part in parts for question in part.questions] for test, parts in others.items()}
    dataset = replace(dataset, questions=tuple(training_questions(data, dataset.questions, excluded)))
    parts = build_retriever(config, dataset.corpus), build_llm(config, offline=plan), build_templates(config)
    async with parts[1] as llm:
        batch = await make_examples(data, dataset.questions, *parts, stored_only=plan, progress=progress and not plan)
    total = len(dataset.questions)
    if plan:
        calls, complete = about.calls(settings) * total if about.calls else "?", batch.questions - batch.incomplete
        return (
            f"{total} questions, at most {calls} calls (fewer where sizes are reached earlier)\nstored: "
            f"{llm.usage.stored} calls; {complete} questions are complete and give {len(batch.examples)} examples"
        )
    info = describe({}, dataset, *parts)
    card = {
        "name": name,
        "source": about.source,
        "settings": settings | {"questions": data.questions, "sizes": data.sizes, "seed": data.seed},
        "dataset": {"name": dataset.name, "questions_sha256": info.dataset.sha256, "asked": total},
        "retriever": info.retriever,
        "llm": info.llm,
        "prompt_set": info.prompt_set,
        "prompts": parts[2].hashes(about.prompts),
        "tests": list(tests),
    }
    card = write_examples(path, batch, card)
    head = f"{path}: {len(batch.examples)} examples of {batch.questions} questions, sha256 {card['sha256']}"
    return f"{head}\n\n{card_table(card).to_string(index=False)}\n\n{card['kinds'] or ''}".rstrip()
