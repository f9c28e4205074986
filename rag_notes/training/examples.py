"""Makes training examples question by question from stored responses."""

import asyncio
import copy
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from rag_notes.events import answered
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, RecordingMissError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.prompts.templates import Templates, Value
from rag_notes.retrieval.base import Retriever
from rag_notes.terminal import progress_bar
from rag_notes.types import InputError, NonNegative, Passage, Positive, Question

AT_ONCE = 64  # questions under way from the first that is not done, so that no slot of the client stays empty


@dataclass
class Work:
    """One question for a maker of examples: it asks and searches with `rag`, and adds and drops examples here.

    `random` is seeded by `seed` and the question's id. The data card has a histogram of `values`. With `stored_only` no
    model may compute anything.
    """

    question: Question
    llm: LLM
    searcher: Searcher
    templates: Templates
    seed: int = 0
    stored_only: bool = False
    examples: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dropped: list[tuple[str, str]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} {self.question.id}")
        self.rag = self._rag(self.llm)

    def _rag(self, llm: LLM) -> Rag:
        return Rag(self.question, method="training-data", llm=llm, searcher=self.searcher, templates=self.templates)

    def prompt(self, stage: str, **fields: Value) -> str:
        """Return the prompt of a stage as a method asks it."""
        return self.templates.fill(stage, self.question.language, fields)

    async def sample(self, stage: str, prompt: str, samplings: Sequence[Mapping[str, float]]) -> list[str]:
        """Return the distinct responses to a prompt, one sampling each; empty ones and those cut short are left out."""
        rags = [self._rag(_with_sampling(self.llm, **sampling)) for sampling in samplings]
        await asyncio.gather(*(rag.ask_text(stage, prompt) for rag in rags))
        asks = [answered(rag.trace)[0] for rag in rags]
        return list(dict.fromkeys(ask.response for ask in asks if ask.response and ask.finish_reason != "length"))

    def is_gold(self, passage: Passage) -> bool:
        """Return whether the data set lists a passage as gold, by its id or, where it has no ids, by its title."""
        if self.question.gold_ids:
            return passage.id in self.question.gold_ids
        return passage.title in self.question.gold_titles

    def learn(self, stage: str, prompt: str, *, system: str = "", kind: str = "", **responses: str) -> None:
        """Add an example in TRL's conversational format: `completion`, or `chosen` and `rejected`.

        `system` replaces the system message. The data card counts the examples of each `kind`.
        """
        llm = _with_sampling(self.llm.of(stage), system=system) if system else self.llm.of(stage)
        example = {"stage": stage, "question_id": self.question.id, "prompt": llm.request(prompt)["messages"]}
        messages = {name: [{"role": "assistant", "content": text}] for name, text in responses.items()}
        self.examples.append((kind, example | messages))

    def drop(self, stage: str, reason: str) -> None:
        """Count a sample of a stage that gives no example."""
        self.dropped.append((stage, reason))


def _with_sampling(llm: LLM, **settings: Any) -> LLM:
    """Return an LLM, with those of its stages, that samples by other settings and shares everything else."""
    other = copy.copy(llm)
    other.sampling = llm.sampling | settings
    other.stages = {stage: _with_sampling(stage_llm, **settings) for stage, stage_llm in llm.stages.items()}
    return other


Maker = Callable[[Work], Awaitable[None]]
"""Makes the examples of one question."""


@dataclass(frozen=True)
class Data:
    """The training data to make: its maker, and how much of it.

    `questions` are drawn at random by `seed` (None: all). `sizes` limits the examples of a stage: the making ends once
    all stages in it are complete. `out` is the file to write.
    """

    maker: Maker
    _: KW_ONLY
    out: str
    questions: Positive | None = None
    sizes: dict[str, Positive] | None = None
    seed: NonNegative = 0


@dataclass
class Batch:
    """The examples of several questions with their kinds, and the numbers of samples dropped by stage and reason.

    `incomplete` counts the questions of which a response is not stored.
    """

    questions: int = 0
    examples: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    values: list[float] = field(default_factory=list)
    incomplete: int = 0

    def add(self, work: Work, error: LLMError | None, missing: dict[str, int]) -> None:
        """Add what came of a question; `missing` has how many examples of a stage are still to be made."""
        self.questions += 1
        if isinstance(error, RecordingMissError):
            self.incomplete += 1
        elif error is not None:
            work.drop("all", "a call failed")
        else:
            self.values += work.values
            for kind, example in work.examples:
                if missing.get(stage := example["stage"]) != 0:
                    self.examples.append((kind, example))
                    missing[stage] = missing.get(stage, 0) - 1  # never 0 again where it has no limit
        for stage, reason in work.dropped:
            self.dropped[stage][reason] += 1


def training_questions(
    data: Data, questions: Sequence[Question], tests: Mapping[str, Sequence[Question]]
) -> list[Question]:
    """Return the questions to make examples of, in random order by the seed.

    `tests` are the questions that the model will be tested on, by data set. Raises InputError where one is in both.
    """
    test_ids = {_text(question): f"{name}: {question.id}" for name, part in tests.items() for question in part}
    drawn = random.Random(data.seed).sample(list(questions), len(questions))[: data.questions]
    if shared := [f"{question.id} ({test_ids[_text(question)]})" for question in drawn if _text(question) in test_ids]:
        names = ", ".join(shared[:10]) + ", ..." * (len(shared) > 10)
        raise InputError(
            f"{len(shared)} questions of the training data are test questions: {names}; take other ones, "
            "for example with offset and limit"
        )
    return drawn


def _text(question: Question) -> str:
    return " ".join(question.question.casefold().split())


async def make_examples(
    data: Data,
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    *,
    stored_only: bool = False,
    progress: bool = True,
) -> Batch:
    """Make the examples of these questions until `data.sizes` are reached; `llm` must be entered.

    A failed call drops its question. With `stored_only` a response that is not stored makes its question incomplete;
    otherwise RecordingMissError is raised where the network is forbidden, and FatalLLMError where no call can succeed.
    """
    batch, searcher, window = Batch(), Searcher(retriever), asyncio.Semaphore(AT_ONCE)
    missing = dict(data.sizes or {})
    fatal = (FatalLLMError,) if stored_only else (FatalLLMError, RecordingMissError)

    async def attempt(question: Question) -> tuple[Work, LLMError | None]:
        await window.acquire()
        work = Work(question, llm, searcher, templates, data.seed, stored_only)
        try:
            await data.maker(work)
        except LLMError as error:
            if isinstance(error, fatal):
                raise
            return work, error
        return work, None

    with progress_bar("training data", len(questions), unit="question", disable=not progress) as bar:
        tasks = [asyncio.create_task(attempt(question)) for question in questions]
        try:
            for task in tasks:  # in the order of the questions, however fast each is answered
                if data.sizes and not any(missing[stage] for stage in data.sizes):
                    break
                batch.add(*await task, missing)
                window.release()
                bar.update(1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return batch
