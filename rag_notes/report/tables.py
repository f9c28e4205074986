"""Tables of runs: scores with intervals and tests (`results`), what went wrong and what it cost (`diagnostics`)."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.files import write_atomically
from rag_notes.llm.errors import encodable
from rag_notes.metrics.stats import Interval, PairedDifference, holm, mean_interval, paired_difference
from rag_notes.report.cells import DISAGREE, disagree, interval_text, method_label
from rag_notes.running.records import Run
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

# A caption is no wider than its table by itself: below a narrow or an empty one it would have a word a line.
_CAPTION_STYLE = "caption-side: bottom; text-align: left; padding-top: 0.6em; min-width: 40em"
_NOT_AVERAGED = ("reject", "acc_raw")  # of other questions than the rest, the unanswerable ones; a second acc
_NOT_RECORDED = "RecordingMissError"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the beginning of one
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
_COUNTS_PER_QUESTION = (
    "searches",
    "steps",
    "distinct_passages",
    "calls",
    "prompt_tokens",
    "completion_tokens",
)


def results(
    runs: Sequence[Run], *, baseline: str | None = "vanilla", confidence: float = 0.95, resamples: int = 10_000
) -> pd.DataFrame:
    """Return a row for each data set, method and metric: the mean with its interval and the test against the baseline.

    Scores lie between 0 and 1. `mean`, `low`, `high`, `interval` (how it was made) and `n` are of the questions
    answered without error. `difference` to `p`, `wins`, `ties` and `losses` compare the method with `baseline` on the
    `n_paired` questions that both answered without error; `p_holm` is corrected for the methods compared on one data
    set by one metric, and `significant` is p_holm < 1 - confidence. `avg`, given where a data set has two or more
    answer metrics, is the mean of their means without `reject` and `acc_raw`, and comes without interval and test. A
    method of which every question failed has its answer metrics with n = 0. Without `baseline` nothing is compared.

    `dataset` is the run's label: the data set's name with the condition, if there is one. Raises ValueError where two
    runs have the same label, or a run lacks the baseline.
    """
    names = [run.label for run in runs]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise InputError(f"two runs of {min(repeated)!r}; make one table for each model or setting")
    rows: list[dict[str, Any]] = []
    for run in runs:
        if baseline is not None and baseline not in run.methods:
            raise InputError(f"baseline {baseline!r} is not in the run of {run.label!r}, which has {run.methods}")
        scores = _scores(run)
        family_of = partial(_family, run, scores=scores, baseline=baseline, confidence=confidence, resamples=resamples)
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
    return pd.DataFrame(rows, columns=_COLUMNS).astype(dict.fromkeys(counts, "Int64") | {"significant": bool})


def counts(
    runs: Sequence[Run], names: Sequence[str], *, confidence: float = 0.95, resamples: int = 10_000
) -> pd.DataFrame:
    """Return a row for each data set, method and count of a sample (`searches`, `calls`, `cost`, `seconds`, ...).

    Means a question with their bootstrap interval, over the `n` questions answered without error; the columns are the
    first ones of `results`. What a run does not know, such as a cost without a price, has no row.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        known: dict[tuple[str, str], list[float]] = {}
        for sample in run.samples:
            if sample.error is None:
                found = {**sample.metrics, **asdict(sample.counts), "seconds": run.seconds(sample)}
                for name in names:
                    if (value := found.get(name)) is not None:
                        known.setdefault((name, sample.method), []).append(float(value))
        for name in names:
            for method in run.methods:
                if values := known.get((name, method)):
                    interval = mean_interval(values, confidence=confidence, resamples=resamples, proportion=False)
                    row = {"dataset": run.label, "method": method, "metric": name, "mean": _mean(values)}
                    rows.append(row | _interval_fields(interval) | {"n": len(values)})
    return pd.DataFrame(rows, columns=_COLUMNS[:8])


def diagnostics(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a row for each data set and method: what went wrong and what it took.

    Numbers of samples: `questions` run, `errors`, those of them that are `not_recorded`, and `empty` answers.
    Numbers of responses, summed over all questions:
    `parse_failures`, `empty_responses`, `truncated`. Means over the questions answered without error: `searches` to
    `completion_tokens` and `seconds` of model time. `cost` is their sum in US dollars. NaN where nothing is known,
    such as the cost without a price.
    """
    rows = []
    for run in runs:
        for method in run.methods:
            samples = [replace(sample, trace=[]) for sample in run.of(method)]  # which may be large
            answered = [sample for sample in samples if sample.error is None]
            times = [math.nan if (time := run.seconds(sample)) is None else time for sample in answered]
            costs = [sample.metrics.get("cost", math.nan) for sample in answered]
            counted = [asdict(sample.counts) for sample in samples]
            counted_answered = [asdict(sample.counts) for sample in answered]
            rows.append(
                {
                    "dataset": run.label,
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
    and its test disagree, and `n = ...` where it covers fewer questions than others of its column.
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


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table without its index, numbers to six significant digits: the same table gives the same bytes.

    A text that a spreadsheet would take for a formula gets an apostrophe in front; one that is a number stays.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    harmless = frame.rename(columns=_no_formula)
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if any(_is_formula(cell) for cell in column):  # the others keep their type to the bit
            harmless.isetitem(place, [_no_formula(cell) for cell in column])
    write_atomically(path, encodable(harmless.to_csv(index=False, float_format="%.6g", lineterminator="\n")))
    return path


def _is_formula(cell: object) -> bool:
    return isinstance(cell, str) and cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)


def _no_formula(cell: Any) -> Any:
    return f"'{cell}" if _is_formula(cell) else cell


_COLUMNS = [
    *("dataset", "method", "metric", "mean", "low", "high", "interval", "n"),
    *("difference", "difference_low", "difference_high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("n_paired", "baseline", "confidence"),
]


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
            interval = mean_interval(values, confidence=confidence, resamples=resamples)
            row |= {"mean": _mean(values)} | _interval_fields(interval)
        both = [question_id for question_id in of_baseline if question_id in of_method]
        if method != baseline and both:
            row |= _difference_fields(
                paired_difference(
                    [of_method[question_id] for question_id in both],
                    [of_baseline[question_id] for question_id in both],
                    confidence=confidence,
                    resamples=resamples,
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
