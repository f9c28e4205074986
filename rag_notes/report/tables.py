"""Tables of runs: scores with intervals and tests (`results`), what went wrong and what it cost (`diagnostics`)."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import pandas as pd

from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.metrics.stats import Interval, PairedDifference, holm, mean_interval, paired_difference
from rag_notes.running.records import Run
from rag_notes.running.repeats import pooled
from rag_notes.types import InputError

ANSWER_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit", "reject")
"""The metrics of an answer, in the order of every table and figure; a data set has those of its questions' tasks."""

RESULT_METRICS = ("em", "f1", "acc", "acc_raw", "yes_no_acc", "str_em", "str_hit", "reject")
"""The same as `results` has them: behind `acc` the papers' own containment, of strings that are not normalised."""

RETRIEVAL_METRICS = ("all_gold_first", "all_gold_seen", "answer_in_passages_seen")
"""The metrics of the passages of the first search (`_first`) and of all searches (`_seen`)."""

QUEST_METRICS = ("q_r", "t_p", "t_r", "t_f1", "q_gold")
"""The metrics of RAGQuestEval, which an answer has where it was put to it (`rag_notes.studies.quest_eval`)."""

METRIC_LABELS: Mapping[str, str] = {
    "em": "EM",
    "f1": "F1",
    "acc": "Acc.",
    "acc_raw": "Acc. (raw)",
    "yes_no_acc": "Yes/no acc.",
    "str_em": "str-EM",
    "str_hit": "str-hit",
    "reject": "Reject",
    "avg": "Avg.",
    "all_gold_first": "All gold, first search",
    "all_gold_seen": "All gold, all searches",
    "answer_in_passages_seen": "Answer found, all searches",
    "q_r": "Q-R",
    "t_p": "T-P",
    "t_r": "T-R",
    "t_f1": "T-F1",
    "q_gold": "Questions kept",
}
"""How tables and figures print a metric."""

EXPLAINED: Mapping[str, str] = {
    "clusters": "Intervals and tests are by clusters of questions that share gold passages.",
    "repeats": "Means over the repeats of a question first, then over questions; sd is the standard deviation of the "
    "repeats' means, always the share of questions that score 1 in each.",
}
"""What a column of `results` that is not always there means."""

_NOT_AVERAGED = ("reject", "acc_raw")  # of other questions than the rest, the unanswerable ones; a second acc
_NOT_RECORDED = "RecordingMissError"
_COUNTS_PER_QUESTION = (
    "searches",
    "steps",
    "distinct_passages",
    "calls",
    "prompt_tokens",
    "completion_tokens",
)


