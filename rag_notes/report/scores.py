"""Scores of runs as tables in Markdown, for pages and terminals."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.markdown import markdown
from rag_notes.report.scores_table import cell_text
from rag_notes.report.tables import EXPLAINED, METRIC_LABELS, results
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
    questions. Runs that annotate the answers of others are left out, and where a run lacks `baseline` nothing is
    compared. Raises InputError for a metric that no run has, and where there is no run.
    """
    scored = pooled({name: run for name, run in runs.items() if run.info.condition.annotates is None})
    if not scored:
        raise InputError("there are no runs with scores; make one with `rag-notes run`, or name run folders")
    tables = {
        name: results(
            [run],
            baseline=baseline if baseline in run.methods else None,
            confidence=confidence,
            resamples=resamples,
            clusters=clusters,
        )
        for name, run in scored.items()
    }
    known = [metric for metric in METRIC_LABELS if any(metric in set(table["metric"]) for table in tables.values())]
    if unknown := [metric for metric in metrics or [] if metric not in known]:
        raise InputError(f"no answer has the metric {unknown[0]!r}; there is {', '.join(known) or 'none'}")
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
