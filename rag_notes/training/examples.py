"""Training examples: made question by question from stored responses, written with a data card, read again."""

import asyncio
import copy
import json
import random
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from rag_notes.datasets.corpus import read_lines
from rag_notes.events import answered
from rag_notes.files import checksum_of, write_atomically
from rag_notes.llm.client import LLM, FatalLLMError, LLMError, RecordingMissError
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.prompts.templates import Templates, Value
from rag_notes.retrieval.base import Retriever
from rag_notes.terminal import progress_bar
from rag_notes.types import InputError, NonNegative, Passage, Positive, Question

Messages = list[dict[str, str]]
AT_ONCE = 64  # questions begun ahead of the first that is not done, so that no slot of the client stays empty
CARD = ".card.json"


@dataclass(frozen=True, slots=True)
class Example:
    """The messages that the client sends in a stage, and the responses: a completion, or chosen and rejected."""

    stage: str
    question_id: str
    prompt: Messages
    responses: Mapping[str, str]
    kind: str | None = None

    def line(self) -> str:
        """The example as a line of JSON in the conversational formats of TRL."""
        messages = {name: [{"role": "assistant", "content": text}] for name, text in self.responses.items()}
        fields = {"stage": self.stage, "question_id": self.question_id, "prompt": self.prompt} | messages
        return json.dumps(fields, ensure_ascii=False) + "\n"


class Work:
    """What a maker of examples works with on one question, and what it has made of it.

    `random` is seeded by the seed of the data and the question's id. The data card has a histogram of `values`. With
    `stored_only` nothing is to be computed that takes a model: what is not stored raises RecordingMissError.
    """

    def __init__(
        self,
        question: Question,
        llm: LLM,
        searcher: Searcher,
        templates: Templates,
        seed: int,
        *,
        stored_only: bool = False,
    ) -> None:
        self.question = question
        self.stored_only = stored_only
        self.llm = llm
        self.random = random.Random(f"{seed} {question.id}")
        self.examples: list[Example] = []
        self.dropped: list[tuple[str, str]] = []
        self.values: list[float] = []
        self._searcher = searcher
        self._templates = templates
        self.rag = self._rag(llm)

    def _rag(self, llm: LLM) -> Rag:
        return Rag(self.question, method="training-data", llm=llm, searcher=self._searcher, templates=self._templates)

    def prompt(self, stage: str, **fields: Value) -> str:
        """The prompt of a stage as a method asks it."""
        return self._templates.fill(stage, self.question.language, fields)

    async def sample(self, stage: str, prompt: str, samplings: Sequence[Mapping[str, float]]) -> list[str]:
        """The distinct responses to a prompt, one sampling each; what is empty or cut at the limit is left out."""
        rags = [self._rag(_sampled(self.llm, **sampling)) for sampling in samplings]
        texts = await asyncio.gather(*(rag.ask_text(stage, prompt) for rag in rags))
        whole = [answered(rag.trace)[0].finish_reason != "length" for rag in rags]
        return list(dict.fromkeys(text for text, ended in zip(texts, whole, strict=True) if ended and text))

    def is_gold(self, passage: Passage) -> bool:
        """Whether the data set names a passage as gold, by its id or, where it has no ids, by its title."""
        if self.question.gold_ids:
            return passage.id in self.question.gold_ids
        return passage.title in self.question.gold_titles

    def learn(
        self, stage: str, prompt: str, system: str | None = None, *, kind: str | None = None, **responses: str
    ) -> None:
        """Add an example, a `completion` or `chosen` and `rejected`; `system` replaces the system message.

        The data card counts the examples of each `kind`.
        """
        llm = self.llm.of(stage) if system is None else _sampled(self.llm.of(stage), system=system)
        self.examples.append(Example(stage, self.question.id, llm.request(prompt)["messages"], responses, kind))

    def drop(self, stage: str, reason: str) -> None:
        """Count a sample of a stage that gives no example."""
        self.dropped.append((stage, reason))


def _sampled(llm: LLM, **settings: Any) -> LLM:
    """An LLM and those of its stages, asked with other settings of `Sampling`; all the rest is shared."""
    other = copy.copy(llm)
    other.sampling = llm.sampling | settings
    other.stages = {stage: _sampled(one, **settings) for stage, one in llm.stages.items()}
    return other


Maker = Callable[[Work], Awaitable[None]]
"""Makes the examples of one question: adds them to the work it is given, and drops what gives none."""


@dataclass(frozen=True)
class Data:
    """A data set to be made: its maker, and how much of it.

    `questions` are drawn at random by `seed` (None: all). `sizes` says how many examples of a stage are wanted at most;
    the making ends where all stages named have theirs. `out` is the file to write.
    """

    maker: Maker
    _: KW_ONLY
    out: str
    questions: Positive | None = None
    sizes: dict[str, Positive] | None = None
    seed: NonNegative = 0


@dataclass
class Made:
    """What was made: the examples in the order of the questions, how much was dropped, and why."""

    questions: int = 0
    examples: list[Example] = field(default_factory=list)
    dropped: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    values: list[float] = field(default_factory=list)
    incomplete: int = 0

    @property
    def kinds(self) -> Counter[str]:
        """The number of examples by kind, of those that have one."""
        return Counter(example.kind for example in self.examples if example.kind is not None)

    def count(self) -> Counter[str]:
        """The number of examples by stage."""
        return Counter(example.stage for example in self.examples)


