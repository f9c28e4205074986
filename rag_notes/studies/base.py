"""What every study has: its configuration, the runs that it made, and how a notebook shows them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import pandas as pd

from rag_notes.config import Config, ConfigError
from rag_notes.files import here
from rag_notes.report.cells import dataset_label
from rag_notes.report.figures import NotebookFigure, save_figure
from rag_notes.report.scores_table import readable
from rag_notes.report.tables import diagnostics, results
from rag_notes.running.records import Run
from rag_notes.running.run import label

RUNS_MIME = "application/vnd.rag-notes.runs+json"
"""The type of a study's output that says, for a program, how many answers it lacks."""

S = TypeVar("S", bound="Study")


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A study as it was run: the configuration, the options as they were given, and every run that was made for it."""

    config: Config
    overrides: Sequence[str]
    runs: list[Run]

    def overview(self) -> pd.DataFrame:
        """A row for each run: data set, condition, model, methods, answers of how many, errors, status."""
        return pd.DataFrame(
            [
                {
                    "data set": dataset_label(run.dataset),
                    "condition": str(run.info.condition),
                    "model": run.info.model,
                    "methods": ", ".join(run.methods),
                    "answers": f"{run.info.samples.done} of {run.info.samples.of}",
                    "errors": run.info.samples.errors,
                    "status": run.info.status,
                }
                for run in self.runs
            ]
        )

    @property
    def lacking(self) -> int:
        """How many answers failed or were not asked for, the run having stopped before."""
        progress = [run.info.samples for run in self.runs]
        return sum(run.of - run.done + run.errors for run in progress)

    def diagnostics(self) -> pd.DataFrame:
        """What went wrong in each run and what it took, as `rag_notes.report.scores_table.readable`."""
        return readable(diagnostics(self.runs))

    def results(self, runs: Sequence[Run] | None = None, *, baseline: str | None = "") -> pd.DataFrame:
        """What `rag_notes.report.tables.results` gives for these runs (all), with the study's own settings.

        `baseline` is another method to compare with than the configuration's; None compares nothing.
        """
        compared = self.config.baseline if baseline == "" else baseline
        return results(self.runs if runs is None else runs, baseline=compared, **self.clustered)

    @property
    def intervals(self) -> dict[str, Any]:
        """The settings of every interval and test."""
        return {"confidence": self.config.confidence, "resamples": self.config.resamples}

    @property
    def clustered(self) -> dict[str, Any]:
        """The same, of scores and counts of questions that may be clustered."""
        return self.intervals | {"clusters": self.config.clusters}

    def save(self, figure: NotebookFigure, data: pd.DataFrame, part: str = "") -> NotebookFigure:
        """Write a figure and the data behind it to the figures' folder, as `<study>-<part>-<label>`; returns it."""
        name = "-".join(piece for piece in (self.config.study.name, part, label(self.config)) if piece)
        save_figure(figure, data, here() / self.config.figures, name)
        return figure

    def __repr__(self) -> str:
        return f"{self.config.study.name}\n{self.overview().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return self.overview().to_html(index=False)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {RUNS_MIME: {"lacking": self.lacking}}  # text and HTML are those of the methods above


def once(table: Callable[[S], pd.DataFrame]) -> Callable[[S], pd.DataFrame]:
    """A table of a study that is worked out at its first use alone; each caller gets a copy."""
    name = f"_{table.__name__}"

    @wraps(table)
    def remembered(study: S) -> pd.DataFrame:
        made: dict[str, pd.DataFrame] = vars(study)
        if name not in made:
            made[name] = table(study)
        return made[name].copy()

    return remembered


def rn_options(
    options: Sequence[str] = (),
    *,
    dataset: str | Sequence[str] | None = None,
    llm: str | None = None,
    limit: int | None = None,
    retriever: str | None = None,
) -> list[str]:
    """The options of a notebook with those that it has a parameter of their own for, which stand behind and win.

    Raises ConfigError where one of them is of another type.
    """
    if isinstance(options, str) or not all(isinstance(option, str) for option in options):
        raise ConfigError(f'options: a list of texts is meant, such as ["limit=50"] (given: {options!r})')
    names = [dataset] if isinstance(dataset, str) else dataset or []
    if not all(isinstance(name, str) and name.isidentifier() for name in names):
        raise ConfigError(f'dataset: a name or a list of names is meant, such as ["mini", "asqa"] (given: {dataset!r})')
    for name, value, example in (("llm", llm, "openai"), ("retriever", retriever, "bge_base_en")):
        if not (value is None or (isinstance(value, str) and value.isidentifier())):
            raise ConfigError(f'{name}: one name is meant, such as "{example}" (given: {value!r})')
    if not (limit is None or (isinstance(limit, int) and limit > 0)):
        raise ConfigError(f"limit: a whole number of at least 1 is meant (given: {limit!r})")
    chosen = {"dataset": f"[{','.join(names)}]" if names else None, "llm": llm, "limit": limit, "retriever": retriever}
    return [*options, *(f"{name}={value}" for name, value in chosen.items() if value is not None)]
