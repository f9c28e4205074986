"""Two runs, or two methods of one run, question by question: what differs, by how much, and where."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pandas as pd

from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.metrics.stats import holm, paired_difference, smallest_detectable
from rag_notes.report.cells import dataset_label, interval_text, method_label
from rag_notes.report.tables import ANSWER_METRICS, METRIC_LABELS, RETRIEVAL_METRICS
from rag_notes.running.correctness import correctness
from rag_notes.running.records import IMPORTED, RecordError, Run, Sample

COSTS = ("searches", "distinct_passages", "calls", "prompt_tokens", "completion_tokens")
"""The counts that are compared beside the metrics; less is better."""

Change = Literal["won", "lost", "other"]

CHANGES: Mapping[Change, str] = {
    "won": "right only in B",
    "lost": "right only in A",
    "other": "scored differently, neither or both right",
}
"""How the scores of a question may differ between the two sides."""

_COLUMNS = [
    *("method_a", "method_b", "kind", "metric", "n", "mean_a", "mean_b"),
    *("difference", "low", "high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("smallest_detectable", "confidence"),
]


@dataclass(frozen=True, slots=True)
class Matched:
    """A question that both sides answered without error."""

    a: Sample
    b: Sample

    @property
    def id(self) -> str:
        """The question's id."""
        return self.a.question.id

    @property
    def change(self) -> Change | None:
        """How the scores of the answers differ; None where they do not."""
        before, after = correctness(self.a), correctness(self.b)
        if (before == "right") != (after == "right"):
            return "won" if after == "right" else "lost"
        scores = [[sample.metrics.get(metric) for metric in ANSWER_METRICS] for sample in (self.a, self.b)]
        return "other" if before != after or scores[0] != scores[1] else None


