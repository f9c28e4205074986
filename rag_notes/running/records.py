"""A run: its settings in `run.json`, its answers in `samples.jsonl` or as a frame."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import msgspec
import pandas as pd

from rag_notes.files import replacing
from rag_notes.llm.store import canonical_json
from rag_notes.running.samples import AGAIN, RecordError, Sample, SampleFile, encode, frame_of, start_of

Annotation = Literal["evidence", "quest_eval"]

SETTINGS, SAMPLES = "run.json", "samples.jsonl"
KEY = ["method", "question_id"]  # the columns of a frame that tell an answer of a run from the others


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The questions and the corpus of a run: `sha256` is that of the questions' records.

    `selection` is all, papers (those that the papers asked) or how they were chosen, as `first 50`. `corpus` is pooled
    where it consists of the questions' own paragraphs, given where it came as a whole.
    """

    name: str
    questions: int
    sha256: str
    selection: str = "all"
    corpus: str = "pooled"


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of a run: so many per cent of noise passages, or annotating another run's answers."""

    noise_percent: int | None = None
    annotates: Annotation | None = None

    def __str__(self) -> str:
        return self.annotates or ("" if self.noise_percent is None else f"noise{self.noise_percent}")


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A method of a run: its function, its settings (defaults included), and its name in tables."""

    function: str
    settings: dict[str, Any]
    label: str = ""

    @property
    def family(self) -> str:
        """The function's own name, which variants of a method share."""
        return self.function.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The content of run.json: the settings that determine the answers, then what came of them.

    `prompts` has a hash of each prompt that was used. `llm` holds the model, its sampling and, as `stages`, the models
    of single stages. `studies` are the studies that the run was made for. A `published` run has a frame alone.
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
    studies: list[str] = field(default_factory=list)
    published: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.llm.get("model", ""))

    @property
    def finished(self) -> bool:
        """Whether every question has an answer or an error."""
        return self.status == "finished"

    @property
    def fingerprint(self) -> str:
        """The hash of the settings that determine the answers, by which the folder of the run is named."""
        settings = {name: getattr(self, name) for name in ("retriever", "llm", "prompt_set", "repeat")}
        settings |= {"dataset": asdict(self.dataset), "condition": asdict(self.condition)}
        settings["methods"] = {name: [method.function, method.settings] for name, method in self.methods.items()}
        return hashlib.sha256(canonical_json(settings).encode()).hexdigest()[:10]


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A run: `frame()` has a row for each answer, `samples` have the traces.

    The samples of a folder are read from its file each time they are iterated. `table` stands in the place of the
    frame: that of a published run, or one with further columns.
    """

    info: RunInfo
    samples: Iterable[Sample] = ()
    folder: Path | None = None
    table: pd.DataFrame | None = None

    def __repr__(self) -> str:
        size = f"{len(self.methods)} methods, {self.info.dataset.questions} questions"
        return f"Run({self.label!r}, {self.info.model!r}, {size}, {self.info.status!r})"

    @property
    def dataset(self) -> str:
        """The data set's name."""
        return self.info.dataset.name

    @property
    def label(self) -> str:
        """The data set's name with the condition, if there is one."""
        return "-".join(filter(None, [self.dataset, str(self.info.condition)]))

    @property
    def methods(self) -> list[str]:
        """The methods' names, in the order of the run."""
        return list(self.info.methods)

    def only(self, methods: Iterable[str]) -> "Run":
        """Return the part of this run that these methods answered. Raises KeyError for one that it does not have."""
        chosen = {name: self.info.methods[name] for name in methods}
        table = None if self.table is None else self.table[self.table["method"].isin(chosen)]
        return replace(self, info=replace(self.info, methods=chosen), samples=self._select(*chosen), table=table)

    def of(self, method: str) -> list[Sample]:
        """Return the samples of one method, in the order of the questions."""
        return list(self._select(method))

    def sample(self, method: str, question_id: str) -> Sample:
        """Return the sample of one method on one question. Raises KeyError where the run has none."""
        for sample in self._select(method, question_id=question_id):
            return sample
        raise KeyError(f"no sample of {method!r} on {question_id!r} in this run of {self.methods}")

    def _select(self, *methods: str, question_id: str | None = None) -> Iterable[Sample]:
        if isinstance(self.samples, SampleFile):  # where parsing all would take long
            return SampleFile(self.samples.path, tuple(start_of(method, question_id) for method in methods))
        samples = [sample for sample in self.samples if sample.method in methods]
        return [sample for sample in samples if question_id in (None, sample.question.id)]

    def frame(self) -> pd.DataFrame:
        """Return a row for each answer: settings, question, gold, answer, error, each score and count.

        Scores lie between 0 and 1, `cost` is in US dollars, `seconds` is the time of the calls when they were made.
        `cluster` is the first of the questions that share gold passages with this one; `correctness` is right, wrong,
        parse failure, error or unscored. What an answer lacks is missing (NaN).
        """
        return (self._frame if self.table is None else self.table).copy()

    @cached_property
    def _frame(self) -> pd.DataFrame:
        noise, repeat = self.info.condition.noise_percent, self.info.repeat
        return frame_of(self.samples, dataset=self.label, model=self.info.model, noise_percent=noise, repeat=repeat)


