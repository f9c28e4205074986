"""What a notebook or a script needs to try methods: `import rag_notes as rn`."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rag_notes.config import (
    Config,
    ConfigError,
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
from rag_notes.retrieval.base import Retriever
from rag_notes.running.evaluate import Method, evaluate
from rag_notes.running.records import Run, load_run
from rag_notes.running.run import run_on
from rag_notes.types import Dataset, Passage, Question

if TYPE_CHECKING:  # tables and figures load slowly, and a script may need neither
    import pandas as pd

    from rag_notes.report.compare import Comparison
    from rag_notes.report.tables import ScoresTable
    from rag_notes.report.trace import Trace

T = TypeVar("T", Question, Passage)
Rows = Any  # a frame, or mappings or records: what `open` takes as questions and passages


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
        dataset = replace(self.dataset, questions=self._questions(questions))
        async with build_llm(self.config) as llm:
            return await run_on(self.config, self._methods(methods), dataset, self.retriever, llm, progress=progress)

    async def ask(self, question: str, method: Any = "deepnote") -> "Trace":
        """Ask a question of one's own and show what the method does; nothing is written but the responses."""
        from rag_notes.report.trace import Trace  # noqa: PLC0415 - loads slowly

        methods = self._methods([method])
        dataset = replace(self.dataset, questions=(Question("question", question, language=self._language),))
        async with build_llm(self.config) as llm:
            templates = build_templates(self.config)
            run = await evaluate(methods, dataset, self.retriever, llm, templates=templates, progress=False)
        return Trace(run.sample(next(iter(methods)), "question"))

    def search(self, query: str, top_k: int = 5) -> "pd.DataFrame":
        """Rank the `top_k` best passages for a query; `gold` marks those that a question of this text needs."""
        import pandas as pd  # noqa: PLC0415

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
        questions, passages = len(self.dataset.questions), len(self.dataset.corpus)
        return (
            f"Lab({self.dataset.name!r}: {questions} questions, {passages} passages, {self.retriever.name}, "
            f"{self.config.llm['model']})"
        )

    @property
    def _language(self) -> Any:
        return self.dataset.questions[0].language if self.dataset.questions else "en"

    def _methods(self, methods: Any) -> dict[str, Method]:
        if isinstance(methods, Mapping) and "method" not in methods:
            return dict(methods)
        listed = [methods] if isinstance(methods, str | Mapping) or callable(methods) else list(methods)
        return dict(self._method(method) for method in listed)

    def _method(self, method: Any) -> tuple[str, Method]:
        if callable(method):
            function = method
            while isinstance(function, partial):
                function = function.func
            return function.__name__, method
        name, settings = method, {}
        if isinstance(method, Mapping):
            settings = {key: value for key, value in method.items() if key != "method"}
            name = method.get("method")
        if name not in choices("method"):
            raise ConfigError(f"no method is called {name!r}{did_you_mean(str(name), choices('method'))}")
        variant = "_".join([name, *(f"{key}_{value}" for key, value in settings.items())])
        return variant, build_method(self.config, name, settings)

    def _questions(self, questions: Sequence[str] | int | None) -> tuple[Question, ...]:
        if questions is None or isinstance(questions, int):
            return self.dataset.questions[:questions]
        return tuple(self.question(question_id) for question_id in questions)


def open(  # noqa: A001 - as rn.open
    dataset: str = "world",
    *options: str,
    llm: str = "recorded",
    retriever: str | None = None,
    limit: int | None = None,
    questions: Rows | None = None,
    passages: Rows | None = None,
) -> Lab:
    """Open a data set with its retriever and a model; `options` are those of the command line.

    For example `rn.open("hotpotqa", "llm.model=gpt-4o-mini", llm="openai", limit=50)`. Questions and passages of one's
    own are frames, mappings or records with the fields of `Question` and `Passage`. Raises ConfigError for an option
    that does not exist or does not fit, DataError where the data set's file is missing or malformed.
    """
    named = {"llm": llm, "retriever": retriever, "limit": limit} | (
        {} if questions is not None else {"dataset": dataset}
    )
    config = load_config([*(f"{name}={value}" for name, value in named.items() if value is not None), *options])
    if questions is not None:
        asked = _records(questions, Question, "questions")[: config.limit]
        data = Dataset("own", asked, _records(passages if passages is not None else (), Passage, "passages"))
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


def load(folder: str | Path) -> Run:
    """Read a run from its folder, for example `rn.load("runs/mini-...")`. Raises RecordError where it is malformed."""
    return load_run(folder)


def table(*runs: Run | Sequence[Run], **options: Any) -> "ScoresTable":
    """Show scores of runs in %, with intervals, a star where the difference to the baseline is significant.

    Example: `rn.table(run)`, or `rn.table([run0, run1])` for repeats, which are one result. Options: `metrics=["f1"]`,
    `by="type"`, `baseline="vanilla"`, `clusters=True` for intervals by clusters of questions that share gold passages.
    """
    from rag_notes.report.tables import scores_table  # noqa: PLC0415 - loads slowly

    return scores_table([run for each in runs for run in ([each] if isinstance(each, Run) else each)], **options)


def trace(run: Run, method: str | None = None, question_id: str | None = None) -> Any:
    """Show what a method did on a question, step by step; without a method or question, choose them in the notebook.

    Example: `rn.trace(run, "deepnote", "r17-q08")`. Raises KeyError where the run has no such answer.
    """
    from rag_notes.report.trace import show_trace  # noqa: PLC0415

    return show_trace(run, method, question_id)


def compare(run: Run, method: str, other_method: str, other_run: Run | None = None) -> "Comparison":
    """Compare two methods, or two runs of one data set, question by question.

    Example: `rn.compare(run, "vanilla", "deepnote")`. Raises RecordError where nothing can be paired.
    """
    from rag_notes.report.compare import compare_runs  # noqa: PLC0415

    return compare_runs(run, other_run or run, method_a=method, method_b=other_method)


def methods() -> "pd.DataFrame":
    """List the methods: name, label, family, source, and the most calls that a question takes."""
    from rag_notes.report.tables import methods_frame  # noqa: PLC0415

    return methods_frame(build_methods(load_config([f"method=[{','.join(choices('method'))}]"])))


def datasets() -> "pd.DataFrame":
    """List the data sets: name, what each is with its licence, and the name of its file."""
    return _choices("dataset", lambda settings: Path(settings["path"]).name)


def studies() -> "pd.DataFrame":
    """List the studies: name, what each is about, and its notebook."""
    return _choices("study", lambda settings: Path(settings["study"]["notebook"]).name)


def _choices(group: str, file: Callable[[Mapping[str, Any]], str]) -> "pd.DataFrame":
    """Return a row for each choice of a group of conf/: its name, the comment at the head of it, and a file's name."""
    import pandas as pd  # noqa: PLC0415
    import yaml  # noqa: PLC0415

    texts = {name: (CONF / group / f"{name}.yaml").read_text(encoding="utf-8") for name in choices(group)}
    comments = (re.findall(r"^# (?!@)(.*)", text, re.MULTILINE) for text in texts.values())
    files = (file(yaml.safe_load(text)) for text in texts.values())
    return pd.DataFrame({group: [*texts], "about": [*map(" ".join, comments)], "file": [*files]})
