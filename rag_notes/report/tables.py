"""Tables of runs, from their frames: scores with intervals and tests, mean counts, and what went wrong."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from rag_notes.methods.about import about_of, settings_of
from rag_notes.metrics.stats import holm, mean_interval, paired_difference
from rag_notes.report.cells import (
    ANSWER_METRICS,
    METRIC_LABELS,
    QUEST_METRICS,
    RETRIEVAL_METRICS,
)
from rag_notes.report.rows import FAMILIES, described
from rag_notes.report.scores_table import ScoresTable
from rag_notes.running.records import Run, pooled_frames
from rag_notes.types import InputError

__all__ = ["ANSWER_METRICS", "METRIC_LABELS", "QUEST_METRICS", "RETRIEVAL_METRICS", "ScoresTable", "counts"]

RESULT_METRICS = ("em", "f1", "acc", "acc_raw", "yes_no_acc", "str_em", "str_hit", "reject")
"""The metrics of answers in `results`: behind `acc` the papers' own containment, of strings that are not normalised."""

_AVERAGED = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit")  # not `reject`, which is of other questions
_COLUMNS = [
    *("dataset", "method", "metric", "mean", "low", "high", "interval", "n"),
    *("difference", "difference_low", "difference_high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("n_paired", "baseline", "confidence"),
]
_EMPTY: dict[str, Any] = {"p": math.nan, "n": 0, "n_paired": 0, "interval": "", "significant": False}
_INTERVALS: dict[str, Any] = {"confidence": 0.95, "resamples": 10_000}
_MEANS = ("searches", "steps", "distinct_passages", "calls", "prompt_tokens", "completion_tokens")
_DISTINGUISHING: Sequence[Callable[[Run], str]] = (  # settings that distinguish runs of one label
    lambda run: run.info.model,
    lambda run: f"prompts {run.info.prompt_set}",
    lambda run: str(run.info.retriever["name"]),
)
_SHORT = ("f1", "acc", "yes_no_acc", "str_em", "str_hit", "t_f1", "q_r", "em", "reject")  # by which a table is short

Frames = Sequence[tuple[str, Sequence[Run], pd.DataFrame]]


def results(
    runs: Sequence[Run],
    *,
    baseline: str | None = "vanilla",
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Return a row for each data set, method and metric: the mean with its interval and the test against the baseline.

    Scores lie between 0 and 1. `mean`, `low`, `high`, `interval` (the name of its method) and `n` are of the questions
    answered without error. `difference` to `p`, `wins`, `ties` and `losses` compare the method with `baseline` on the
    `n_paired` questions that both answered without error; `p_holm` is corrected for the methods compared on one data
    set by one metric, and `significant` is p_holm < 1 - confidence. `avg`, the mean of the means of two or more answer
    metrics without `reject` and `acc_raw`, has no interval and no test. A method of which every question failed has its
    answer metrics with n = 0. Without `baseline` nothing is compared.

    Runs that differ in their repeat alone are one: a question's score is its mean over the repeats, and counts where
    all of them have one. Then there are the columns `repeats`, their number, `repeat_sd`, the standard deviation of
    their means, and `always`, the share of questions that score 1 in each. With `clusters` intervals and tests are
    those by clusters of questions that share gold passages (`gold_clusters`), and `clusters` is their number.

    `dataset` is the run's label, the data set's name with the condition, if there is one, and model, prompts or
    retriever where these distinguish it from another run of the same label. Raises InputError where nothing of these
    does and they are no repeats, or a run lacks the baseline.
    """
    return _results(
        _named_frames(runs), baseline, {"confidence": confidence, "resamples": resamples}, clusters=clusters
    )


def counts(
    runs: Sequence[Run],
    names: Sequence[str],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Return a row for each data set, method and count: a column of a run's frame such as `searches`, `calls`, `cost`.

    Means a question with their bootstrap interval, over the `n` questions answered without error; the columns are the
    first ones of `results`, and repeats and clusters are as there. What a run does not know, such as a cost without a
    price, has no row.
    """
    rows: list[dict[str, Any]] = []
    for dataset, (run, *_), frame in _named_frames(runs):
        answered = frame[frame["error"].isna()]
        for name in (name for name in names if name in answered):
            for method in run.methods:
                part = answered[(answered["method"] == method) & answered[name].notna()]
                if not part.empty:
                    interval = mean_interval(
                        part[name].astype(float).tolist(),
                        confidence=confidence,
                        resamples=resamples,
                        proportion=False,
                        clusters=part["cluster"].tolist() if clusters else None,
                    )
                    mean = math.fsum(part[name]) / len(part)
                    values = (dataset, method, name, mean, *interval, len(part))
                    rows.append(dict(zip(_COLUMNS[:8], values, strict=True)))
    return pd.DataFrame(rows, columns=_COLUMNS[:8])


def diagnostics(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each data set, repeat and method: what went wrong and what it took.

    Numbers of questions: `questions` in all, `errors`, those of them that are `not_recorded`, and `empty` answers.
    Numbers of responses, summed over all questions: `parse_failures`, `empty_responses`, `truncated`. Means over the
    questions answered without error: `searches` to `completion_tokens` and `seconds` of model time. `cost` is their sum
    in US dollars. NaN where nothing is known, such as the cost without a price.
    """
    rows: list[dict[str, Any]] = []
    names = _names(runs, [*_DISTINGUISHING, lambda run: f"repeat {run.info.repeat}"])
    for name, run in zip(names, runs, strict=True):
        frame = run.frame()
        for method in run.methods:
            part = frame[frame["method"] == method]
            answered = part[part["error"].isna()]
            numbers = {"questions": len(part), "errors": len(part) - len(answered)}
            numbers["not_recorded"] = int((part["error_kind"] == "RecordingMissError").sum())
            numbers["empty"] = int((answered["answer"].str.strip() == "").sum())
            sums = {count: int(part[count].sum()) for count in ("parse_failures", "empty_responses", "truncated")}
            means = {count: answered[count].mean() for count in _MEANS}
            cost = answered["cost"].sum(skipna=False) if "cost" in answered and len(answered) else math.nan
            seconds = answered["seconds"].astype(float).mean(skipna=False)
            rows.append(
                {"dataset": name, "method": method} | numbers | sums | means | {"cost": cost, "seconds": seconds}
            )
    return pd.DataFrame(rows)


def scores_table(
    runs: Sequence[Run],
    *,
    baseline: str | None = "vanilla",
    metrics: Sequence[str] | None = None,
    by: str | None = None,
    clusters: bool = False,
    **intervals: Any,
) -> ScoresTable:
    """Show `results` of runs in %, methods by their family; missing answers are in the caption.

    Without `metrics` there are two of the answers and one of the passages. With `by`, a column of the runs' frame such
    as `type` or `hops`, each of its values has its own columns and tests. A baseline that a run lacks is left out.
    Further options are those of `results`. Raises InputError for a metric or column that no run has, and as `results`.
    """
    if not all(baseline in run.methods for run in runs):
        baseline = None
    frames = _named_frames(runs)
    if by is not None:
        if missing := [frame for _, _, frame in frames if by not in frame]:
            raise InputError(f"answers have no column {by!r}; there is {', '.join(missing[0].columns)}")
        frames = [
            (", ".join([name] * (len(frames) > 1) + [str(value)]), repeats, part)
            for name, repeats, frame in frames
            for value, part in frame.groupby(by, sort=False)
        ]
    table = _results(frames, baseline, _INTERVALS | intervals, clusters=clusters)
    available = [metric for metric in METRIC_LABELS if metric in set(table.loc[table["n"] > 0, "metric"])]
    if unknown := [metric for metric in metrics or () if metric not in available]:
        raise InputError(f"no answer has the metric {unknown[0]!r}; there is {', '.join(available) or 'none'}")
    if metrics is None:
        passages = [metric for metric in RETRIEVAL_METRICS if metric in available and metric.endswith("_seen")]
        answers = sorted(set(available) & set(_SHORT), key=_SHORT.index)
        metrics = answers[:1] if by else answers[:2] + passages[:1]
    return ScoresTable(described(table, runs), tuple(metrics), _missing(runs))


def methods_frame(methods: Mapping[str, Callable[..., Any]]) -> pd.DataFrame:
    """Return a row for each method, by family: name, label, source, and the most calls a question can take."""
    rows = []
    for name, method in methods.items():
        about = about_of(method)
        calls = "" if about.calls is None else about.calls(settings_of(method))
        rows.append([about.family, name, about.label, about.source, calls])
    frame = pd.DataFrame(rows, columns=["family", "method", "label", "source", "calls at most"])
    return frame.sort_values("family", key=lambda names: names.map([*FAMILIES].index), kind="stable", ignore_index=True)


def _missing(runs: Sequence[Run]) -> tuple[str, ...]:
    """A sentence for each method of which answers are missing, with the reason and what helps."""
    sentences = []
    for run in runs:
        frame = run.frame()
        for method in run.methods:
            part = frame[frame["method"] == method]
            failed = part[part["error"].notna()]
            if len(failed):
                recorded = failed["error_kind"] != "RecordingMissError"
                reason = str(failed["error"].iloc[0]) if recorded.any() else 'not recorded; use llm="openai"'
                where = f" on {run.label}" if len(runs) > 1 else ""
                sentences.append(f"{len(failed)} of {len(part)} answers of {method}{where} are missing: {reason}.")
    rest = len(sentences) - 3
    return (*sentences[:3], f"{rest} more methods lack answers, see the diagnostics.") if rest > 0 else tuple(sentences)


def _names(runs: Sequence[Run], settings: Sequence[Callable[[Run], str]] = _DISTINGUISHING) -> list[str]:
    """The runs' labels, each with the settings that distinguish it from others of the same one."""
    names = []
    for run in runs:
        same = [other for other in runs if other.label == run.label]
        differing = [text for text in settings if len({text(other) for other in same}) > 1]
        names.append(", ".join([run.label, *(text(run) for text in differing)]))
    return names


def _named_frames(runs: Sequence[Run]) -> Frames:
    """The names of runs, repeats as one, with the repeats and their frame."""
    pooled = pooled_frames(runs)
    names = _names([repeats[0] for repeats, _ in pooled])
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of {min(repeated)!r}; make one table for each setting")
    return [(name, repeats, frame) for name, (repeats, frame) in zip(names, pooled, strict=True)]


def _results(frames: Frames, baseline: str | None, intervals: Mapping[str, Any], *, clusters: bool) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for dataset, runs, frame in frames:
        methods = pd.Index(runs[0].methods)
        if baseline is not None and baseline not in methods:
            raise InputError(f"baseline {baseline!r} is not in the run of {dataset!r}, which has {[*methods]}")
        answered = frame[frame["error"].isna()] if len(frame) else frame
        parts = [answered, *(run.frame() for run in runs if len(runs) > 1)]
        cluster = frame.drop_duplicates("question_id").set_index("question_id")["cluster"] if clusters else None
        families: dict[str, list[dict[str, Any]]] = {}
        for metric in METRIC_LABELS:
            if metric not in answered or answered[metric].isna().all():
                continue
            wide = [part.pivot(index="question_id", columns="method", values=metric).astype(float) for part in parts]
            wide = [part.reindex(index=answered["question_id"].unique(), columns=methods) for part in wide]
            scored = methods if metric in RESULT_METRICS else methods[wide[0].notna().any()]
            families[metric] = [_row(wide, method, baseline, cluster, intervals) for method in scored]
            for row, p_holm in zip(families[metric], holm([row["p"] for row in families[metric]]), strict=True):
                row |= {"p_holm": p_holm, "significant": p_holm < 1 - intervals["confidence"]}
        averaged = [families[metric] for metric in families if metric in _AVERAGED]
        if len(averaged) > 1:
            families["avg"] = [
                _EMPTY
                | {"method": method[0]["method"], "n": min(row["n"] for row in method)}
                | {"mean": math.fsum(row.get("mean", math.nan) for row in method) / len(method)}
                for method in zip(*averaged, strict=True)
            ]
        head = {"dataset": dataset, "baseline": baseline or "", "confidence": intervals["confidence"]}
        for metric in sorted(families, key=[*METRIC_LABELS].index):
            rows += [head | {"metric": metric} | row for row in families[metric]]
    further = [name for name in ("repeats", "repeat_sd", "always", "clusters") if any(name in row for row in rows)]
    types = dict.fromkeys(("n", "n_paired", "wins", "ties", "losses"), "Int64") | {"significant": bool}
    return pd.DataFrame(rows, columns=[*_COLUMNS, *further]).astype(types)


def _row(
    wide: Sequence[pd.DataFrame],
    method: str,
    baseline: str | None,
    cluster: pd.Series | None,
    intervals: Mapping[str, Any],
) -> dict[str, Any]:
    """What `results` has of one method by one metric; `wide` has its scores, then those of each repeat."""

    def clusters_of(questions: pd.Index) -> list[str] | None:
        return None if cluster is None else cluster[questions].tolist()

    scores = wide[0][method].dropna()
    row: dict[str, Any] = _EMPTY | {"method": method, "n": len(scores)}
    if cluster is not None:
        row["clusters"] = cluster[scores.index].nunique()
    if scores.empty:
        return row
    low, high, interval = mean_interval(scores.tolist(), clusters=clusters_of(scores.index), **intervals)
    row |= {"mean": math.fsum(scores) / len(scores), "low": low, "high": high, "interval": interval}
    if len(wide) > 1:
        repeats = pd.DataFrame({number: part[method] for number, part in enumerate(wide[1:])}).loc[scores.index]
        sd = statistics.stdev(math.fsum(repeats[number]) / len(repeats) for number in repeats)
        row |= {"repeats": len(wide) - 1, "repeat_sd": sd, "always": float((repeats == 1).all(axis=1).mean())}
    pairs = wide[0][[method, baseline]].dropna() if baseline not in (None, method) else wide[0].iloc[:0]
    if not pairs.empty:
        first, second = (pairs[name].tolist() for name in (method, baseline))
        test = paired_difference(first, second, clusters=clusters_of(pairs.index), **intervals)
        row |= {"difference": test.mean, "difference_low": test.low, "difference_high": test.high, "p": test.p}
        row |= {"wins": test.wins, "ties": test.ties, "losses": test.losses, "n_paired": test.n}
    return row
