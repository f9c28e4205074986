"""Tables of runs, from their frames: scores with intervals and tests, mean counts, and what went wrong."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.methods.about import about_of, settings_of
from rag_notes.metrics.stats import holm, mean_interval, paired_difference
from rag_notes.report.rows import FAMILIES, described
from rag_notes.report.scores_table import (
    ANSWER_METRICS,
    METRIC_LABELS,
    QUEST_METRICS,
    RETRIEVAL_METRICS,
    ScoresTable,
    in_order,
)
from rag_notes.running.records import Run, pooled_frames
from rag_notes.types import InputError

__all__ = ["ANSWER_METRICS", "METRIC_LABELS", "QUEST_METRICS", "RETRIEVAL_METRICS", "ScoresTable", "counts"]

_COLUMNS = [
    *("dataset", "method", "metric", "mean", "low", "high", "interval", "n"),
    *("difference", "difference_low", "difference_high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("n_paired", "baseline", "confidence"),
]
_SUMS = ["parse_failures", "empty_responses", "truncated"]
_MEANS = ["searches", "steps", "distinct_passages", "calls", "prompt_tokens", "completion_tokens"]
_SHORT = ("f1", "acc", "yes_no_acc", "str_em", "str_hit", "t_f1", "q_r", "em", "reject")  # by which a table is short


def results(
    runs: Sequence[Run],
    *,
    baseline: str | None = "vanilla",
    by: str | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Return a row for each data set, method and metric: the mean with its interval and the test against the baseline.

    Scores lie between 0 and 1, of the `n` questions answered without error; `interval` names the interval's method.
    `difference` to `losses` compare the method with `baseline`, if any, on the `n_paired` questions that both answered;
    `p_holm` is corrected for the methods compared on one data set by one metric, and `significant` is p_holm < 1 -
    confidence. `avg`, the mean of two or more answer metrics but `reject` and `acc_raw`, has no interval and no test.

    Runs that differ in their repeat alone are one, a question's score being its mean over them: `repeats` is their
    number, `repeat_sd` the standard deviation of their means, `always` the share of questions that score 1 in each.
    With `clusters` intervals and tests are by clusters of questions that share gold passages; `clusters` counts them.

    `dataset` is the run's label, with the model, prompts or retriever that distinguish it from another run, or with
    each value of `by`, a column of the frames such as `type`. Raises InputError for two runs that nothing
    distinguishes, a run without the baseline, and an unknown column.
    """
    rows = []
    for dataset, repeats, frame in _named_frames(runs, by):
        methods = repeats[0].methods
        if baseline is not None and baseline not in methods:
            raise InputError(f"baseline {baseline!r} is not in the run of {dataset!r}, which has {methods}")
        answered = frame[frame["error"].isna()]
        metrics = [metric for metric in METRIC_LABELS if metric in answered and answered[metric].notna().any()]
        members = answered.drop_duplicates("question_id").set_index("question_id")["cluster"]
        columns = pd.MultiIndex.from_product([metrics, methods])
        scores, *each = [
            part.reindex(columns=["question_id", "method", *metrics])
            .pivot(index="question_id", columns="method")
            .reindex(members.index, columns=columns)
            .astype(float)
            for part in (answered, *(run.frame() for run in repeats if len(repeats) > 1))
        ]
        options: dict[str, Any] = {"confidence": confidence, "resamples": resamples}
        for metric, method in columns:
            if metric in (*ANSWER_METRICS, "acc_raw") or scores[metric, method].notna().any():
                reference = None if baseline in (None, method) else scores[metric, baseline]
                repeated = [table[metric, method] for table in each]
                row = _row(scores[metric, method], repeated, reference, members if clusters else None, options)
                rows.append({"dataset": dataset, "method": method, "metric": metric} | row)
    table = pd.DataFrame(rows, columns=[*dict.fromkeys([*_COLUMNS, *(name for row in rows for name in row)])])
    table = in_order(pd.concat([table, _averages(table)]), [*METRIC_LABELS]).reset_index(drop=True)
    table["p_holm"] = table.groupby(["dataset", "metric"])["p"].transform(holm)
    table = table.assign(significant=table["p_holm"] < 1 - confidence, baseline=baseline or "", confidence=confidence)
    return table.astype(dict.fromkeys(("n", "n_paired", "wins", "ties", "losses"), "Int64"))


