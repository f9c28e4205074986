"""What a notebook or a script needs to try methods: `import rag_notes as rn`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd
import yaml

from rag_notes.config import (
    Config,
    build_datasets,
    build_llm,
    build_method,
    build_methods,
    build_retriever,
    build_templates,
    load_config,
)
from rag_notes.datasets.formats import decode_strictly
from rag_notes.options import CONF, choices, did_you_mean
from rag_notes.parts import ConfigError
from rag_notes.report.compare import Comparison, compare_runs
from rag_notes.report.tables import ScoresTable, methods_frame, scores_table
from rag_notes.report.trace import Trace
from rag_notes.retrieval.base import Retriever
from rag_notes.running.evaluate import Method, evaluate
from rag_notes.running.records import Run
from rag_notes.running.run import run_on
from rag_notes.types import Dataset, Passage, Question

T = TypeVar("T", Question, Passage)


@dataclass(frozen=True)
class Lab:
    """A data set with its retriever and a model, where methods are run: make one with `rn.open`."""

    config: Config
    dataset: Dataset
    retriever: Retriever

    async def run(self, methods: Any, questions: Sequence[str] | int | None = None, *, progress: bool = True) -> Run:
        """Run methods on questions: by id, the first so many, or all.

        A method is a name of `rn.methods()`, an async function `(rag, question)`, a partial of one, or a mapping such
        as `{"method": "deepnote", "max_step": 1}`; a mapping from names to functions names each. The run lies in its
        own folder below `runs`, and what was asked once is not asked again. Raises ConfigError for a method or a
        question that there is not, otherwise as `rag_notes.running.evaluate.evaluate`.
        """
        every = self.dataset.questions
        chosen = every[:questions] if questions is None or isinstance(questions, int) else map(self.question, questions)
        dataset = replace(self.dataset, questions=tuple(chosen))
        async with build_llm(self.config) as llm:
            return await run_on(self.config, self._methods(methods), dataset, self.retriever, llm, progress=progress)

    async def ask(self, question: str, method: Any = "deepnote") -> Trace:
        """Ask a question of one's own and show what the method does; nothing is written but the responses."""
        language = self.dataset.questions[0].language if self.dataset.questions else "en"
        dataset = replace(self.dataset, questions=(Question("question", question, language=language),))
        methods, templates = self._methods(method), build_templates(self.config)
        async with build_llm(self.config) as llm:
            run = await evaluate(methods, dataset, self.retriever, llm, templates=templates, progress=False)
        return Trace(run.sample(next(iter(methods)), "question"))

    def search(self, query: str, top_k: int = 5) -> pd.DataFrame:
        """Rank the `top_k` best passages for a query; `gold` marks those that a question of this text needs."""
        gold = {name for each in self.dataset.questions if each.question == query for name in each.gold_ids}
        hits = self.retriever.search([query], top_k)[0]
        rows = [asdict(hit.passage) | {"score": hit.score, "gold": hit.passage.id in gold} for hit in hits]
        return pd.DataFrame(rows, index=range(1, len(rows) + 1), columns=["id", "score", "gold", "title", "text"])

    def question(self, question_id: str) -> Question:
        """Return the question with this id. Raises ConfigError where the data set has none."""
        by_id = {question.id: question for question in self.dataset.questions}
        if question_id not in by_id:
            raise ConfigError(f"{self.dataset.name} has no question {question_id!r}{did_you_mean(question_id, by_id)}")
        return by_id[question_id]

    def __repr__(self) -> str:
        sizes = f"{len(self.dataset.questions)} questions, {len(self.dataset.corpus)} passages"
        return f"Lab({self.dataset.name!r}: {sizes}, {self.retriever.name}, {self.config.llm['model']})"

    def _methods(self, methods: Any) -> dict[str, Method]:
        if isinstance(methods, Mapping) and "method" not in methods:
            return dict(methods)
        single = isinstance(methods, str | Mapping) or callable(methods)
        return dict(self._method(method) for method in ([methods] if single else methods))

    def _method(self, method: Any) -> tuple[str, Method]:
        if callable(method):
            return (method.func if isinstance(method, partial) else method).__name__, method
        settings = dict(method) if isinstance(method, Mapping) else {"method": method}
        name = settings.pop("method", None)
        variant = "_".join([str(name), *(f"{key}_{value}" for key, value in settings.items())])
        return variant, build_method(self.config, name, settings)