def load_run(folder: str | Path) -> Run:
    """Read a run from its folder. Raises RecordError naming what is missing or malformed."""
    info, samples = read_info(folder), Path(folder) / SAMPLES
    if not samples.exists():
        raise RecordError(f"{samples}: is missing; {AGAIN}")
    return Run(info, SampleFile(samples), Path(folder))


def save_run(folder: Path, info: RunInfo, lines: Iterable[bytes]) -> Run:
    """Write a run to its folder, the lines of its samples in their order."""
    for name, content in ((SAMPLES, lines), (SETTINGS, [msgspec.json.format(encode(info), indent=1)])):
        # By way of a file of its own: another process may be making the same run.
        with replacing(folder / name, folder / f"{name}.{uuid4().hex[:8]}.part") as file:
            file.writelines(content)
    return Run(info, SampleFile(folder / SAMPLES), folder)


def read_info(folder: str | Path) -> RunInfo:
    """Read the run.json of a run. Raises RecordError as `load_run`."""
    path = Path(folder) / SETTINGS
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except FileNotFoundError:
        raise RecordError(f"{path.absolute()}: no such run; make one with `rag-notes run`") from None
    except ValueError as error:
        raise RecordError(
            f"{path}: not the settings of a run, or written by an earlier version ({error}); {AGAIN}"
        ) from None


def run_folders(folder: str | Path) -> list[Path]:
    """Return the run folders in a folder, by name."""
    return sorted(file.parent for file in Path(folder).glob(f"*/{SETTINGS}"))


def runs_table(folder: str | Path) -> pd.DataFrame:
    """Return a row for each run in a folder, the latest first: its settings, status and date."""
    rows = []
    for time, path in sorted(((path / SETTINGS).stat().st_mtime, path) for path in run_folders(folder))[::-1]:
        info, date = read_info(path), datetime.fromtimestamp(time, UTC)
        rows.append(
            {"run": path.name, "studies": ", ".join(info.studies), "data set": info.dataset.name}
            | {"condition": str(info.condition), "model": info.model, "prompts": info.prompt_set}
            | {"methods": len(info.methods), "questions": info.dataset.questions}
            | {"status": info.status[:40], "date": f"{date:%Y-%m-%d %H:%M}"}
        )
    return pd.DataFrame(rows)


def pooled_frames(runs: Sequence[Run]) -> list[tuple[list[Run], pd.DataFrame]]:
    """Return the frames of runs, those that differ in their `repeat` alone as one; each with the repeats it is of.

    A row is an answer that all repeats have. Its scores, costs and counts are the means over them, missing where one
    repeat lacks them; where one failed its error stands for all and there are no scores. Texts are the first repeat's.
    Raises RecordError where the prompts of the repeats differ.
    """
    groups: dict[tuple[str, int], list[Run]] = {}
    times = Counter[str]()
    for run in runs:
        # The same repeat a second time is no repeat of the first.
        groups.setdefault((replace(run.info, repeat=0).fingerprint, times[run.info.fingerprint]), []).append(run)
        times[run.info.fingerprint] += 1
    return [(group, _pool(group) if len(group) > 1 else group[0].frame()) for group in groups.values()]


def _pool(runs: Sequence[Run]) -> pd.DataFrame:
    first, prompts = runs[0].frame(), runs[0].info.prompts
    if any(prompts.get(name, digest) != digest for run in runs for name, digest in run.info.prompts.items()):
        raise RecordError(f"the repeats of {runs[0].label!r} were made with different prompts; for each {AGAIN}")
    numbers = [*first.select_dtypes("number").columns.difference(["repeat", "hops", "noise_percent"], sort=False)]
    answers = pd.concat([run.frame() for run in runs]).set_index(KEY)
    answers = answers[answers.groupby(KEY).size().reindex(answers.index) == len(runs)]
    pooled = answers[~answers.index.duplicated()].copy()
    pooled[numbers] = answers.groupby(KEY)[numbers].sum(min_count=len(runs)) / len(runs)
    failed = answers.loc[answers["error"].notna(), ["error", "error_kind", "correctness"]]
    pooled.update(failed[~failed.index.duplicated()])
    return pooled.reset_index()[first.columns]
