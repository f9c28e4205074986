"""Makes training examples question by question from stored responses."""

import asyncio
import copy
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from rag_notes.llm.client import LLM, FatalLLMError, LLMError, RecordingMissError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.prompts.templates import Templates, Value
from rag_notes.retrieval.base import Retriever
from rag_notes.terminal import progress_bar
from rag_notes.types import NonNegative, Passage, Positive, Question

AT_ONCE = 64  # questions under way from the first that is not done, so that no slot of the client stays empty
FAILED = "a call failed"
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
            work.drop("all", FAILED)
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