def chosen_questions(
    data: Data, questions: Sequence[Question], tests: Mapping[str, Sequence[Question]]
) -> list[Question]:
    """The questions to make examples of, in random order by the seed.

    `tests` are the questions that will be asked to test the model, by the name of their data set. Raises InputError
    naming those that are among the questions of the training data.
    """
    known = {_text(question): f"{name}: {question.id}" for name, of in tests.items() for question in of}
    order = random.Random(data.seed).sample(list(questions), len(questions))[: data.questions]
    if shared := [f"{question.id} ({known[_text(question)]})" for question in order if _text(question) in known]:
        raise InputError(
            f"{len(shared)} questions of the training data are test questions: {', '.join(shared[:10])}"
            f"{', ...' if len(shared) > 10 else ''}; take other ones, for example with offset and limit"
        )
    return order


def _text(question: Question) -> str:
    return " ".join(question.question.casefold().split())


async def make(
    data: Data,
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
    *,
    stored_only: bool = False,
    progress: bool = True,
) -> Made:
    """Make the examples of these questions until `data.sizes` are reached.

    A call that fails drops its question, counted; with `stored_only` a response that is not stored leaves its question
    `incomplete`. `llm` must be entered. Raises RecordingMissError where the network is forbidden otherwise,
    FatalLLMError where no call can succeed, and whatever a search raises; what was answered until then is stored.
    """
    made, searcher, rest = Made(), Searcher(retriever), iter(questions)
    left = dict(data.sizes or {})
    begun: deque[tuple[Work, asyncio.Task[LLMError | None]]] = deque()
    with progress_bar("training data", len(questions), unit="question", disable=not progress) as bar:

        async def attempt(work: Work) -> LLMError | None:
            failure = None
            try:
                await data.maker(work)
            except LLMError as error:
                failure = error
            bar.update(1)
            return failure

        try:
            while not left or any(left.values()):
                for question in islice(rest, AT_ONCE - len(begun)):
                    work = Work(question, llm, searcher, templates, data.seed, stored_only=stored_only)
                    begun.append((work, asyncio.create_task(attempt(work))))
                if not begun:
                    break
                work, task = begun.popleft()  # in the order of the questions, however fast each is answered
                _add(made, work, await task, left, stored_only=stored_only)
        finally:
            for _, task in begun:
                task.cancel()
            await asyncio.gather(*(task for _, task in begun), return_exceptions=True)
    return made


def _add(made: Made, work: Work, failure: LLMError | None, left: dict[str, int], *, stored_only: bool) -> None:
    made.questions += 1
    if isinstance(failure, RecordingMissError) and stored_only:
        made.incomplete += 1
    elif isinstance(failure, RecordingMissError | FatalLLMError):
        raise failure
    elif failure is not None:
        work.drop("all", "a call failed")
    else:
        made.values += work.values
        for example in work.examples:
            if left.get(example.stage) != 0:
                made.examples.append(example)
            if left.get(example.stage):
                left[example.stage] -= 1
    for stage, reason in work.dropped:
        made.dropped[stage][reason] += 1


def write_examples(path: Path, made: Made, about: Mapping[str, Any]) -> dict[str, Any]:
    """Write the examples to `path`, one a line, and their data card beside it; returns the card.

    The card has what `about` says of their making, the sizes by stage, what was dropped by stage and reason, and the
    SHA-256 of the file. Raises InputError where there are no examples, DiskFullError where there is no room.
    """
    if not made.examples:
        why = "; ".join(f"{stage}: {dict(reasons)}" for stage, reasons in sorted(made.dropped.items()))
        raise InputError(f"{path}: no examples came of {made.questions} questions ({why or 'none were asked'})")
    write_atomically(path, "".join(example.line() for example in made.examples))
    card = dict(about) | {
        "questions": made.questions,
        "sizes": dict(sorted(made.count().items())),
        "dropped": {stage: dict(sorted(reasons.items())) for stage, reasons in sorted(made.dropped.items())},
        "kinds": dict(sorted(made.kinds.items())),
        "histogram": _histogram(made.values),
        "sha256": checksum_of(path),
    }
    write_atomically(card_of(path), json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return card


def card_of(path: Path) -> Path:
    """Where the data card of a file of examples lies."""
    return path.with_name(path.name + CARD)


def read_examples(path: Path, responses: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The examples of a file as objects in TRL's format, and the data card.

    `responses` are the fields that hold what is to be learned. Raises InputError, naming file and line, where the file
    or its card is missing, is not what the card says, is empty, or holds an example that lacks a field or whose two
    responses are the same.
    """
    card_path = card_of(path)
    for file in (path, card_path):
        if not file.is_file():
            raise InputError(f"{file}: no such file; `rag-notes training-data` makes the examples and their card")
    try:
        card: dict[str, Any] = json.loads(card_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{card_path}: is no JSON ({error}); make the examples again") from None
    if card.get("sha256") != (found := checksum_of(path)):
        raise InputError(f"{path}: is not the file of its card {card_path.name} (sha256 {found}); make both again")
    examples = []
    for location, line in read_lines(str(path), "training.data"):
        try:
            example = json.loads(line)
        except ValueError as error:
            raise InputError(f"{location}: is no JSON ({error}); make the examples again") from None
        if lacking := [name for name in ("stage", "question_id", "prompt", *responses) if not example.get(name)]:
            raise InputError(f"{location}: has no {', '.join(lacking)}, which this training needs")
        if len({json.dumps(example[name]) for name in responses}) < len(responses):
            raise InputError(f"{location}: {' and '.join(responses)} are the same; leave the pair out")
        examples.append(example)
    if not examples:
        raise InputError(f"{path}: has no examples")
    return examples, card


def _histogram(values: Sequence[float]) -> list[list[float]]:
    """Twenty bins of equal width: lower and upper bound, and how many values lie between them."""
    if not values:
        return []
    counts, edges = np.histogram(values, bins=20)
    bins = zip(edges[:-1], edges[1:], counts, strict=True)
    return [[round(float(low), 4), round(float(high), 4), int(count)] for low, high, count in bins]
