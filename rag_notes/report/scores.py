"""Scores of runs as tables in Markdown, for pages and terminals."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from rag_notes.report.cells import dataset_label, interval_text, method_label
from rag_notes.report.markdown import markdown
from rag_notes.report.scores_table import cell_text, marks
from rag_notes.report.tables import EXPLAINED, METRIC_LABELS, results
from rag_notes.running.quest_scores import with_quest_scores
from rag_notes.running.records import Run
from rag_notes.running.repeats import pooled
from rag_notes.types import InputError


def scores_markdown(
    runs: Mapping[str, Run],
    metrics: Sequence[str] | None = None,
    baseline: str | None = "vanilla",
    confidence: float = 0.95,
    resamples: int = 10_000,
    *,
    clusters: bool = False,
) -> str:
    """Return a table for each run, by their names: a row a method, a column for each of `metrics` (all that it has).

    Above it stand data set, model, prompts and questions, and the run's name where these are those of another one, too.
    Repeats of a run are one table. Cells are those of `results_table`; a column's head has its largest number of
    questions. Answers have the scores of RAGQuestEval that an annotation among the runs gives them; annotations have
    no table, and where a run lacks `baseline` nothing is compared. Raises InputError for a metric that no run has, and
    where there is no run.
    """
    scored = _scored(runs)
    intervals: dict[str, Any] = {"confidence": confidence, "resamples": resamples, "clusters": clusters}
    tables = {
        name: results([run], baseline=baseline if baseline in run.methods else None, **intervals)
        for name, run in scored.items()
    }
    known = _known(tables.values(), metrics)
    titles = {name: _title(run) for name, run in scored.items()}
    times = Counter(titles.values())
    said = [text for column, text in EXPLAINED.items() if any(column in table for table in tables.values())]
    return "\n\n".join(
        [
            f"{titles[name]}{f', {name}' if times[titles[name]] > 1 else ''}\n\n{_wide(table, metrics or known)}"
            for name, table in tables.items()
        ]
        + said
    )


def differences_markdown(
    runs: Mapping[str, Run],
    metrics: Sequence[str] | None = None,
    baseline: str | None = "vanilla",
    confidence: float = 0.95,
    resamples: int = 10_000,
    *,
    clusters: bool = False,
) -> str:
    """Return one table of all runs: how many points each method is above or below `baseline`, by data set and metric.

    A cell is the difference with its interval, marked as in `ScoresTable`; the baseline's own row has its scores in %,
    and the head of a column the number of questions compared. Raises InputError for a run without the baseline, and as
    `scores_markdown`.
    """
    if baseline is None:
        raise InputError("there is no baseline to take differences to; name one with --baseline METHOD")
    scored = _scored(runs)
    table = results(
        list(scored.values()), baseline=baseline, confidence=confidence, resamples=resamples, clusters=clusters
    )
    known = _known([table], metrics)
    table = table[table["metric"].isin(metrics or known)]
    order = [baseline, *(name for name in dict.fromkeys(table["method"]) if name != baseline)]
    columns: dict[str, list[str]] = {"method": [method_label(name) for name in order]}
    for (dataset, metric), rows in table.groupby(["dataset", "metric"], sort=False):
        cells = {row["method"]: _difference(row, baseline) for row in rows.to_dict("records")}
        head = f"{dataset_label(str(dataset))}, {METRIC_LABELS[str(metric)]} (n = {rows['n'].max()})"
        columns[head] = [cells.get(name, "–") for name in order]
    models = dict.fromkeys(f"{run.info.model}, prompts {run.info.prompt_set}" for run in scored.values())
    above = f"Points above or below {method_label(baseline)}, whose row has its scores in %. {'; '.join(models)}"
    return f"{above}\n\n{markdown(pd.DataFrame(columns))}"


def _scored(runs: Mapping[str, Run]) -> dict[str, Run]:
    answered = {name: run for name, run in with_quest_scores(runs).items() if run.info.condition.annotates is None}
    scored = pooled(answered)
    if not scored:
        raise InputError("there are no runs with scores; make one with `rag-notes run`, or name run folders")
    return scored


def _known(tables: Iterable[pd.DataFrame], asked: Sequence[str] | None) -> list[str]:
    """The metrics of these tables in their order. Raises InputError where one that is asked for is not among them."""
    found = {metric for table in tables for metric in table["metric"]}
    known = [metric for metric in METRIC_LABELS if metric in found]
    if unknown := [metric for metric in asked or [] if metric not in known]:
        raise InputError(f"no answer has the metric {unknown[0]!r}; there is {', '.join(known) or 'none'}")
    return known


def _difference(row: Mapping[Any, Any], baseline: str) -> str:
    if row["method"] == baseline:
        return interval_text(row["mean"], row["low"], row["high"])
    shown = interval_text(row["difference"], row["difference_low"], row["difference_high"], spec="+.1f")
    return shown + marks(row)


def _title(run: Run) -> str:
    info = run.info
    return (
        f"{dataset_label(run.label)}, {info.model}, prompts {info.prompt_set}, {info.dataset.questions} questions"
        + (f", {len(run.repeats)} repeats" if run.repeats else "")
    )


def _wide(table: pd.DataFrame, metrics: Sequence[str]) -> str:
    methods = list(dict.fromkeys(table["method"]))
    columns = {"method": [method_label(method) for method in methods]}
    for metric in metrics:
        rows = table[table["metric"] == metric]
        if not rows.empty:
            most = int(rows["n"].max())
            cells = {row["method"]: cell_text(row, most) for row in rows.to_dict("records")}
            columns[f"{METRIC_LABELS[metric]} (n = {most})"] = [cells.get(method, "–") for method in methods]
    return markdown(pd.DataFrame(columns))
