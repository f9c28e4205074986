"""What a notebook or a script needs to try methods: `import rag_notes as rn`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rag_notes.config import Config, ConfigError, build_datasets, build_llm, build_methods, build_retriever, load_config
from rag_notes.retrieval.base import Retriever
from rag_notes.running.describe import Method
from rag_notes.running.identity import unwrapped
from rag_notes.running.records import Condition, Run
from rag_notes.running.run import run_on
from rag_notes.running.run_files import load_run
from rag_notes.types import Dataset, Hit, Question

if TYPE_CHECKING:  # tables and figures load slowly, and a script may need neither
    from rag_notes.report.compare import Comparison
    from rag_notes.report.figures import NotebookFigure
    from rag_notes.report.scores_table import ScoresTable
    from rag_notes.report.trace import Trace


@dataclass(frozen=True)
class Lab:
    """A data set with its retriever and a model, where methods are run: make one with `rn.open`."""

    config: Config
    dataset: Dataset
    retriever: Retriever

    async def run(
        self,
        methods: Sequence[Method | str] | Mapping[str, Method],
        questions: Sequence[str] | int | None = None,
        *,
        progress: bool = False,
    ) -> Run:
        """Run methods, one's own functions or names of `conf/method`, on questions: by id, the first so many, or all.

        The run lies in its own folder below `runs`, and what was asked once is not asked again. Raises ConfigError for
        a method or a question that there is not, otherwise as `rag_notes.running.evaluate.evaluate`.
        """
        chosen = self._named(methods)
        dataset = replace(self.dataset, questions=self._questions(questions))
        async with build_llm(self.config) as llm:
            return await run_on(self.config, chosen, dataset, self.retriever, llm, Condition(), progress=progress)

    def question(self, question_id: str) -> Question:
        """The question with this id. Raises ConfigError where the data set has none."""
        for question in self.dataset.questions:
            if question.id == question_id:
                return question
        known = ", ".join(question.id for question in self.dataset.questions[:5])
        raise ConfigError(f"{self.dataset.name} has no question {question_id!r}; its first ones are {known}")

    def search(self, query: str, top_k: int = 5) -> list[Hit]:
        """The `top_k` best passages for a query, best first."""
        return self.retriever.search([query], top_k)[0]

    def __repr__(self) -> str:
        passages, questions = len(self.dataset.corpus), len(self.dataset.questions)
        return (
            f"Lab({self.dataset.name!r}: {questions} questions, {passages} passages, {self.retriever.name}, "
            f"{self.config.llm['model']})"
        )

    def _named(self, methods: Sequence[Method | str] | Mapping[str, Method]) -> dict[str, Method]:
        if isinstance(methods, Mapping):
            return dict(methods)
        built = build_methods(self.config)
        if unknown := [method for method in methods if isinstance(method, str) and method not in built]:
            raise ConfigError(f"no method is called {unknown[0]!r}; there is {', '.join(built)}")
        return {
            method if isinstance(method, str) else unwrapped(method).__name__: built[method]
            if isinstance(method, str)
            else method
            for method in methods
        }

    def _questions(self, questions: Sequence[str] | int | None) -> tuple[Question, ...]:
        if questions is None or isinstance(questions, int):
            return self.dataset.questions[:questions]
        return tuple(self.question(question_id) for question_id in questions)


def open(dataset: str = "mini", *options: str, llm: str = "recorded") -> Lab:  # noqa: A001 - as rn.open
    """Open a data set of `conf/dataset` with its retriever and a model; `options` are those of the command line.

    For example `rn.open("hotpotqa", "limit=50", "llm.model=gpt-4o-mini", llm="openai")`. Raises ConfigError for an
    option that does not exist or does not fit, and DataError where the data set's file is missing or malformed.
    """
    config = load_config([f"dataset={dataset}", f"llm={llm}", *options])
    if len(config.dataset) > 1:
        raise ConfigError(f"{dataset}: a lab has one data set; open one for each")
    (data,) = build_datasets(config)
    return Lab(config, data, build_retriever(config, data.corpus))


def load(folder: str | Path) -> Run:
    """Read a run from its folder, for example `rn.load("runs/mini-...")`. Raises RecordError where it is malformed."""
    return load_run(folder)


def table(*runs: Run | Sequence[Run], baseline: str | None = "vanilla", clusters: bool = False) -> "ScoresTable":
    """Show scores of runs in %, with intervals; a star where the difference to `baseline` is significant.

    Example: `rn.table(run)`, or `rn.table([run0, run1])` for repeats, which are one result; runs of one data set with
    several models stand beside each other. With `clusters` questions that share gold passages are taken together.
    Without the baseline in every run nothing is compared.
    """
    from rag_notes.report.scores_table import ScoresTable  # noqa: PLC0415 - pandas loads slowly
    from rag_notes.report.tables import results  # noqa: PLC0415

    given = [run for each in runs for run in ([each] if isinstance(each, Run) else each)]
    return ScoresTable(results(given, baseline=_baseline(given, baseline), clusters=clusters))


def figure(*runs: Run, baseline: str | None = "vanilla", metrics: Sequence[str] | None = None) -> "NotebookFigure":
    """Draw scores of runs with intervals, a row of panels a data set; `metrics` are those of answers if none are named.

    Example: `rn.figure(run)`, or `rn.figure(run, other, metrics=["f1", "all_gold_seen"])`.
    """
    from rag_notes.report.figures import main_figure  # noqa: PLC0415 - matplotlib loads slowly
    from rag_notes.report.tables import ANSWER_METRICS, results  # noqa: PLC0415

    return main_figure(results(runs, baseline=_baseline(runs, baseline)), metrics=metrics or ANSWER_METRICS)


def trace(run: Run, method: str, question_id: str) -> "Trace":
    """Show what a method did on a question, step by step. Example: `rn.trace(run, "deepnote", "bridge-08")`.

    Raises KeyError where the run has no such answer.
    """
    from rag_notes.report.trace import Trace  # noqa: PLC0415

    return Trace(run.sample(method, question_id))


def compare(a: Run, b: Run, method_a: str | None = None, method_b: str | None = None) -> "Comparison":
    """Compare two runs of one data set, or two methods, question by question.

    Example: `rn.compare(run, run, "vanilla", "deepnote")`. Raises RecordError where nothing can be paired.
    """
    from rag_notes.report.compare import compare_runs  # noqa: PLC0415 - pandas loads slowly

    return compare_runs(a, b, method_a=method_a, method_b=method_b)


def _baseline(runs: Sequence[Run], baseline: str | None) -> str | None:
    return baseline if all(baseline in run.methods for run in runs) else None