def results(
    runs: Sequence[Run],
    *,
    baseline: str | None = "vanilla",
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Return a row for each data set, method and metric: the mean with its interval and the test against the baseline.

    Scores lie between 0 and 1. `mean`, `low`, `high`, `interval` (how it was made) and `n` are of the questions
    answered without error. `difference` to `p`, `wins`, `ties` and `losses` compare the method with `baseline` on the
    `n_paired` questions that both answered without error; `p_holm` is corrected for the methods compared on one data
    set by one metric, and `significant` is p_holm < 1 - confidence. `avg`, given where a data set has two or more
    answer metrics, is the mean of their means without `reject` and `acc_raw`, and comes without interval and test. A
    method of which every question failed has its answer metrics with n = 0. Without `baseline` nothing is compared.

    Runs that differ in their repeat alone are one: a question's score is its mean over the repeats, and counts where
    all of them have one. Then there are the columns `repeats`, their number, `repeat_sd`, the standard deviation of
    their means, and `always`, the share of questions that score 1 in each. With `clusters` intervals and tests are
    those by clusters of questions that share gold passages (`gold_clusters`), and `clusters` is their number.

    `dataset` is the run's label, the data set's name with the condition, if there is one, and what tells it from
    another run of the same label: model, prompts or retriever. Raises ValueError where nothing of these does and they
    are no repeats, or a run lacks the baseline.
    """
    runs = list(pooled(dict(enumerate(runs))).values())
    names = _names(runs)
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of {min(repeated)!r}; make one table for each setting")
    rows: list[dict[str, Any]] = []
    for name, run in zip(names, runs, strict=True):
        if baseline is not None and baseline not in run.methods:
            raise InputError(f"baseline {baseline!r} is not in the run of {run.label!r}, which has {run.methods}")
        scores = _scores(run)
        family_of = partial(
            _family,
            name,
            scores=scores,
            repeats=[_scores(repeat) for repeat in run.repeats],
            clusters=gold_clusters(run.questions) if clusters else None,
            baseline=baseline,
            confidence=confidence,
            resamples=resamples,
        )
        answer, others = (
            [metric for metric in metrics if any(metric in of_method for of_method in scores.values())]
            for metrics in (RESULT_METRICS, (*RETRIEVAL_METRICS, *QUEST_METRICS))
        )
        averaged = [metric for metric in answer if metric not in _NOT_AVERAGED]
        means: dict[str, list[tuple[float, int]]] = {method: [] for method in run.methods}
        for metric in answer:
            family = family_of(metric=metric, methods=run.methods)
            rows += family
            for row in family if metric in averaged else []:
                means[row["method"]].append((row["mean"], row["n"]))
        if len(averaged) > 1:
            for method, values in means.items():
                mean = math.fsum(value for value, _ in values) / len(values)
                row = _row(name, method, "avg", baseline, confidence)
                rows.append(row | {"mean": mean, "n": min(n for _, n in values)})
        for metric in others:
            methods = [method for method in run.methods if metric in scores[method]]
            rows += family_of(metric=metric, methods=methods)
    counts = ("n", "n_paired", "wins", "ties", "losses")
    added = [*(_REPEATED if any(run.repeats for run in runs) else []), *(["clusters"] if clusters else [])]
    return pd.DataFrame(rows, columns=[*_COLUMNS, *added]).astype(
        dict.fromkeys(counts, "Int64") | {"significant": bool}
    )


def counts(
    runs: Sequence[Run],
    names: Sequence[str],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Return a row for each data set, method and count of a sample (`searches`, `calls`, `cost`, `seconds`, ...).

    Means a question with their bootstrap interval, over the `n` questions answered without error; the columns are the
    first ones of `results`, and repeats and clusters are as there. What a run does not know, such as a cost without a
    price, has no row.
    """
    rows: list[dict[str, Any]] = []
    runs = list(pooled(dict(enumerate(runs))).values())
    for label, run in zip(_names(runs), runs, strict=True):
        cluster_of = gold_clusters(run.questions) if clusters else {}
        known: dict[tuple[str, str], dict[str, float]] = {}
        for sample in run.samples:
            if sample.error is None:
                count = sample.counts
                tokens = count.prompt_tokens + count.completion_tokens
                found = {**sample.metrics, **asdict(count), "tokens": tokens, "seconds": run.seconds(sample)}
                for name in names:
                    if (value := found.get(name)) is not None:
                        known.setdefault((name, sample.method), {})[sample.question.id] = float(value)
        for name in names:
            for method in run.methods:
                if of_question := known.get((name, method)):
                    values = list(of_question.values())
                    interval = mean_interval(
                        values,
                        confidence=confidence,
                        resamples=resamples,
                        proportion=False,
                        clusters=[cluster_of[question_id] for question_id in of_question] if clusters else None,
                    )
                    row = {"dataset": label, "method": method, "metric": name, "mean": _mean(values)}
                    rows.append(row | _interval_fields(interval) | {"n": len(values)})
    return pd.DataFrame(rows, columns=_COLUMNS[:8])


def diagnostics(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each data set, repeat and method: what went wrong and what it took.

    Numbers of samples: `questions` run, `errors`, those of them that are `not_recorded`, and `empty` answers.
    Numbers of responses, summed over all questions:
    `parse_failures`, `empty_responses`, `truncated`. Means over the questions answered without error: `searches` to
    `completion_tokens` and `seconds` of model time. `cost` is their sum in US dollars. NaN where nothing is known,
    such as the cost without a price.
    """
    rows = []
    for name, run in zip(_names(runs, lambda run: f"repeat {run.info.repeat}"), runs, strict=True):
        for method in run.methods:
            samples = [replace(sample, trace=[]) for sample in run.of(method)]  # which may be large
            answered = [sample for sample in samples if sample.error is None]
            times = [math.nan if (time := run.seconds(sample)) is None else time for sample in answered]
            costs = [sample.metrics.get("cost", math.nan) for sample in answered]
            counted = [asdict(sample.counts) for sample in samples]
            counted_answered = [asdict(sample.counts) for sample in answered]
            rows.append(
                {
                    "dataset": name,
                    "method": method,
                    "questions": len(samples),
                    "errors": len(samples) - len(answered),
                    "not_recorded": [error.kind for sample in samples if (error := sample.error)].count(_NOT_RECORDED),
                    "empty": sum(not sample.answer.strip() for sample in answered),
                }
                | {
                    count: sum(counts[count] for counts in counted)
                    for count in ("parse_failures", "empty_responses", "truncated")
                }
                | {count: _mean([counts[count] for counts in counted_answered]) for count in _COUNTS_PER_QUESTION}
                | {"cost": math.fsum(costs) if costs else math.nan, "seconds": _mean(times)}
            )
    return pd.DataFrame(rows)


_COLUMNS = [
    *("dataset", "method", "metric", "mean", "low", "high", "interval", "n"),
    *("difference", "difference_low", "difference_high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("n_paired", "baseline", "confidence"),
]


# What tells runs of one label apart in a table.
_TELLING: Sequence[Callable[[Run], str]] = (
    lambda run: run.info.model,
    lambda run: f"prompts {run.info.prompt_set}",
    lambda run: str(run.info.retriever["name"]),
)

_REPEATED = ("repeats", "repeat_sd", "always")


def _names(runs: Sequence[Run], *further: Callable[[Run], str]) -> list[str]:
    """The runs' labels, each with what tells it from others of the same one: `_TELLING`, then `further`."""
    names = []
    for run in runs:
        same = [other for other in runs if other.label == run.label]
        telling = [tell(run) for tell in (*_TELLING, *further) if len({tell(other) for other in same}) > 1]
        names.append(", ".join([run.label, *telling]))
    return names


def _scores(run: Run) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by method, metric and question of the samples without error."""
    scores: dict[str, dict[str, dict[str, float]]] = {method: {} for method in run.methods}
    for sample in run.samples:
        if sample.error is None:
            for metric, value in sample.metrics.items():
                scores[sample.method].setdefault(metric, {})[sample.question.id] = value
    return scores


def _family(
    name: str,
    *,
    metric: str,
    methods: Sequence[str],
    scores: Mapping[str, Mapping[str, Mapping[str, float]]],
    repeats: Sequence[Mapping[str, Mapping[str, Mapping[str, float]]]],
    clusters: Mapping[str, str] | None,
    baseline: str | None,
    confidence: float,
    resamples: int,
) -> list[dict[str, Any]]:
    """The rows of one data set and metric, a method each, corrected for their number."""
    of_baseline = {} if baseline is None else scores[baseline].get(metric, {})
    rows = []
    for method in methods:
        of_method = scores[method].get(metric, {})
        row = _row(name, method, metric, baseline, confidence) | {"n": len(of_method)}
        if of_method:
            values = list(of_method.values())
            of_cluster = None if clusters is None else [clusters[question_id] for question_id in of_method]
            interval = mean_interval(values, confidence=confidence, resamples=resamples, clusters=of_cluster)
            row |= {"mean": _mean(values), "clusters": len(set(of_cluster or []))} | _interval_fields(interval)
            row |= _repeat_fields([[of[method][metric][id_] for id_ in of_method] for of in repeats])
        both = [question_id for question_id in of_baseline if question_id in of_method]
        if method != baseline and both:
            row |= _difference_fields(
                paired_difference(
                    [of_method[question_id] for question_id in both],
                    [of_baseline[question_id] for question_id in both],
                    confidence=confidence,
                    resamples=resamples,
                    clusters=None if clusters is None else [clusters[question_id] for question_id in both],
                )
            )
        rows.append(row)
    for row, p_holm in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row |= {"p_holm": p_holm, "significant": p_holm < 1 - confidence}
    return rows


def _row(name: str, method: str, metric: str, baseline: str | None, confidence: float) -> dict[str, Any]:
    """A row with nothing known but where it belongs."""
    return dict.fromkeys(_COLUMNS, math.nan) | {
        "dataset": name,
        "method": method,
        "metric": metric,
        "interval": "",
        "significant": False,
        "n_paired": 0,
        "baseline": baseline or "",
        "confidence": confidence,
    }


def _repeat_fields(scores: Sequence[Sequence[float]]) -> dict[str, Any]:
    """What a row says of the repeats, from their scores of the same questions."""
    if not scores:
        return {}
    always = [float(all(score == 1 for score in of_question)) for of_question in zip(*scores, strict=True)]
    means = [_mean(of_repeat) for of_repeat in scores]
    return {"repeats": len(scores), "repeat_sd": statistics.stdev(means), "always": _mean(always)}


def _interval_fields(interval: Interval) -> dict[str, Any]:
    return {"low": interval.low, "high": interval.high, "interval": interval.method}


def _difference_fields(difference: PairedDifference) -> dict[str, Any]:
    return {
        "difference": difference.mean,
        "difference_low": difference.low,
        "difference_high": difference.high,
        "p": difference.p,
        "wins": difference.wins,
        "ties": difference.ties,
        "losses": difference.losses,
        "n_paired": difference.n,
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
