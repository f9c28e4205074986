"""A run on disk: `run.json` (what was run, with what) and `samples.jsonl` (a line for each question and method)."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from rag_notes.events import Counts, Event
from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.running.lines import Lines
from rag_notes.types import InputError, Question

Key = tuple[str, str]  # method, question id
Annotation = Literal["evidence", "quest_eval"]

IMPORTED = "imported"
"""The status of a run that was read from another program's file: it has answers and scores, no traces, no costs."""


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
    """What one method made of one question. `metrics` are those of the question's task, of retrieval, and `cost`."""

    method: str
    question: Question
    answer: str
    error: SampleError | None
    metrics: dict[str, float]
    counts: Counts
    trace: list[Event]

    @property
    def key(self) -> Key:
        """What identifies a sample in its run."""
        return self.method, self.question.id

    @property
    def gold(self) -> list[str]:
        """The gold answers; of a question with several readings, one of each."""
        return list(self.question.answers) or [pair.answers[0] for pair in self.question.qa_pairs]


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """Which questions were asked of which corpus: `sha256` is that of the questions' records.

    `selection` is all, papers (those that the papers asked) or how they were chosen, as `first 50`. `corpus` is pooled
    where it was made of the questions' own paragraphs, given where it came as a whole.
    """

    name: str
    questions: int
    sha256: str
    selection: str = "all"
    corpus: str = "pooled"


