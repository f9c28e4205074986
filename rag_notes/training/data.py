"""Makes the training data of a recipe from a data set, question by question from stored responses, or plans it."""

import asyncio
import copy
import json
import random
import shlex
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hydra.utils import get_method

from rag_notes.config import (
    Config,
    build_datasets,
    build_llm,
    build_retriever,
    build_templates,
    load_config,
    load_settings,
)
from rag_notes.files import checksum_of, here, write_atomically
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, RecordingMissError
from rag_notes.methods.about import about_of, settings_of
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.options import did_you_mean
from rag_notes.parts import ConfigError
from rag_notes.prompts.templates import Templates, Value
from rag_notes.retrieval.base import Retriever
from rag_notes.running.evaluate import describe
from rag_notes.terminal import progress_bar
from rag_notes.training.cards import write_json
from rag_notes.types import InputError, NonNegative, Passage, Positive, Question

AT_ONCE = 64  # questions under way from the first that is not done, so that no slot of the client stays empty
Fields = Mapping[str, Value]  # what fills a prompt


class Work(Rag):
    """One question for a maker of examples, which asks and searches as a method does and adds and drops examples.

    `random` is seeded by `seed` and the question's id. The data card has a histogram of `values`. In a `plan` no model
    may compute anything.
    """

    def __init__(
        self, question: Question, llm: LLM, searcher: Searcher, templates: Templates, seed: int, *, plan: bool
    ) -> None:
        super().__init__(question, method="training-data", llm=llm, searcher=searcher, templates=templates)
        self.random, self.store, self.plan = random.Random(f"{seed} {question.id}"), llm.store, plan
        self.examples: list[tuple[str, dict[str, Any]]] = []
        self.dropped: list[tuple[str, str]] = []
        self.values: list[float] = []

    def messages(self, stage: str, fields: Fields, **sampling: str) -> list[dict[str, str]]:
        """Return the messages of a stage's prompt as the client sends them, with another `system` where it is given."""
        prompt = self._templates.fill(stage, self.question.language, fields)
        messages: list[dict[str, str]] = _with_sampling(self._llm.of(stage), sampling).request(prompt)["messages"]
        return messages

    async def sample(self, stage: str, fields: Fields, samplings: Sequence[Mapping[str, float]]) -> list[str]:
        """Return the distinct responses to a prompt, one sampling each; empty ones and those cut short are left out."""
        prompt = self._templates.fill(stage, self.question.language, fields)
        llms = [_with_sampling(self._llm.of(stage), sampling) for sampling in samplings]
        responses = await asyncio.gather(*(llm.ask(prompt) for llm in llms))
        return list(dict.fromkeys(one.text for one in responses if one.text and one.finish_reason != "length"))

    def is_gold(self, passage: Passage) -> bool:
        """Return whether the data set lists a passage as gold, by its id or, where it has no ids, by its title."""
        ids, titles = self.question.gold_ids, self.question.gold_titles
        return passage.id in ids if ids else passage.title in titles

    def learn(self, stage: str, fields: Fields, *, system: str = "", kind: str = "", **responses: str) -> None:
        """Add an example in TRL's conversational format: `completion`, or `chosen` and `rejected`.

        `system` replaces the system message. The data card counts the examples of each `kind`.
        """
        prompt = self.messages(stage, fields, **({"system": system} if system else {}))
        texts = {name: [{"role": "assistant", "content": text}] for name, text in responses.items()}
        self.examples.append((kind, {"stage": stage, "question_id": self.question.id, "prompt": prompt, **texts}))

    def drop(self, stage: str, reason: str) -> None:
        """Count a sample of a stage that gives no example."""
        self.dropped.append((stage, reason))


def _with_sampling(llm: LLM, sampling: Mapping[str, Any]) -> LLM:
    """Return an LLM that samples by other settings and shares everything else."""
    other = copy.copy(llm)
    other.sampling = {**llm.sampling, **sampling}
    return other


@dataclass(frozen=True)
class Data:
    """The training data to make: `maker` makes the examples of one question, the rest says how many are made.

    `questions` are drawn at random by `seed` (None: all). `sizes` limits the examples of a stage: the making ends once
    all stages in it are complete. `out` is the file to write.
    """

    maker: Callable[[Work], Awaitable[None]]
    _: KW_ONLY
    out: str
    questions: Positive | None = None
    sizes: dict[str, Positive] | None = None
    seed: NonNegative = 0


@dataclass
class Batch:
    """The examples of several questions with their kinds, the samples dropped by stage and reason, and the values."""

    questions: int = 0
    examples: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    values: list[float] = field(default_factory=list)