def open(  # noqa: A001 - as rn.open
    dataset: str = "world",
    *options: str,
    llm: str = "recorded",
    retriever: str | None = None,
    limit: int | None = None,
    questions: Any = None,
    passages: Any = None,
) -> Lab:
    """Open a data set with its retriever and a model; `options` are those of the command line.

    For example `rn.open("hotpotqa", "llm.model=gpt-4o-mini", llm="openai", limit=50)`. Questions and passages of one's
    own are frames, mappings or records with the fields of `Question` and `Passage`. Raises ConfigError for an option
    that does not exist or does not fit, DataError where the data set's file is missing or malformed.
    """
    chosen = {"llm": llm, "retriever": retriever, "limit": limit, "dataset": dataset if questions is None else None}
    config = load_config([*(f"{name}={value}" for name, value in chosen.items() if value is not None), *options])
    if questions is not None:
        records = _records(questions, Question, "questions")[: config.limit]
        data = Dataset("own", records, _records(() if passages is None else passages, Passage, "passages"))
    elif len(config.dataset) > 1:
        raise ConfigError(f"{dataset}: a lab has one data set; open one for each")
    else:
        (data,) = build_datasets(config)
    return Lab(config, data, build_retriever(config, data.corpus))


def _records(rows: Any, kind: type[T], name: str) -> tuple[T, ...]:
    """Read rows as questions or passages; one without an id has its number."""
    records = []
    for number, row in enumerate(rows.to_dict("records") if hasattr(rows, "to_dict") else rows):
        values = asdict(row) if isinstance(row, kind) else dict(row)
        values = {key: value for key, value in values.items() if not (value is None or value != value)}  # noqa: PLR0124
        line = json.dumps({"id": str(number)} | ({"title": ""} if kind is Passage else {}) | values)
        records.append(decode_strictly(line, kind, kind, f"{name}, row {number}"))
    return tuple(records)


def table(*runs: Run | Sequence[Run], **options: Any) -> ScoresTable:
    """Show scores of runs in %, with intervals, a star where the difference to the baseline is significant.

    Example: `rn.table(run)`, or `rn.table([run0, run1])` for repeats, which are one result. Options: `metrics=["f1"]`,
    `by="type"`, `baseline="vanilla"`, `clusters=True` for intervals by clusters of questions that share gold passages.
    """
    return scores_table([run for each in runs for run in ([each] if isinstance(each, Run) else each)], **options)


def compare(run: Run, method: str, other_method: str, other_run: Run | None = None) -> Comparison:
    """Compare two methods, or two runs of one data set, question by question.

    Example: `rn.compare(run, "vanilla", "deepnote")`. Raises RecordError where nothing can be paired.
    """
    return compare_runs(run, other_run or run, method_a=method, method_b=other_method)


def methods() -> pd.DataFrame:
    """List the methods: name, label, family, source, and the most calls that a question takes."""
    return methods_frame(build_methods(load_config([f"method=[{','.join(choices('method'))}]"])))


def datasets() -> pd.DataFrame:
    """List the data sets: name, what each is with its licence, and the name of its file."""
    return _choices("dataset", lambda settings: settings["path"])


def studies() -> pd.DataFrame:
    """List the studies: name, what each is about, and its notebook."""
    return _choices("study", lambda settings: settings["study"]["notebook"])


def _choices(group: str, file: Callable[[Mapping[str, Any]], str]) -> pd.DataFrame:
    """Return a row for each choice of a group of conf/: its name, the comment at the head of it, and a file's name."""
    rows = []
    for name in choices(group):
        text = (CONF / group / f"{name}.yaml").read_text(encoding="utf-8")
        about = " ".join(re.findall(r"^# (?!@)(.*)", text, re.MULTILINE))
        rows.append({group: name, "about": about, "file": Path(file(yaml.safe_load(text))).name})
    return pd.DataFrame(rows)