@dataclass(frozen=True, slots=True)
class Condition:
    """Under what condition a run was made: so many per cent of noise passages, or annotating another run's answers."""

    noise_percent: int | None = None
    annotates: Annotation | None = None

    def __str__(self) -> str:
        if self.annotates is not None:
            return self.annotates
        return "" if self.noise_percent is None else f"noise{self.noise_percent}"


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A method of a run: its function, its settings (defaults included), a hash of its code, and what it is called."""

    function: str
    settings: dict[str, Any]
    code: str
    label: str = ""

    @property
    def family(self) -> str:
        """The function's own name, which variants of a method share."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Usage:
    """What the answers of a run took, each distinct call counted once, by whichever process it was made."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    retries: int = 0
    cost: float | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How many samples a run has, of how many, and how many of them failed."""

    done: int = 0
    of: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What run.json says: everything that determines the samples, then what came of it.

    `prompts` has the name of the prompt set and a hash of each prompt, `code` of a method and `scoring` those of the
    code. `llm` holds the model, its sampling and, as `stages`, the models of single stages. `seconds` of model time
    are by method and question. `studies` are what the run was made for, `overrides` the options as they were given.
    `published` says that the texts are taken out (`rag_notes.running.publish`).
    """

    dataset: DatasetInfo
    condition: Condition
    methods: dict[str, MethodInfo]
    retriever: dict[str, Any]
    llm: dict[str, Any]
    prompt_set: str
    prompts: dict[str, str]
    scoring: str = ""
    repeat: int = 0
    status: str = "running"
    samples: Progress = field(default_factory=Progress)
    usage: Usage = field(default_factory=Usage)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    search_retries: int = 0
    half_written: int = 0
    studies: list[str] = field(default_factory=list)
    overrides: list[str] = field(default_factory=list)
    endpoint: str = ""
    published: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.llm.get("model", ""))

    @property
    def finished(self) -> bool:
        """Whether every question has a sample, failed or not."""
        return self.status == "finished"


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run as its two files hold it: `info` is run.json, `samples` the lines of samples.jsonl in their order.

    `folder` is where it lies, None for a run that was not written; `repeats` are the runs that this one is pooled of.
    The samples of a folder are read when they are asked for, and are those that it had when the run was read or made.
    """

    info: RunInfo
    samples: Sequence[Sample] = ()
    folder: Path | None = None
    repeats: tuple["Run", ...] = ()

    def __repr__(self) -> str:
        done = self.info.samples
        return (
            f"Run({self.label!r}, {self.info.model!r}, {len(self.methods)} methods, {done.done} of {done.of} answers, "
            f"{done.errors} errors, {self.info.status!r})"
        )

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return self.info.dataset.name

    @property
    def label(self) -> str:
        """The data set's name with the condition, if there is one."""
        return "-".join(part for part in (self.dataset, str(self.info.condition)) if part)

    @property
    def methods(self) -> list[str]:
        """The methods' names, in the order they were given."""
        return list(self.info.methods)

    @property
    def questions(self) -> list[Question]:
        """The questions that have a sample, each once."""
        return list({sample.question.id: sample.question for sample in self.samples}.values())

    @property
    def keys(self) -> Sequence[Key]:
        """Method and question id of each sample."""
        return self.samples.keys if isinstance(self.samples, Lines) else [sample.key for sample in self.samples]

    def only(self, methods: Iterable[str]) -> "Run":
        """The part of this run that these methods made. Raises KeyError for one that it does not have."""
        methods = list(methods)
        wanted = {name: self.info.methods[name] for name in methods}
        places = [place for place, (method, _) in enumerate(self.keys) if method in wanted]
        return replace(
            self,
            info=replace(self.info, methods=wanted),
            samples=self.at(places),
            repeats=tuple(run.only(methods) for run in self.repeats),
        )

    def of(self, method: str) -> Sequence[Sample]:
        """The samples of one method, in the order of the questions."""
        return self.at(place for place, (name, _) in enumerate(self.keys) if name == method)

    def at(self, places: Iterable[int]) -> Sequence[Sample]:
        """The samples at these places."""
        return self.samples.at(places) if isinstance(self.samples, Lines) else [self.samples[i] for i in places]

    def sample(self, method: str, question_id: str) -> Sample:
        """The sample of one method on one question. Raises KeyError where the run has none."""
        for place, key in enumerate(self.keys):
            if key == (method, question_id):
                return self.samples[place]
        raise KeyError(f"no sample of {method!r} on {question_id!r} in this run of {self.methods}")

    def seconds(self, sample: Sample) -> float | None:
        """Seconds of model time of a sample; None where the run does not know."""
        return self.info.seconds.get(sample.method, {}).get(sample.question.id)

    def frame(self) -> pd.DataFrame:
        """A row for each sample: data set, model, method, question, gold, answer, error, each metric and count.

        `cluster` is the cluster of questions with gold passages in common. What a sample lacks is missing (NaN).
        """
        from rag_notes.running.correctness import correctness  # noqa: PLC0415 - which reads samples

        clusters = gold_clusters(self.questions)
        return pd.DataFrame(
            [
                {
                    "dataset": self.label,
                    "model": self.info.model,
                    "noise_percent": self.info.condition.noise_percent,
                    "repeat": self.info.repeat,
                    "method": sample.method,
                    "question_id": sample.question.id,
                    "cluster": clusters[sample.question.id],
                    "type": sample.question.type,
                    "hops": sample.question.hops,
                    "task": sample.question.task,
                    "question": sample.question.question,
                    "gold": "; ".join(sample.gold),
                    "answer": sample.answer,
                    "error": None if sample.error is None else str(sample.error),
                    "error_kind": None if sample.error is None else sample.error.kind,
                    "correctness": correctness(sample),
                    **sample.metrics,
                    **asdict(sample.counts),
                    "tokens": sample.counts.prompt_tokens + sample.counts.completion_tokens,
                    "seconds": self.seconds(sample),
                }
                for sample in self.samples
            ]
        )


def require_text(run: Run) -> None:
    """Raise InputError for a run that was published without its texts, which what comes next reads."""
    if run.info.published:
        raise InputError(
            f"{run.folder}: was published without the text of passages, notes and responses, which this is counted "
            "from; make the run yourself, or name one that has its text"
        )


def pooled_frames(runs: Sequence[Run]) -> list[tuple[list[Run], pd.DataFrame]]:
    """The frames of runs, those that differ in their `repeat` alone as one; each with the repeats that it is of."""
    from rag_notes.running.repeats import pooled  # noqa: PLC0415 - which reads records

    return [(list(run.repeats) or [run], run.frame()) for run in pooled(dict(enumerate(runs))).values()]
