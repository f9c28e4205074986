"""A run as data: `run.json` says what was run, `samples.jsonl` has a line for each answer, a frame a row for each."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd

from rag_notes.llm.store import canonical_json
from rag_notes.running.samples import AGAIN, RecordError, Sample, SampleError, SampleFile, columns_of

__all__ = ["RecordError", "Run", "RunInfo", "Sample", "SampleError", "load_run", "load_runs", "pooled_frames"]

Annotation = Literal["evidence", "quest_eval"]

SAMPLES = "samples.jsonl"


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
    """A method of a run: its function, its settings (defaults included), and what tables call it."""

    function: str
    settings: dict[str, Any]
    label: str = ""

    @property
    def family(self) -> str:
        """The function's own name, which variants of a method share."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Usage:
    """What the answers of a run cost: each distinct call counts once, whichever run or process made it."""

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
    """The content of run.json: the settings that determine the samples, then what came of them.

    `prompts` has a hash of each prompt that was used. `llm` holds the model, its sampling and, as `stages`, the models
    of single stages. `studies` are the studies that the run was made for. `published` says that it is a frame alone,
    without the text of questions and passages (`rag_notes.running.publish`).
    """

    dataset: DatasetInfo
    condition: Condition
    methods: dict[str, MethodInfo]
    retriever: dict[str, Any]
    llm: dict[str, Any]
    prompt_set: str
    prompts: dict[str, str]
    repeat: int = 0
    status: str = "running"
    samples: Progress = field(default_factory=Progress)
    usage: Usage = field(default_factory=Usage)
    studies: list[str] = field(default_factory=list)
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

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that make two runs the same run."""
        return {
            "dataset": asdict(self.dataset),
            "condition": asdict(self.condition),
            "methods": {name: [method.function, method.settings] for name, method in self.methods.items()},
            "retriever": self.retriever,
            "llm": self.llm,
            "prompt_set": self.prompt_set,
            "repeat": self.repeat,
        }

    @property
    def fingerprint(self) -> str:
        """The hash of the settings by which the folder of the run is named."""
        return hashlib.sha256(canonical_json(self.identity).encode()).hexdigest()[:10]


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A run: `info` is its run.json, `frame()` has a row for each answer, `samples` have the traces.

    The samples of a folder are read from its file each time they are iterated. A run with a `table` has this frame
    instead of samples: a published one, or one whose frame was changed.
    """

    info: RunInfo
    samples: Iterable[Sample] = ()
    folder: Path | None = None
    table: pd.DataFrame | None = None

    def __repr__(self) -> str:
        progress = self.info.samples
        return (
            f"Run({self.label!r}, {self.info.model!r}, {len(self.methods)} methods, {progress.done} of {progress.of} "
            f"answers, {progress.errors} errors, {self.info.status!r})"
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
        """The methods' names, in the order of the run."""
        return list(self.info.methods)

    def only(self, methods: Iterable[str]) -> "Run":
        """The part of this run that these methods answered. Raises KeyError for one that it does not have."""
        chosen = {name: self.info.methods[name] for name in methods}
        table = None if self.table is None else self.table[self.table["method"].isin(chosen)]
        samples = self.samples
        if isinstance(samples, SampleFile):
            samples = SampleFile(samples.path, frozenset(chosen))
        else:
            samples = [sample for sample in samples if sample.method in chosen]
        return replace(self, info=replace(self.info, methods=chosen), samples=samples, table=table)

    def of(self, method: str) -> list[Sample]:
        """The samples of one method, in the order of the questions."""
        return list(self.only([method]).samples)

    def sample(self, method: str, question_id: str) -> Sample:
        """The sample of one method on one question. Raises KeyError where the run has none."""
        samples = self.samples
        if isinstance(samples, SampleFile):
            samples = SampleFile(samples.path, frozenset([method]), question_id)
        for sample in samples:
            if (sample.method, sample.question.id) == (method, question_id):
                return sample
        raise KeyError(f"no sample of {method!r} on {question_id!r} in this run of {self.methods}")

    def frame(self) -> pd.DataFrame:
        """A row for each answer: data set, model, method, question, gold, answer, error, each metric and count.

        `cluster` is the first of the questions that have gold passages in common with this one, `correctness` as in
        `rag_notes.running.correctness`, `tokens` those of prompts and completions. Scores lie between 0 and 1; `cost`
        is in US dollars. What an answer lacks is missing (NaN).
        """
        return (self._frame if self.table is None else self.table).copy()

    @cached_property
    def _frame(self) -> pd.DataFrame:
        condition = self.info.condition
        columns = {"dataset": self.label, "model": self.info.model, "noise_percent": condition.noise_percent}
        rows = self.samples.rows() if isinstance(self.samples, SampleFile) else self.samples
        return pd.DataFrame(columns | {"repeat": self.info.repeat} | columns_of(rows))


def load_run(folder: str | Path) -> Run:
    """Read a run from its folder. Raises RecordError naming what is missing, malformed or of an earlier version."""
    path = Path(folder)
    info = read_info(path)
    if not (path / SAMPLES).exists():
        raise RecordError(f"{path / SAMPLES}: is missing; {AGAIN}")
    return Run(info, SampleFile(path / SAMPLES), path)


def read_info(folder: str | Path) -> RunInfo:
    """Read the run.json of a run. Raises RecordError as `load_run`."""
    path = Path(folder) / "run.json"
    try:
        content = msgspec.json.decode(path.read_bytes())
        if {"scoring", "settings"} & content.keys():
            raise RecordError(f"{path}: was written by an earlier version; {AGAIN}")
        return msgspec.convert(content, RunInfo)
    except FileNotFoundError:
        raise RecordError(f"{path.absolute()}: no such run; make one with `rag-notes run`") from None
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError) as error:
        raise RecordError(f"{path}: not the settings of a run ({error}); {AGAIN}") from None


