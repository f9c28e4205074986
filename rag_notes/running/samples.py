"""The answers of a run: a line of `samples.jsonl` each, or a row of a frame."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from rag_notes.events import Counts, Event
from rag_notes.llm.errors import encodable
from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.types import InputError, Question

AGAIN = "run the same command again (stored responses are taken)"
_CHUNK = 4096  # samples that are in memory at once while a frame is built
_DECIDING = ("reject", "yes_no_acc", "str_hit", "acc")  # the metrics by which an answer is right, the first that it has


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
        return list(self.question.answers) or [pair.answers[0] for pair in self.question.qa_pairs]


def encode(value: Any) -> bytes:
    """Write a value as a line of JSON; half a surrogate pair in a text, such as a server's error, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False, separators=(",", ":"))
        return f"{encodable(text)}\n".encode()


decode: Callable[[bytes], Sample] = TypeAdapter(Sample).validate_json  # msgspec knows no unions of dataclasses


@dataclass(frozen=True)
class SampleFile:
    """The samples in a file whose lines start in one of these ways, read anew each time they are iterated.

    Raises RecordError naming line and field where one is malformed.
    """

    path: Path
    starts: tuple[bytes, ...] = (b"",)

    def __iter__(self) -> Iterator[Sample]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.startswith(self.starts):
                    try:
                        yield decode(line)
                    except ValidationError as error:
                        problem = ": ".join([*map(str, error.errors()[0]["loc"]), error.errors()[0]["msg"]])
                        raise RecordError(f"{self.path}, line {number}: not a sample: {problem}; {AGAIN}") from None


def start_of(method: str, question_id: str | None = None) -> bytes:
    """Return how a method's lines start, those on one question or all: method and question id come first in them."""
    question = {} if question_id is None else {"question": {"id": question_id}}
    return msgspec.json.encode({"method": method, **question}).rstrip(b"}") + b","


def frame_of(samples: Iterable[Sample], **settings: Any) -> pd.DataFrame:
    """Build the frame of answers, as `rag_notes.running.records.Run.frame`; the settings are its first columns."""
    questions: dict[str, Question] = {}
    remaining, frames = iter(samples), []
    while rows := [_row(sample, settings, questions) for sample in islice(remaining, _CHUNK)]:
        frames.append(pd.DataFrame(rows))
    blank = Sample("", Question("", ""), "", None, {}, Counts(), [])
    frame = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=[*_row(blank, settings, {})])
    clusters = gold_clusters(questions.values())
    return frame.assign(cluster=frame["question_id"].map(clusters))


def _row(sample: Sample, settings: Mapping[str, Any], questions: dict[str, Question]) -> dict[str, Any]:
    question = questions.setdefault(sample.question.id, sample.question)  # so that texts are in memory once
    return {
        **settings,
        "method": sample.method,
        "question_id": question.id,
        "cluster": "",  # known when all questions are
        **{name: getattr(question, name) for name in ("type", "hops", "task", "question")},
        "gold": "; ".join(sample.gold),
        "answer": sample.answer,
        "error": None if sample.error is None else str(sample.error),
        "error_kind": None if sample.error is None else sample.error.kind,
        "correctness": correctness(sample),
        **sample.metrics,
        **msgspec.to_builtins(sample.counts),
        "tokens": sample.counts.prompt_tokens + sample.counts.completion_tokens,
        "seconds": sample.seconds,
    }


def correctness(sample: Sample) -> str:
    """Return whether an answer is right: right, wrong, parse failure, error or unscored.

    The metric of the question's task decides: `reject`, `yes_no_acc`, `str_hit` or `acc`, whichever the sample has
    first, and right is 1. An answer that is not right is a parse failure rather than wrong where it is blank, says
    neither yes nor no, or had to be read from a response that could not be read. `error` is a question that failed,
    `unscored` one without any of these metrics.
    """
    if sample.error is not None:
        return "error"
    deciding = next((sample.metrics[name] for name in _DECIDING if name in sample.metrics), None)
    if deciding is None or deciding == 1:
        return "unscored" if deciding is None else "right"
    unread = sample.metrics.get("empty") or sample.metrics.get("yes_no_unread")
    # A parse failure on the way does not count: the answer itself has to be unreadable.
    return "parse failure" if unread or (sample.trace and sample.trace[-1].event == "parse_failure") else "wrong"
