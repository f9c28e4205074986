"""The answers of a run: a line of `samples.jsonl` each, read one by one, and as the columns of a frame."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pydantic import TypeAdapter, ValidationError

from rag_notes.events import Counts, Event
from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.running.correctness import correctness
from rag_notes.types import InputError, Question

AGAIN = "run the same command again (stored responses are taken)"


class RecordError(InputError):
    """A run folder that cannot be read or does not belong to this run."""


@dataclass(frozen=True, slots=True)
class SampleError:
    """Why a question has no answer: the error's class, its message and, unless a call failed, where it was raised."""

    kind: str
    message: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.traceback else self.message

    @property
    def raised_in(self) -> str:
        """File, line and function where it was raised, "" of a failed call."""
        return self.traceback.rpartition("\n")[2]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one method did with one question.

    `metrics` are those of the question's task, of retrieval, and `cost` in US dollars where the model has a price;
    `seconds` are the time of its calls when they were made, in which no other sample of the same call counts less.
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
    """The gold answers of a question; of one with several readings, one of each."""
    return list(question.answers) or [pair.answers[0] for pair in question.qa_pairs]


class _Step(msgspec.Struct):
    event: str = ""


class _Row(msgspec.Struct):
    """A line of samples.jsonl as the frame needs it: without the content of its trace."""

    method: str
    question: Question
    answer: str
    error: SampleError | None
    metrics: dict[str, float]
    counts: Counts
    trace: list[_Step]
    seconds: float | None = None


class _Id(msgspec.Struct):
    id: str


class _Key(msgspec.Struct):
    method: str
    question: _Id


_SAMPLE = TypeAdapter(Sample)
_ROWS, _KEYS = msgspec.json.Decoder(_Row), msgspec.json.Decoder(_Key)


@dataclass(frozen=True)
class SampleFile:
    """The samples in a file, of all methods or these, read anew each time they are iterated.

    Raises RecordError naming the line and the field where one is malformed.
    """

    path: Path
    methods: frozenset[str] | None = None
    question_id: str | None = None

    def __iter__(self) -> Iterator[Sample]:
        for number, line in self._lines():
            try:
                sample = _SAMPLE.validate_json(line)
            except ValidationError as error:
                first = error.errors()[0]
                raise self._error(number, f"field {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
            yield sample

    def __len__(self) -> int:
        return sum(1 for _ in self._lines())

    def rows(self) -> Iterator[_Row]:
        """The same samples without the content of their traces."""
        for number, line in self._lines():
            try:
                row = _ROWS.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise self._error(number, error) from None
            yield row

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if self.methods is not None:
                    try:
                        key = _KEYS.decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        raise self._error(number, error) from None
                    if key.method not in self.methods or self.question_id not in (None, key.question.id):
                        continue
                yield number, line

    def _error(self, number: int, problem: object) -> RecordError:
        return RecordError(f"{self.path}, line {number}: not a sample: {problem}; {AGAIN}")


def columns_of(rows: Iterable[_Row | Sample]) -> dict[str, Any]:
    """The columns of a frame of these answers, as `rag_notes.running.records.Run.frame` has them."""
    questions: dict[str, Question] = {}
    texts: dict[str, list[str | None]] = {
        name: [] for name in ("method", "question_id", "answer", "error", "error_kind", "correctness")
    }
    metrics: dict[str, array[float]] = {}
    counts = {count.name: array("q") for count in fields(Counts)}
    seconds = array("d")
    for number, row in enumerate(rows):
        questions.setdefault(row.question.id, row.question)
        error = (None, None) if row.error is None else (str(row.error), row.error.kind)
        values = (row.method, row.question.id, row.answer, *error, correctness(row))
        for column, value in zip(texts.values(), values, strict=True):
            column.append(value)
        for name, score in row.metrics.items():
            metrics.setdefault(name, array("d", [np.nan]) * number).append(score)
        for scores in metrics.values():
            if len(scores) == number:
                scores.append(np.nan)
        for name, numbers in counts.items():
            numbers.append(getattr(row.counts, name))
        seconds.append(np.nan if row.seconds is None else row.seconds)
    ordered = [questions[str(name)] for name in texts["question_id"]]
    clusters = gold_clusters(questions.values())
    totals = {name: np.array(column) for name, column in counts.items()}
    return {
        **{name: texts[name] for name in ("method", "question_id")},
        "cluster": [clusters[question.id] for question in ordered],
        **{name: [getattr(question, name) for question in ordered] for name in ("type", "hops", "task", "question")},
        "gold": ["; ".join(gold_answers(question)) for question in ordered],
        **{name: texts[name] for name in ("answer", "error", "error_kind", "correctness")},
        **{name: np.array(column) for name, column in metrics.items()},
        **totals,
        "tokens": totals["prompt_tokens"] + totals["completion_tokens"],
        "seconds": np.array(seconds),
    }
