"""The answers of a run: a line of `samples.jsonl` each, or a row of a frame."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pandas as pd
from pydantic import TypeAdapter

from rag_notes.events import Counts, Event
from rag_notes.llm.errors import encodable
from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.types import InputError, Question

AGAIN = "run the same command again (stored responses are taken)"
_CHUNK = 4096  # samples that are in memory at once while a frame is built
_DECIDING = ("reject", "yes_no_acc", "str_hit", "acc")  # the metrics by which an answer is right, the first that it has
T = TypeVar("T")


class RecordError(InputError):
    """A run folder that cannot be read, or that holds another run."""


@dataclass(frozen=True, slots=True)
class SampleError:
    """Why a question has no answer: the error's class, its message and, unless a call failed, where it was raised."""

    kind: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        line = self.traceback.rpartition("\n")[2]
        return f"{self.kind}: {self.message} ({line})" if line else self.message


@dataclass(frozen=True, slots=True)
class Sample:
    """The answer of one method to one question, with its scores and trace.

    `metrics` are those of the question's task and of retrieval, and `cost` in US dollars where the model has a price;
    `seconds` is the time that its calls took when they were made.
    """

    method: str
    question: Question
    answer: str
    error: SampleError | None
    metrics: dict[str, float]
    counts: Counts
    trace: list[Event]
    seconds: float | None = None

    @property
    def gold(self) -> list[str]:
        """The gold answers; of a question with several readings, one of each."""
        return gold_answers(self.question)


def gold_answers(question: Question) -> list[str]:
    """Return the gold answers of a question; of one with several readings, one of each."""
    return list(question.answers) or [pair.answers[0] for pair in question.qa_pairs]


class _Step(msgspec.Struct):
    event: str


class _Row(msgspec.Struct):
    """A sample as a frame needs it: without the content of its trace."""

    method: str
    question: Question
    answer: str
    error: SampleError | None
    metrics: dict[str, float]
    counts: Counts
    trace: list[_Step]
    seconds: float | None = None


def encode(value: Any) -> bytes:
    """Write a value as a line of JSON; half a surrogate pair in a text, such as a server's error, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return f"{encodable(text)}\n".encode()


_SAMPLE, _ROW = TypeAdapter(Sample), msgspec.json.Decoder(_Row)


@dataclass(frozen=True)
class SampleFile:
    """The samples in a file, of all methods or of these, read anew each time they are iterated.

    Raises RecordError naming line and field where one is malformed.
    """

    path: Path
    methods: tuple[str, ...] | None = None
    question_id: str | None = None

    def __iter__(self) -> Iterator[Sample]:
        return self._read(_SAMPLE.validate_json)

    def rows(self) -> Iterator[_Row]:
        """Read the samples without the content of their traces."""
        return self._read(_ROW.decode)

    def _read(self, parse: Callable[[bytes], T]) -> Iterator[T]:
        question = {} if self.question_id is None else {"question": {"id": self.question_id}}
        keys = [msgspec.json.encode({"method": method, **question}) for method in self.methods or ()]
        starts = tuple(key.rstrip(b"}") + b"," for key in keys)  # method and question id come first in a line
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if self.methods is None or line.startswith(starts):
                    try:
                        yield parse(line)
                    except (msgspec.DecodeError, ValueError) as error:
                        problem = f"{self.path}, line {number}: not a sample: {error}"
                        raise RecordError(f"{problem}; {AGAIN}") from None


def frame_of(samples: Iterable[_Row | Sample], **settings: Any) -> pd.DataFrame:
    """Build the frame of answers, as `rag_notes.running.records.Run.frame`; the settings are its first columns."""
    questions: dict[str, Question] = {}
    remaining, frames = iter(samples), []
    while rows := [_row(sample, questions) for sample in islice(remaining, _CHUNK)]:
        frames.append(pd.DataFrame(rows))
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*_COLUMNS, *_COUNTS])
    clusters = gold_clusters(questions.values())
    frame.insert(2, "cluster", frame["question_id"].map(clusters))
    for position, (name, value) in enumerate(settings.items()):
        frame.insert(position, name, value)
    return frame


_COLUMNS = (
    *("method", "question_id", "type", "hops", "task", "question", "gold"),
    *("answer", "error", "error_kind", "correctness"),
)
_COUNTS = (*Counts.__dataclass_fields__, "tokens", "seconds")


def _row(sample: _Row | Sample, questions: dict[str, Question]) -> dict[str, Any]:
    question, error, counts = sample.question, sample.error, sample.counts
    question = questions.setdefault(question.id, question)  # so that texts are in memory once
    texts = (question.type, question.hops, question.task, question.question, "; ".join(gold_answers(question)))
    errors = (None, None) if error is None else (str(error), error.kind)
    values = (sample.method, question.id, *texts, sample.answer, *errors, correctness(sample))
    tokens = {"tokens": counts.prompt_tokens + counts.completion_tokens, "seconds": sample.seconds}
    return dict(zip(_COLUMNS, values, strict=True)) | sample.metrics | asdict(counts) | tokens


def correctness(sample: _Row | Sample) -> str:
    """Return whether an answer is right: right, wrong, parse failure, error or unscored.

    The metric of the question's task decides: `reject`, `yes_no_acc`, `str_hit` or `acc`, whichever the sample has
    first, and right is 1. An answer that is not right is a parse failure rather than wrong where it is blank, says
    neither yes nor no, or had to be read from a response that could not be read. `error` is a question that failed,
    `unscored` one without any of these metrics.
    """
    metrics = sample.metrics
    if sample.error is not None:
        return "error"
    deciding = next((metrics[name] for name in _DECIDING if name in metrics), None)
    if deciding is None or deciding == 1:
        return "unscored" if deciding is None else "right"
    unread = metrics.get("empty") or metrics.get("yes_no_unread")
    # A parse failure on the way does not count: the answer itself has to be unreadable.
    return "parse failure" if unread or (sample.trace and sample.trace[-1].event == "parse_failure") else "wrong"