def run_folders(folder: str | Path) -> list[Path]:
    """The run folders in a folder, by name."""
    return sorted(file.parent for file in Path(folder).glob("*/run.json"))


def load_runs(folders: Iterable[str | Path]) -> dict[str, Run]:
    """Read run folders, by the folders' names. Raises RecordError as `load_run`, and where two have the same name."""
    runs: dict[str, Run] = {}
    for folder in folders:
        name = Path(folder).resolve().name
        if name in runs:
            raise RecordError(f"{folder}: a run named {name} was given before; name it once, or rename one of the two")
        runs[name] = load_run(folder)
    return runs


def pooled_frames(runs: Sequence[Run]) -> list[tuple[list[Run], pd.DataFrame]]:
    """The frames of runs, those that differ in their `repeat` alone as one; each with the repeats that it is of.

    A row is an answer that all repeats have. Its scores, costs and counts are the means over them, missing where one
    repeat lacks them; where one failed its error stands for all and there are no scores. Texts are the first repeat's.
    Raises RecordError where the prompts of the repeats differ.
    """
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        identity, number = replace(run.info, repeat=0).fingerprint, 0
        while any(run.info.repeat == other.info.repeat for other in groups.get((identity, number), [])):
            number += 1  # the same repeat a second time is no repeat of the first
        groups.setdefault((identity, number), []).append(run)
    return [(group, _pool(group)) for group in groups.values()]


def _pool(runs: Sequence[Run]) -> pd.DataFrame:
    if len(runs) == 1:
        return runs[0].frame()
    prompts = runs[0].info.prompts
    for run in runs:
        if any(prompts.get(name, digest) != digest for name, digest in run.info.prompts.items()):
            raise RecordError(f"the repeats of {run.label!r} were made with different prompts; for each {AGAIN}")
    frames = [run.frame().set_index(["method", "question_id"]) for run in runs]
    shared = [key for key in frames[0].index if all(key in frame.index for frame in frames)]
    frames = [frame.loc[shared] for frame in frames]
    pooled = frames[0].copy()
    numbers = pooled.select_dtypes("number").columns.difference(["repeat", "hops", "noise_percent"], sort=False)
    for name in numbers:
        pooled[name] = sum(frame.get(name, np.nan) for frame in frames) / len(frames)
    errors = ["error", "error_kind", "correctness"]
    for frame in reversed(frames):  # the first that failed is the last to be written
        failed = frame["error"].notna()
        pooled.loc[failed, errors] = frame.loc[failed, errors]
    return pooled.reset_index()[runs[0].frame().columns]
