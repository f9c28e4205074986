"""What every study has: `rn.study`, its configuration and runs, and the settings of its intervals and tests."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Annotated, Any

import pandas as pd
from matplotlib.figure import Figure
from pydantic import BeforeValidator, ConfigDict, StringConstraints, ValidationError, create_model

from rag_notes.config import Config, ConfigError, load_study
from rag_notes.files import here
from rag_notes.options import did_you_mean
from rag_notes.report.figures import save
from rag_notes.report.rows import described
from rag_notes.report.scores_table import readable
from rag_notes.report.tables import counts, diagnostics, results
from rag_notes.running.records import Run
from rag_notes.running.run import label
from rag_notes.types import Positive

RUNS_MIME = "application/vnd.rag-notes.runs+json"
"""The type of a study's output that tells `rag-notes reproduce` how many answers are missing."""

_STRICT = ConfigDict(extra="forbid", strict=True)
_Name = Annotated[str, StringConstraints(pattern=r"^\w+$")]
_Names = Annotated[list[_Name] | None, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
_COMMON = {"dataset": (_Names, None), "limit": (Positive | None, None)} | dict.fromkeys(
    ("llm", "retriever"), (_Name | None, None)
)


@dataclass(frozen=True, eq=False, repr=False)
class Study:
    """A study that has run: its configuration and every run that was made for it. A notebook shows its runs."""

    config: Config
    runs: list[Run]

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

    def means(self, answers: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
        """Return the mean of each named column of a table of answers with its interval, by method, as `counts`."""
        keys = ["dataset", "method", "question_id"]
        frames = [
            run.frame()[[*keys, "error", "cluster"]].merge(answers[[*keys, *names]], on=keys) for run in self.runs
        ]
        runs = [replace(run, table=frame) for run, frame in zip(self.runs, frames, strict=True)]
        return described(counts(runs, names, **self.tests), runs)

    def diagnostics(self) -> pd.DataFrame:
        """Return what went wrong in each run, and what its answers took, a row for each method."""
        return readable(diagnostics(self.runs))

    def overview(self) -> pd.DataFrame:
        """Return a row for each run: data set, condition, model, methods, answers, missing answers and status."""
        rows = [
            {"data set": run.dataset, "condition": str(run.info.condition), "model": run.info.model}
            | {"methods": ", ".join(run.methods), "answers": len(run.frame()), "missing": missing_answers(run)}
            | {"status": run.info.status}
            for run in self.runs
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
        return {RUNS_MIME: {"missing": sum(map(missing_answers, self.runs))}}  # beside text and HTML from above


async def study(name: str, /, *options: str, progress: bool = True, **parameters: Any) -> Any:
    """Run a study, a file of `rag_notes/studies`, with options as on the command line; return its `Study`.

    Every study has the parameters `dataset` (a name or a list of names), `llm`, `limit` (a number of questions of each
    data set) and `retriever`, which win over `options`; some have more, as their `run` says. Example:
    `await rn.study("cost", "llm.model=gpt-4o", dataset="hotpotqa", llm="openai", limit=100, metric="f1")`. Raises
    ConfigError naming a parameter that does not exist or does not fit, and as `rag_notes.running.run.run_methods`.
    """
    if find_spec(f"rag_notes.studies.{load_study(name).study.name}") is None:
        raise ConfigError(f"study={name}: has no runs of its own; open {load_study(name).study.notebook}")
    run = import_module(f"rag_notes.studies.{name}").run
    further = {key: (value.annotation, value.default) for key, value in signature(run).parameters.items()}
    fields: Any = _COMMON | {key: field for key, field in further.items() if key not in ("config", "progress")}
    try:
        checked = dict(create_model("Parameters", __config__=_STRICT, **fields)(**parameters))
    except ValidationError as error:
        problem = error.errors()[0]
        text = f"{problem['msg']} (given: {problem['input']!r})"
        if problem["type"] == "extra_forbidden":
            text = f"no such parameter{did_you_mean(str(problem['loc'][0]), fields)}; there is {', '.join(fields)}"
        raise ConfigError(f"{problem['loc'][0]}: {text}") from None
    common = {key: checked.pop(key) for key in _COMMON}
    common["dataset"] = f"[{','.join(common['dataset'])}]" if common["dataset"] else None
    config = load_study(name, [*options, *(f"{key}={value}" for key, value in common.items() if value is not None)])
    return await run(config, progress=progress, **checked)


def missing_answers(run: Run) -> int:
    """Count the answers of a run that failed or that it stopped before."""
    table = run.frame()
    failed = int(table["error"].notna().sum()) if len(table) else 0
    return run.info.dataset.questions * len(run.methods) - len(table) + failed