@dataclass(frozen=True, slots=True)
class Pair:
    """One method of A beside one of B: the questions they share, and those left out (ids by reason)."""

    method_a: str
    method_b: str
    matched: list[Matched]
    left_out: dict[str, list[str]]

    @property
    def name(self) -> str:
        """The method, or both."""
        return " → ".join(dict.fromkeys(map(method_label, (self.method_a, self.method_b))))

    def differing(self, change: Change | None = None) -> list[Matched]:
        """The questions on which the two differ in score, in their order; those of one change only if it is named."""
        return [both for both in self.matched if both.change and change in (None, both.change)]

    def one_sided(self) -> dict[str, list[str]]:
        """The metrics that only the answers of one side have, by side: they are not compared."""
        of_a = {metric for both in self.matched for metric in both.a.metrics}
        of_b = {metric for both in self.matched for metric in both.b.metrics}
        sides = {
            side: [metric for metric in (*ANSWER_METRICS, *RETRIEVAL_METRICS) if metric in only]
            for side, only in (("A", of_a - of_b), ("B", of_b - of_a))
        }
        return {side: metrics for side, metrics in sides.items() if metrics}


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Two runs side by side. All differences are B - A; `table` is what `compare_runs` says."""

    run_a: Run
    run_b: Run
    names: tuple[str, str]
    pairs: list[Pair]
    table: pd.DataFrame

    def rows(self, pair: Pair) -> list[dict[Any, Any]]:
        """The rows of the table of one pair of methods."""
        of_pair = (self.table["method_a"] == pair.method_a) & (self.table["method_b"] == pair.method_b)
        return self.table[of_pair].to_dict("records")

    def all_equal(self, pair: Pair) -> bool:
        """Whether two methods have the same value of every metric and count on every question."""
        return all(row["ties"] == row["n"] for row in self.rows(pair))

    def settings(self) -> list[tuple[str, str, str]]:
        """Name, value in A and value in B of every setting, prompt and version that differs ("–": it has none)."""
        sides = [_settings(run, side, self.pairs) for run, side in ((self.run_a, "method_a"), (self.run_b, "method_b"))]
        names = dict.fromkeys([*sides[0], *sides[1]])
        values = [(name, sides[0].get(name, "–"), sides[1].get(name, "–")) for name in names]
        return [(name, a, b) for name, a, b in values if a != b]


def compare_runs(
    run_a: Run,
    run_b: Run,
    *,
    method_a: str | None = None,
    method_b: str | None = None,
    names: tuple[str, str] = ("A", "B"),
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> Comparison:
    """Compare two runs of one data set on the questions that both have: method by method, or the methods named.

    Without names every method of both runs is compared with itself; one name stands for both sides. Where one was read
    from another program's file, all methods are compared with its own, by the answers alone. Questions match by
    id, text and gold answers; those that do not, and those that failed, are left out and listed.

    The table has a row for each pair of methods and metric. `kind` is answer or retrieval (scores between 0 and 1) or
    cost (COSTS, a number a question). The means are those of the `n` questions compared, `difference` is B - A with
    interval and p as in `paired_difference`, `p_holm` is corrected for the pairs compared by one metric, and
    `significant` is p_holm < 1 - confidence. `wins`, `ties` and `losses` count the questions on which B's value is
    higher, equal and lower. `smallest_detectable` is the difference that `n` questions spread like these show with 80 %
    power at alpha .05 (NaN where the differences have no spread).

    With `clusters` interval and test are by clusters of questions that share gold passages.

    Raises RecordError for different data sets, no method or no question in common, a method that a run lacks, and a
    method that would be compared with itself because both runs are the same object.
    """
    if run_a.label != run_b.label:
        raise RecordError(
            f"{names[0]} is of data set {run_a.label!r} and {names[1]} of {run_b.label!r}: "
            "only runs of the same data set can be compared"
        )
    methods = _methods(run_a, run_b, method_a, method_b, names)
    pairs = [match(run_a, run_b, *of_pair) for of_pair in methods]
    for pair in pairs:
        if not pair.matched:
            raise RecordError(_nothing_in_common(pair, names))
    rows: list[dict[str, Any]] = []
    costs = () if IMPORTED in (run_a.info.status, run_b.info.status) else COSTS
    for kind, metrics in (("answer", ANSWER_METRICS), ("retrieval", RETRIEVAL_METRICS), ("cost", costs)):
        for metric in metrics:
            family = [
                row for pair in pairs if (row := _row(pair, kind, metric, confidence, resamples, clusters=clusters))
            ]
            for row, p_holm in zip(family, holm([row["p"] for row in family]), strict=True):
                rows.append(row | {"p_holm": p_holm, "significant": p_holm < 1 - confidence})
    return Comparison(run_a, run_b, names, pairs, pd.DataFrame(rows, columns=_COLUMNS))


def differences(table: pd.DataFrame, names: tuple[str, str], by: Sequence[str] = ("dataset",)) -> pd.DataFrame:
    """Rows of `compare_runs`, to which the columns `by` were added, as they are shown: scores in %, costs a question.

    The means of both sides stand under `names`; a star is a significant difference.
    """
    rows = []
    if "dataset" in by:
        table = table.assign(dataset=table["dataset"].map(dataset_label))
    for row in table.to_dict("records"):
        scale = 1 if row["kind"] == "cost" else 100
        rows.append(
            {name.replace("dataset", "data set").replace("_", " "): row[name] for name in by}
            | {
                "method": method_label(row["method_a"]),
                "metric": METRIC_LABELS.get(row["metric"], row["metric"].replace("_", " ")),
                "n": row["n"],
                names[0]: f"{scale * row['mean_a']:.1f}",
                names[1]: f"{scale * row['mean_b']:.1f}",
                "difference": interval_text(row["difference"], row["low"], row["high"], scale=scale)
                + "*" * bool(row["significant"]),
            }
        )
    return pd.DataFrame(rows)


def match(run_a: Run, run_b: Run, method_a: str, method_b: str) -> Pair:
    """Pair the answers of two methods by question; what cannot be compared is left out, by reason."""
    a, b = _by_question(run_a, method_a), _by_question(run_b, method_b)
    matched: list[Matched] = []
    left_out: dict[str, list[str]] = {}
    for question_id in dict.fromkeys([*a, *b]):
        if question_id not in b:
            left_out.setdefault("only in A", []).append(question_id)
        elif question_id not in a:
            left_out.setdefault("only in B", []).append(question_id)
        elif reason := _mismatch(a[question_id], b[question_id]):
            left_out.setdefault(reason, []).append(question_id)
        else:
            matched.append(Matched(a[question_id], b[question_id]))
    return Pair(method_a, method_b, matched, left_out)


def _methods(
    run_a: Run, run_b: Run, method_a: str | None, method_b: str | None, names: tuple[str, str]
) -> list[tuple[str, str]]:
    if IMPORTED in (run_a.info.status, run_b.info.status):
        chosen = [
            [method for method in run.methods if name in (None, method)]
            for run, name in ((run_a, method_a), (run_b, method_b))
        ]
        if not all(chosen):
            raise RecordError(
                f"{names[0]} has {', '.join(run_a.methods)} and {names[1]} {', '.join(run_b.methods)}; name one of "
                "each with --method-a and --method-b, or none"
            )
        return [(a, b) for a in chosen[0] for b in chosen[1]]
    method_a, method_b = method_a or method_b, method_b or method_a
    if method_a is None or method_b is None:
        shared = [(method, method) for method in run_a.methods if method in run_b.methods]
        if run_a is run_b:
            raise RecordError(
                f"{names[0]} would be compared with itself; name two of its methods with --method-a and --method-b: "
                f"{', '.join(run_a.methods)}"
            )
        if not shared:
            raise RecordError(
                f"{names[0]} has {', '.join(run_a.methods)} and {names[1]} {', '.join(run_b.methods)}: no method in "
                "common; name one of each with --method-a and --method-b"
            )
        return shared
    for run, method, name in ((run_a, method_a, names[0]), (run_b, method_b, names[1])):
        if method not in run.methods:
            raise RecordError(f"{name} has no method {method!r}; it has {', '.join(run.methods)}")
    if run_a is run_b and method_a == method_b:
        raise RecordError(f"{method_a} of {names[0]} would be compared with itself; name another method or run")
    return [(method_a, method_b)]


def _by_question(run: Run, method: str) -> dict[str, Sample]:
    return {sample.question.id: sample for sample in run.of(method)}


def _mismatch(a: Sample, b: Sample) -> str:
    """Why the samples of a question id cannot be compared; empty where they can."""
    if a.question.question != b.question.question:
        return "another question under the same id"
    if a.gold != b.gold:
        return "other gold answers"
    failed = [side for side, sample in (("A", a), ("B", b)) if sample.error is not None]
    return f"failed in {' and '.join(failed)}" if failed else ""


def _nothing_in_common(pair: Pair, names: tuple[str, str]) -> str:
    counts = ", ".join(f"{len(ids)} {reason}" for reason, ids in pair.left_out.items()) or "neither has any"
    return (
        f"no question was answered by both {pair.method_a} of {names[0]} (A) and {pair.method_b} of {names[1]} (B): "
        f"{counts}"
    )


def _row(
    pair: Pair, kind: str, metric: str, confidence: float, resamples: int, *, clusters: bool
) -> dict[str, Any] | None:
    """The comparison by one metric of the questions that have it on both sides; None where there are none."""
    numbers = [
        [float(getattr(sample.counts, metric)) if kind == "cost" else sample.metrics.get(metric) for sample in (a, b)]
        for a, b in ((both.a, both.b) for both in pair.matched)
    ]
    values = [(a, b) for a, b in numbers if a is not None and b is not None]
    asked = [both.a.question for both, scored in zip(pair.matched, numbers, strict=True) if None not in scored]
    if not values:
        return None
    a, b = [value for value, _ in values], [value for _, value in values]
    of_question = list(gold_clusters(asked).values()) if clusters else None
    result = paired_difference(b, a, confidence=confidence, resamples=resamples, clusters=of_question)
    return {
        "method_a": pair.method_a,
        "method_b": pair.method_b,
        "kind": kind,
        "metric": metric,
        "n": result.n,
        "mean_a": math.fsum(a) / len(a),
        "mean_b": math.fsum(b) / len(b),
        "difference": result.mean,
        "low": result.low,
        "high": result.high,
        "p": result.p,
        "wins": result.wins,
        "ties": result.ties,
        "losses": result.losses,
        "smallest_detectable": smallest_detectable([y - x for x, y in values]),
        "confidence": confidence,
    }


def _settings(run: Run, side: str, pairs: Sequence[Pair]) -> dict[str, str]:
    """Everything that run.json says of how the run was made, of its methods those that are compared."""
    info = run.info
    methods = {pair.name: info.methods[getattr(pair, side)] for pair in pairs}
    parts: dict[str, Any] = {
        "data set": asdict(info.dataset),
        "method": {name: method.settings | {"function": method.function} for name, method in methods.items()},
        "llm": info.llm,
        "repeat": info.repeat,
        "retriever": info.retriever,
        "prompt set": info.prompt_set,
        "prompt": info.prompts,
        "endpoint": info.endpoint,
        "version": info.versions,
        "git": info.git,
    }
    return dict(_flat(parts, ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name} {key}".strip())
    else:
        text = str(value)
        yield name, text[:12] if re.fullmatch(r"[0-9a-f]{40,64}", text) else text