def counts(runs: Sequence[Run], names: Sequence[str], *, clusters: bool = False, **intervals: Any) -> pd.DataFrame:
    """Return a row for each data set, method and count: a column of a run's frame such as `searches`, `calls`, `cost`.

    Means a question with their bootstrap interval, with the first columns and the options of `results`. What a run does
    not know, such as a cost without a price, has no row.
    """
    rows = []
    for dataset, _, frame in _named_frames(runs):
        answered = frame[frame["error"].isna()]
        long = answered.melt(["method", "cluster"], [name for name in names if name in frame], "metric")
        for (metric, method), part in long.dropna(subset="value").groupby(["metric", "method"], sort=False):
            values, members = part["value"].astype(float), part["cluster"].tolist() if clusters else None
            interval = mean_interval(values, proportion=False, clusters=members, **intervals)
            rows.append([dataset, method, metric, math.fsum(values) / len(values), *interval, len(values)])
    return pd.DataFrame(rows, columns=_COLUMNS[:8])


def diagnostics(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each data set, repeat and method: what went wrong and what it took.

    `questions`, `errors`, those of them that are `not_recorded`, and `empty` answers are numbers of questions;
    `parse_failures`, `empty_responses` and `truncated` of responses. `searches` to `completion_tokens` and `seconds` of
    model time are means over the questions answered without error, `cost` is their sum in US dollars. NaN: unknown.
    """
    rows = []
    for name, run in zip(_names(runs), runs, strict=True):
        for method, part in run.frame().groupby("method", sort=False):
            answered = part[part["error"].isna()]
            spent = answered.reindex(columns=["cost", "seconds"]).astype(float)
            row = {"dataset": name, "method": method, "questions": len(part), "errors": len(part) - len(answered)}
            row["not_recorded"] = (part["error_kind"] == "RecordingMissError").sum()
            row["empty"] = (answered["answer"].str.strip() == "").sum()
            row |= part[_SUMS].sum().astype(int).to_dict() | answered[_MEANS].mean().to_dict()
            row["cost"] = spent["cost"].sum(skipna=False, min_count=1)
            rows.append(row | {"seconds": spent["seconds"].mean(skipna=False)})
    return pd.DataFrame(rows)


def scores_table(
    runs: Sequence[Run],
    *,
    baseline: str | None = "vanilla",
    metrics: Sequence[str] | None = None,
    by: str | None = None,
    **options: Any,
) -> ScoresTable:
    """Show `results` of runs in %, methods by their family; missing answers are in the caption.

    Without `metrics` there are two of the answers and one of the passages, or with `by` one of the answers. A baseline
    that a run lacks is left out. Further options are those of `results`. Raises InputError for a metric that no run
    has, and as `results`.
    """
    everywhere = all(baseline in run.methods for run in runs)
    table = results(runs, baseline=baseline if everywhere else None, by=by, **options)
    available = [metric for metric in METRIC_LABELS if metric in set(table.loc[table["n"] > 0, "metric"])]
    if unknown := [metric for metric in metrics or () if metric not in available]:
        raise InputError(f"no answer has the metric {unknown[0]!r}; there is {', '.join(available) or 'none'}")
    if metrics is None:
        answers = [metric for metric in _SHORT if metric in available]
        passages = [metric for metric in RETRIEVAL_METRICS[1:] if metric in available]
        metrics = answers[:1] if by else answers[:2] + passages[:1]
    return ScoresTable(described(table, runs), metrics, _missing_answers(runs))


def methods_frame(methods: Mapping[str, Callable[..., Any]]) -> pd.DataFrame:
    """Return a row for each method, by family: name, label, source, and the most calls a question can take."""
    rows = []
    for name, method in sorted(methods.items(), key=lambda item: [*FAMILIES].index(about_of(item[1]).family)):
        about = about_of(method)
        calls = "" if about.calls is None else about.calls(settings_of(method))
        rows.append([about.family, name, about.label, about.source, calls])
    return pd.DataFrame(rows, columns=["family", "method", "label", "source", "calls at most"])


def _missing_answers(runs: Sequence[Run]) -> list[str]:
    """A sentence for each of the first methods of which answers are missing, with the reason and what helps."""
    notes = []
    for run in runs:
        where = f" on {run.label}" if len(runs) > 1 else ""
        for method, part in run.frame().groupby("method", sort=False):
            if len(failed := part[part["error"].notna()]):
                recorded = failed["error_kind"] != "RecordingMissError"
                reason = failed["error"].iloc[0] if recorded.any() else 'not recorded; use llm="openai"'
                notes.append(f"{len(failed)} of {len(part)} answers of {method}{where} are missing: {reason}.")
    more = [f"{len(notes) - 3} more methods lack answers, see the diagnostics."] if len(notes) > 3 else []
    return notes[:3] + more


def _names(runs: Sequence[Run]) -> list[str]:
    """The runs' labels, each with the settings that distinguish it from others of the same one."""
    labels, infos = pd.Series([run.label for run in runs]), [run.info for run in runs]
    settings = pd.DataFrame(
        [(info.model, f"prompts {info.prompt_set}", info.retriever["name"], f"repeat {info.repeat}") for info in infos]
    )
    differing = settings.where(settings.groupby(labels).transform("nunique") > 1).to_numpy()
    return [", ".join([label, *filter(pd.notna, row)]) for label, row in zip(labels, differing, strict=True)]


def _named_frames(runs: Sequence[Run], by: str | None = None) -> Iterator[tuple[str, Sequence[Run], pd.DataFrame]]:
    """The names of runs, repeats as one, with the repeats and their frame; with `by` a part for each of its values."""
    pooled = pooled_frames(runs)
    names = _names([repeats[0] for repeats, _ in pooled])
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of {min(repeated)!r}; make one table for each setting")
    for name, (repeats, frame) in zip(names, pooled, strict=True):
        if by is None:
            yield name, repeats, frame
        elif by not in frame:
            raise InputError(f"answers have no column {by!r}; there is {', '.join(frame.columns)}")
        else:
            for value, part in frame.groupby(by, sort=False):
                yield ", ".join([name] * (len(names) > 1) + [str(value)]), repeats, part


def _averages(table: pd.DataFrame) -> pd.DataFrame:
    """The rows `avg` of `results`; without `reject`, which is of other questions."""
    averaged = table[table["metric"].isin({*ANSWER_METRICS} - {"reject"})]
    averaged = averaged[averaged.groupby("dataset")["metric"].transform("nunique") > 1]
    methods = averaged.groupby(["dataset", "method"], sort=False)
    means = methods.agg(n=("n", "min"), mean=("mean", lambda means: means.mean(skipna=False)))
    return means.reset_index().assign(metric="avg", n_paired=0, interval="")


def _row(
    scores: "pd.Series[float]",
    repeats: "Sequence[pd.Series[float]]",
    reference: "pd.Series[float] | None",
    clusters: "pd.Series[str] | None",
    intervals: Mapping[str, Any],
) -> dict[str, Any]:
    """What `results` says of one method by one metric, from its scores by question, those of each repeat and others."""

    def options(answers: "pd.Series[float]") -> dict[str, Any]:
        return {**intervals, "clusters": None if clusters is None else clusters[answers.index].tolist()}

    scores = scores.dropna()
    row: dict[str, Any] = {"n": len(scores), "n_paired": 0, "interval": ""}
    if len(scores):
        low, high, interval = mean_interval(scores, **options(scores))
        row |= {"mean": math.fsum(scores) / len(scores), "low": low, "high": high, "interval": interval}
    if len(scores) and repeats:
        each = np.array([repeat[scores.index] for repeat in repeats])
        sd = statistics.stdev(math.fsum(repeat) / len(scores) for repeat in each)
        row |= {"repeats": len(each), "repeat_sd": sd, "always": (each == 1).all(axis=0).mean()}
    if clusters is not None:
        row["clusters"] = clusters[scores.index].nunique()
    if reference is not None and len(paired := scores[reference[scores.index].notna()]):
        test = paired_difference(paired, reference[paired.index], **options(paired))._asdict()
        names = {"mean": "difference", "low": "difference_low", "high": "difference_high", "n": "n_paired"}
        row |= {names.get(name, name): value for name, value in test.items()}
    return row
