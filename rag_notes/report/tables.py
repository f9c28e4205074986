"""Tables of runs: scores with intervals and tests (`results`), what went wrong and what it cost (`diagnostics`)."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from html import escape
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.metrics.stats import Interval, PairedDifference, holm, mean_interval, paired_difference
from rag_notes.report.cells import DISAGREE, disagree, interval_text, method_label
from rag_notes.running.records import Run
from rag_notes.running.repeats import pooled
from rag_notes.types import InputError

ANSWER_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit", "reject")
"""The metrics of an answer, in the order of every table and figure; a data set has those of its questions' tasks."""

RESULT_METRICS = ("em", "f1", "acc", "acc_raw", "yes_no_acc", "str_em", "str_hit", "reject")
"""The same as `results` has them: behind `acc` the papers' own containment, of strings that are not normalised."""

RETRIEVAL_METRICS = ("all_gold_first", "all_gold_seen", "answer_in_passages_seen")
"""The metrics of the passages of the first search (`_first`) and of all searches (`_seen`)."""

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
}
"""How tables and figures print a metric."""

EXPLAINED: Mapping[str, str] = {
    "clusters": "Intervals and tests are by clusters of questions that share gold passages.",
    "repeats": "Means over the repeats of a question first, then over questions; sd is the standard deviation of the "
    "repeats' means, always the share of questions that score 1 in each.",
}
"""What a column of `results` that is not always there means."""

# A caption is no wider than its table by itself: below a narrow or an empty one it would have a word a line.
_CAPTION_STYLE = "caption-side: bottom; text-align: left; padding-top: 0.6em; min-width: 40em"
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

    `dataset` is the run's label: the data set's name with the condition, if there is one. Raises ValueError where two
    runs have the same label and are no repeats, or a run lacks the baseline.
    """
    runs = list(pooled(dict(enumerate(runs))).values())
    names = [run.label for run in runs]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of {min(repeated)!r}; make one table for each model or setting")
    rows: list[dict[str, Any]] = []
    for run in runs:
        if baseline is not None and baseline not in run.methods:
            raise InputError(f"baseline {baseline!r} is not in the run of {run.label!r}, which has {run.methods}")
        scores = _scores(run)
        family_of = partial(
            _family,
            run,
            scores=scores,
            repeats=[_scores(repeat) for repeat in run.repeats],
            clusters=gold_clusters(run.questions) if clusters else None,
            baseline=baseline,
            confidence=confidence,
            resamples=resamples,
        )
        answer, retrieval = (
            [metric for metric in metrics if any(metric in of_method for of_method in scores.values())]
            for metrics in (RESULT_METRICS, RETRIEVAL_METRICS)
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
                row = _row(run, method, "avg", baseline, confidence)
                rows.append(row | {"mean": mean, "n": min(n for _, n in values)})
        for metric in retrieval:
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
    for run in pooled(dict(enumerate(runs))).values():
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
                    row = {"dataset": run.label, "method": method, "metric": name, "mean": _mean(values)}
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
    several = {label for label in (run.label for run in runs) if [run.label for run in runs].count(label) > 1}
    for run in runs:
        name = f"{run.label}, repeat {run.info.repeat}" if run.label in several else run.label
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


def results_table(table: pd.DataFrame) -> Styler:
    """Return what `results` gave as methods x (data set, metric) for display, in %; its caption says how to read it.

    A cell is `mean [low, high]`, with `*` where the difference to the baseline is significant, `†` where its interval
    and its test disagree, `sd ..., always ...` of repeats, and `n = ...` where it covers fewer questions than others of
    its column.
    """
    most = table.groupby(["dataset", "metric"])["n"].transform("max")
    cells = table.assign(
        cell=[cell_text(row, n) for row, n in zip(table.to_dict("records"), most, strict=True)],
        metric=[METRIC_LABELS.get(metric, metric) for metric in table["metric"]],
    )
    columns = list(dict.fromkeys(zip(cells["dataset"], cells["metric"], strict=True)))
    methods = list(dict.fromkeys(cells["method"]))
    by_place = {(row["method"], row["dataset"], row["metric"]): row["cell"] for row in cells.to_dict("records")}
    wide = pd.DataFrame(
        [[by_place.get((method, *column), "–") for column in columns] for method in methods],
        index=pd.Index(map(method_label, methods), name="method"),
        columns=pd.MultiIndex.from_arrays(
            [[dataset for dataset, _ in columns], [metric for _, metric in columns]], names=["data set", "metric"]
        ),
    )
    return styled(wide, "results", _caption(table)).format(_stacked)


def _stacked(cell: object) -> str:
    """The mean with the rest of its cell below it, so that more columns fit beside each other."""
    mean, _, rest = escape(str(cell)).partition(" ")
    return f"{mean}<br><small>{rest}</small>" if rest else mean


def styled(wide: pd.DataFrame, uuid: str, caption: str) -> Styler:
    """Return a table of texts for display, the same bytes each time: pandas would draw a `uuid` at random."""
    styler = Styler(wide, uuid=uuid, cell_ids=False, caption=caption).format(escape="html")
    styler = styler.format_index(escape="html").format_index(axis="columns", escape="html")
    return styler.set_table_styles(
        [
            {"selector": "caption", "props": _CAPTION_STYLE},
            {"selector": "td", "props": "white-space: nowrap; text-align: right"},
        ]
    )


_COLUMNS = [
    *("dataset", "method", "metric", "mean", "low", "high", "interval", "n"),
    *("difference", "difference_low", "difference_high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("n_paired", "baseline", "confidence"),
]


_REPEATED = ("repeats", "repeat_sd", "always")


def _scores(run: Run) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by method, metric and question of the samples without error."""
    scores: dict[str, dict[str, dict[str, float]]] = {method: {} for method in run.methods}
    for sample in run.samples:
        if sample.error is None:
            for metric, value in sample.metrics.items():
                scores[sample.method].setdefault(metric, {})[sample.question.id] = value
    return scores


