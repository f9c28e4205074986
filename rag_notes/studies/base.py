"""What every study has: `rn.study`, its configuration and runs, and the settings of its intervals and tests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Self

import pandas as pd
from matplotlib.figure import Figure

from rag_notes.config import Config, load_study
from rag_notes.files import here
from rag_notes.parts import ConfigError, call, check
from rag_notes.report.figures import save
from rag_notes.report.rows import described
from rag_notes.report.scores_table import readable
from rag_notes.report.tables import counts, diagnostics, results
from rag_notes.running.records import Run
from rag_notes.running.run import label, run_methods

RUNS_MIME = "application/vnd.rag-notes.runs+json"
"""The type of a study's output that tells `rag-notes reproduce` how many answers are missing."""

COMMON = ("dataset", "llm", "limit", "retriever")
"""The parameters of every study, which are options, too."""


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A study that has run: its configuration and every run that was made for it. A notebook shows its runs."""

    config: Config
    runs: list[Run]

    @classmethod
    async def run(cls, config: Config, *, progress: bool = True) -> Self:
        """Run every chosen method on every chosen data set. Raises as `rag_notes.running.run.run_methods`."""
        return cls(config, await run_methods(config, progress=progress))

    @property
    def intervals(self) -> dict[str, Any]:
        """The settings of every interval."""
        return {"confidence": self.config.confidence, "resamples": self.config.resamples}

    @property
    def tests(self) -> dict[str, Any]:
        """The settings of intervals and tests of questions that may be clustered."""
        return self.intervals | {"clusters": self.config.clusters}

    def frame(self) -> pd.DataFrame:
        """Return a row for each answer of every run, as `Run.frame`."""
        return pd.concat([run.frame() for run in self.runs], ignore_index=True)

    def table(self) -> pd.DataFrame:
        """Return the scores of all methods with intervals and tests against the baseline, as `results`."""
        return self.results(self.runs, self.config.baseline)

    def results(self, runs: Sequence[Run], baseline: str | None) -> pd.DataFrame:
        """Return the `results` of runs with the study's settings, each method `described`, in the order of families."""
        table = described(results(runs, baseline=baseline, **self.tests), runs)
        return table.sort_values(["dataset", "family"], kind="stable", ignore_index=True)

    def means(self, names: Sequence[str], answers: pd.DataFrame | None = None) -> pd.DataFrame:
        """Return the mean of each named column of the runs' frames, or of a table of answers, by method, as `counts`.

        A table of answers has the columns `dataset`, `method` and `question_id` beside those named.
        """
        runs = self.runs
        if answers is not None:
            keys = ["dataset", "method", "question_id"]
            runs = [
                replace(run, table=run.frame()[[*keys, "error", "cluster"]].merge(answers[[*keys, *names]], on=keys))
                for run in runs
            ]
        return described(counts(runs, names, **self.tests), runs)

    def diagnostics(self) -> pd.DataFrame:
        """Return what went wrong in each run, and what its answers took, a row for each method."""
        return readable(diagnostics(self.runs))

    def overview(self) -> pd.DataFrame:
        """Return a row for each run: data set, condition, model, methods, answers, missing answers and status."""
        rows = [
            {"data set": run.dataset, "condition": str(run.info.condition), "model": run.info.model}
            | {"methods": ", ".join(run.methods), "answers": len(frame)}
            | {"missing": run.info.dataset.questions * len(run.methods) - frame["error"].isna().sum()}
            | {"status": run.info.status}
            for run, frame in ((run, run.frame()) for run in self.runs)
        ]
        return pd.DataFrame(rows)

    def save(self, figure: Figure, table: pd.DataFrame, part: str = "") -> Figure:
        """Write a figure and its data to the folder of figures as `<study>-<part>-<data sets>-<model>`; return it."""
        name = "-".join(piece for piece in (self.config.study.name, part, label(self.config)) if piece)
        return save(figure, table, name, here() / self.config.figures)

    def __repr__(self) -> str:
        return f"{self.config.study.name}\n{self.overview().to_string(index=False)}"

    def _repr_html_(self) -> str:
        return self.overview().to_html(index=False)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {RUNS_MIME: {"missing": int(self.overview()["missing"].sum())}}  # beside text and HTML from above


async def study(name: str, /, *options: str, progress: bool = True, **parameters: Any) -> Any:
    """Run a study, a file of `rag_notes/studies`, with options as on the command line; return its `Study`.

    Every study has the parameters `dataset` (a name or a list of names), `llm`, `limit` (a number of questions of each
    data set) and `retriever`, which win over `options`; some have more, as their `run` says. Example:
    `await rn.study("cost", "llm.model=gpt-4o", dataset="hotpotqa", llm="openai", limit=100, metric="f1")`. Raises
    ConfigError naming a parameter that does not exist or does not fit, and as `rag_notes.running.run.run_methods`.
    """
    notebook = load_study(name).study.notebook
    if find_spec(f"rag_notes.studies.{name}") is None:
        raise ConfigError(f"study={name}: has no runs of its own; open {notebook}")
    common = {key: parameters.pop(key, None) for key in COMMON}
    if isinstance(common["dataset"], list):
        common["dataset"] = f"[{','.join(common['dataset'])}]" if common["dataset"] else None
    config = load_study(name, [*options, *(f"{key}={value}" for key, value in common.items() if value is not None)])
    settings = {"_target_": f"rag_notes.studies.{name}.run", "progress": progress, **parameters}
    check(name, settings, passed=1)
    return await call(settings, config)