async def make_examples(
    data: Data,
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    *,
    plan: bool = False,
) -> Batch:
    """Make the examples of these questions until `data.sizes` are reached; `llm` must be entered.

    A failed call drops its question, in a `plan` also a response that is not stored. Otherwise that raises
    RecordingMissError where the network is forbidden. Raises FatalLLMError where no call can succeed.
    """
    batch, searcher, window = Batch(), Searcher(retriever), asyncio.Semaphore(AT_ONCE)
    missing = dict(data.sizes or {})

    async def attempt(question: Question) -> Work:
        await window.acquire()
        work = Work(question, llm, searcher, templates, data.seed, plan=plan)
        try:
            await data.maker(work)
        except LLMError as error:
            if isinstance(error, FatalLLMError) or (isinstance(error, RecordingMissError) and not plan):
                raise
            work.examples, work.values = [], []
            work.drop("all", "a call failed")
        return work

    with progress_bar("training data", len(questions), unit="question") as bar:
        tasks = [asyncio.create_task(attempt(question)) for question in questions]
        try:
            for task in tasks:  # in the order of the questions, however fast each is answered
                if missing and not any(missing.values()):
                    break
                work = await task
                batch.questions += 1
                batch.values += work.values
                for stage, reason in work.dropped:
                    batch.dropped[stage][reason] += 1
                for kind, example in work.examples:
                    stage = example["stage"]
                    if missing.get(stage, 1):
                        batch.examples.append((kind, example))
                        missing |= {stage: missing[stage] - 1} if stage in missing else {}
                window.release()
                bar.update(1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return batch


def write_examples(path: Path, batch: Batch, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the examples to `path`, one a line, and their data card beside it; returns the card.

    The card has `about`, the sizes by stage, what was dropped by stage and reason, the examples of each kind, a
    histogram (lower and upper bound, number) and the SHA-256 of the file. Raises InputError without any example.
    """
    dropped = {stage: dict(sorted(reasons.items())) for stage, reasons in sorted(batch.dropped.items())}
    if not batch.examples:
        raise InputError(f"{path}: no examples came of {batch.questions} questions; dropped: {dropped}")
    write_atomically(path, "".join(json.dumps(example, ensure_ascii=False) + "\n" for _, example in batch.examples))
    counts, edges = np.histogram(batch.values, bins=20) if batch.values else (np.empty(0), np.empty(1))
    card = dict(about) | {
        "questions": batch.questions,
        "sizes": dict(sorted(Counter(example["stage"] for _, example in batch.examples).items())),
        "dropped": dropped,
        "kinds": dict(sorted(Counter(kind for kind, _ in batch.examples if kind).items())),
        "histogram": np.column_stack([edges[:-1], edges[1:], counts]).round(4).tolist(),
        "sha256": checksum_of(path),
    }
    write_json(Path(f"{path}.card.json"), card)
    return card


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


async def make_training_data(name: str, options: Sequence[str], tests: Sequence[str], *, plan: bool = False) -> str:
    """Make the examples and write them with their data card; return a summary of them.

    Each of `tests` are the options of data sets that the model will be tested on, such as "dataset=hotpotqa limit=300".
    With `plan` nothing is asked and written: the summary says what it takes, and how much of it is stored. Raises
    InputError where a question is also a test question, and as `load_data`, `make_examples` and `write_examples`.
    """
    config, data = load_data(name, options)
    about, settings, path = about_of(data.maker), settings_of(data.maker), here() / data.out
    (dataset,) = build_datasets(config)
    drawn = random.Random(data.seed).sample(dataset.questions, len(dataset.questions))[: data.questions]
    others = [(test, part) for test in tests for part in build_datasets(load_config(shlex.split(test)))]
    test_ids = {_text(question): f"{test}: {question.id}" for test, part in others for question in part.questions}
    if shared := [f"{question.id} ({test_ids[_text(question)]})" for question in drawn if _text(question) in test_ids]:
        raise InputError(
            f"{len(shared)} questions of the training data are test questions: {', '.join(shared[:10])}; take other "
            "ones, for example with offset and limit"
        )
    dataset = replace(dataset, questions=tuple(drawn))
    parts = build_retriever(config, dataset.corpus), build_llm(config, offline=plan), build_templates(config)
    async with parts[1] as llm:
        batch = await make_examples(data, drawn, *parts, plan=plan)
    if plan:
        calls = about.calls(settings) * len(drawn) if about.calls else "?"
        complete = batch.questions - batch.dropped["all"]["a call failed"]
        return (
            f"{len(drawn)} questions, at most {calls} calls (fewer where sizes are reached earlier)\nstored: "
            f"{llm.usage.stored} calls; {complete} questions are complete and give {len(batch.examples)} examples"
        )
    info = asdict(describe({}, dataset, *parts))
    extent = {"questions": data.questions, "sizes": data.sizes, "seed": data.seed}
    card = {"name": name, "source": about.source, "settings": settings | extent}
    card |= {part: info[part] for part in ("dataset", "retriever", "llm", "prompt_set")}
    card = write_examples(path, batch, card | {"prompts": parts[2].hashes(about.prompts), "tests": list(tests)})
    sizes, dropped = card["sizes"], card["dropped"]
    return f"{path}: {len(batch.examples)} examples of {batch.questions} questions: {sizes}; dropped: {dropped}"


def _text(question: Question) -> str:
    return " ".join(question.question.casefold().split())