def _family(
    run: Run,
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
        row = _row(run, method, metric, baseline, confidence) | {"n": len(of_method)}
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


def _row(run: Run, method: str, metric: str, baseline: str | None, confidence: float) -> dict[str, Any]:
    """A row with nothing known but where it belongs."""
    return dict.fromkeys(_COLUMNS, math.nan) | {
        "dataset": run.label,
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


def cell_text(row: Mapping[Any, Any], most: int) -> str:
    """A row of `results` as `mean [low, high]` in %, marked as `results_table` says; `most` is its column's n."""
    text = interval_text(row["mean"], row["low"], row["high"])
    star = "*" if row["significant"] else ""
    dagger = DISAGREE if disagreeing(row) else ""
    if not math.isnan(row.get("repeat_sd", math.nan)):
        dagger += f" sd {100 * row['repeat_sd']:.1f}, always {100 * row['always']:.1f}"
    return text + star + dagger + (f" n = {row['n']}" if row["n"] < most and text != "–" else "")


def disagreeing(row: Mapping[Any, Any]) -> bool:
    """Whether the interval of a row's difference and its test, before correction, disagree."""
    return disagree(row["difference_low"], row["difference_high"], row["p"], 1 - row["confidence"])


def _caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "No question was answered without error."
    answers = table[table["metric"].isin(ANSWER_METRICS)]
    counts = []
    for dataset, numbers in answers.groupby("dataset", sort=False)["n"]:
        least, most = numbers.min(), numbers.max()
        counts.append(f"{dataset} {most}" if least == most else f"{dataset} {least} to {most}")
    level, baseline = table["confidence"].iloc[0], table["baseline"].iloc[0]
    parts = [
        f"Mean in % with its {100 * level:g} % interval (Wilson's where every score is 0 or 1, otherwise the BCa "
        f"bootstrap's) over the questions answered without error; n: {', '.join(counts)}."
    ]
    parts += [text for column, text in EXPLAINED.items() if column in table]
    if baseline:
        parts.append(
            f"* differs from {baseline} with p < {1 - level:.2g} (two-sided paired sign-flip permutation test, "
            "Holm-corrected for the methods of a column)."
        )
    if any(disagreeing(row) for row in table.to_dict("records")):
        parts.append(
            f"{DISAGREE} the bootstrap interval of the difference and this test disagree about 0 (before correction): "
            "of few questions, or few that differ, the interval is too narrow; the test decides."
        )
    return " ".join(parts)
