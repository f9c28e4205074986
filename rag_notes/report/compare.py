"""Two runs, or two methods of one run, question by question: what differs, by how much, and where."""

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.methods.about import label_of
from rag_notes.metrics.stats import holm, paired_difference, smallest_detectable
from rag_notes.report import scores_table
from rag_notes.report.scores_table import ANSWER_METRICS, METRIC_LABELS, RETRIEVAL_METRICS
from rag_notes.running.records import Run
from rag_notes.running.samples import RecordError

CHANGES: Mapping[str, str] = {
    "won": "right only in {1}",
    "lost": "right only in {0}",
    "other": "scored differently, neither or both right",
}
"""How the scores of a question may differ between the two sides, whose names are filled in."""

_COSTS = ("searches", "distinct_passages", "calls", "prompt_tokens", "completion_tokens")
_METRICS = {"answer": ANSWER_METRICS, "retrieval": RETRIEVAL_METRICS, "cost": _COSTS}
_COLUMNS = [
    *("method_a", "method_b", "kind", "metric", "n", "mean_a", "mean_b", "difference", "low", "high", "p", "p_holm"),
    *("significant", "wins", "ties", "losses", "smallest_detectable", "confidence"),
]
_SETTINGS = ("dataset", "llm", "repeat", "retriever", "prompt_set", "prompts", "versions", "git")
_LISTED, _LONGEST = 10, 80  # questions shown, of each change; characters of a text shown


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two runs side by side, shown as HTML in a notebook and as text in a terminal; all differences are B - A.

    `table` is as `compare_runs` says. `questions` has a row for each question compared: the columns of both frames with
    `_a` and `_b` appended, and the `change`: won, lost, other (`CHANGES`), or "" where all scores are equal. `left_out`
    has the questions that could not be compared, with the `reason`.
    """

    run_a: Run
    run_b: Run
    names: tuple[str, str]
    table: pd.DataFrame
    questions: pd.DataFrame
    left_out: pd.DataFrame

    def settings(self) -> pd.DataFrame:
        """Return a row for each setting, prompt and version that differs, with its value in both runs or "–"."""
        sides = []
        for run, names in ((self.run_a, self.table["method_a"]), (self.run_b, self.table["method_b"])):
            info = {name.replace("_", " "): value for name, value in asdict(run.info).items() if name in _SETTINGS}
            chosen = run.only(names).info.methods
            methods = {name: {**method.settings, "function": method.function} for name, method in chosen.items()}
            info["method"] = methods if len(methods) > 1 else methods[names[0]]
            sides.append(pd.json_normalize(info, sep=" ").iloc[0].map(str))
        table = pd.concat(sides, axis=1, keys=["a", "b"]).fillna("–")
        return table[table["a"] != table["b"]].set_axis([*self.names], axis=1).rename_axis("setting")

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        level, (a, b) = self.table["confidence"].iloc[0], self.names
        heading = f"{b} minus {a}, scores in %, with {100 * level:g} % intervals; * p < {1 - level:.2g} after Holm"
        yield heading, self._readable()
        columns = {"question_a": "question", "gold_a": "gold", "answer_a": a, "answer_b": b}
        for change, meaning in CHANGES.items():
            rows = self.questions[self.questions["change"] == change].set_index("question_id")
            texts = rows[:_LISTED].filter([*columns]).rename(columns=columns)
            if len(rows):
                extent = f", the first {_LISTED}" if len(rows) > _LISTED else ""
                shortened = texts.map(lambda text: textwrap.shorten(str(text), _LONGEST, placeholder=" …"))
                yield f"{meaning.format(a, b)}: {len(rows)} questions{extent}", shortened
        if len(settings := self.settings()):
            yield "settings that differ", settings
        if len(self.left_out):
            reasons = self.left_out["reason"].value_counts(sort=False).map(str)
            yield "questions left out", reasons.rename("questions").to_frame()

    def _readable(self) -> pd.DataFrame:
        """The table as texts: scores in %, costs a question, a star where significant."""
        rows = {}
        for row in self.table.to_dict("records"):
            scale = 1 if row["kind"] == "cost" else 100
            methods = " → ".join(dict.fromkeys([label_of(row["method_a"]), label_of(row["method_b"])]))
            metric = METRIC_LABELS.get(row["metric"], row["metric"].replace("_", " "))
            means = [f"{scale * row[name]:.1f}" for name in ("mean_a", "mean_b")]
            difference = scores_table.interval_text(row["difference"], row["low"], row["high"], scale=scale)
            rows[methods, metric] = [str(row["n"]), *means, difference + "*" * bool(row["significant"])]
        wide = pd.DataFrame.from_dict(rows, "index", columns=["n", *self.names, "difference"])
        wide.index = pd.MultiIndex.from_tuples(rows, names=["method", "metric"])
        return wide if wide.index.unique("method").size > 1 else wide.droplevel("method")

    def __repr__(self) -> str:
        return "\n\n".join(f"{heading}\n{scores_table.as_text(table)}" for heading, table in self._parts())

    def _repr_html_(self) -> str:
        parts = enumerate(self._parts())
        return "".join(
            scores_table.as_html(table, f"comparison{number}", heading) for number, (heading, table) in parts
        )


def compare_runs(
    run_a: Run,
    run_b: Run,
    *,
    method_a: str | None = None,
    method_b: str | None = None,
    names: tuple[str, str] | None = None,
    clusters: bool = False,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> Comparison:
    """Compare two runs of one data set on the questions that both have: method by method, or the methods named.

    Without methods every method of both runs is compared with itself; one name stands for both sides. `names` are those
    of the two sides, the methods' labels or A and B by default. Questions match by id, text and gold answers.

    The table has a row for each pair of methods and metric. `kind` is answer or retrieval (scores between 0 and 1) or
    cost (a number a question). `difference` is B - A with interval, p and `wins` of B as in `paired_difference`,
    `p_holm` is corrected for the pairs compared by one metric, and `significant` is p_holm < 1 - confidence. With
    `clusters` interval and test are by clusters of questions that share gold passages.

    Raises RecordError for different data sets, no method or question in common, a method that a run lacks, and a method
    that would be compared with itself.
    """
    if run_a.label != run_b.label:
        raise RecordError(f"only runs of one data set can be compared, not {run_a.label!r} and {run_b.label!r}")
    pairs = _method_pairs(run_a, run_b, method_a or method_b, method_b or method_a)
    labels = label_of(pairs[0][0]), label_of(pairs[0][1])
    names = names or (labels if len(pairs) == 1 and labels[0] != labels[1] else ("A", "B"))
    frames = run_a.frame(), run_b.frame()
    matched = {pair: _match(*frames, *pair) for pair in pairs}
    for (a, b), (questions, left_out) in matched.items():
        if questions.empty:
            reasons = left_out["reason"].value_counts(sort=False).to_dict()
            raise RecordError(f"no question was answered by both {a} of {names[0]} and {b} of {names[1]}: {reasons}")
    rows = []
    kinds = {metric: kind for kind, metrics in _METRICS.items() for metric in metrics}
    for metric, ((a, b), (questions, _)) in product(kinds, matched.items()):
        scores = questions.reindex(columns=[f"{metric}_a", f"{metric}_b"]).astype(float).dropna()
        if len(scores):
            before, after = scores.to_numpy().T
            members = questions.loc[scores.index, "cluster_a"].tolist() if clusters else None
            test = paired_difference(after, before, clusters=members, confidence=confidence, resamples=resamples)
            row = {"method_a": a, "method_b": b, "kind": kinds[metric], "metric": metric, "difference": test.mean}
            row |= {"mean_a": math.fsum(before) / test.n, "mean_b": math.fsum(after) / test.n}
            rows.append(row | test._asdict() | {"smallest_detectable": smallest_detectable(after - before)})
    table = pd.DataFrame(rows, columns=_COLUMNS).assign(confidence=confidence)
    table["p_holm"] = table.groupby("metric")["p"].transform(holm)
    table["significant"] = table["p_holm"] < 1 - confidence
    questions, left_out = (pd.concat(parts, ignore_index=True) for parts in zip(*matched.values(), strict=True))
    return Comparison(run_a, run_b, names, table, questions, left_out)


def _method_pairs(run_a: Run, run_b: Run, method_a: str | None, method_b: str | None) -> list[tuple[str, str]]:
    available = ", ".join(run_a.methods) + ("" if run_a is run_b else f" and {', '.join(run_b.methods)}")
    pairs = [(method, method) for method in run_a.methods if method in run_b.methods]
    if method_a and method_b:
        pairs = [(method_a, method_b)]
        if unknown := [name for name, run in zip(pairs[0], (run_a, run_b), strict=True) if name not in run.methods]:
            raise RecordError(f"no method {unknown[0]!r} to compare; there is {available}")
    if run_a is run_b and any(a == b for a, b in pairs):
        raise RecordError(f"a run would be compared with itself; name two of its methods: {available}")
    if not pairs:
        raise RecordError(f"no method in common; name one of each run: {available}")
    return pairs


def _match(frame_a: pd.DataFrame, frame_b: pd.DataFrame, *methods: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The questions that two methods answered, both answers in a row, and those that cannot be compared."""
    side_a, side_b = (
        frame[frame["method"] == method].drop(columns="method").set_index("question_id")
        for frame, method in zip((frame_a, frame_b), methods, strict=True)
    )
    questions = side_a.index.union(side_b.index, sort=False)
    a, b = side_a.reindex(questions), side_b.reindex(questions)
    failed_a, failed_b = a["error"].notna(), b["error"].notna()
    reasons: dict[str, Any] = {"only in A": ~questions.isin(side_b.index), "only in B": ~questions.isin(side_a.index)}
    for name, text in {"question": "another question under the same id", "gold": "other gold answers"}.items():
        if name in a and name in b:
            reasons[text] = a[name] != b[name]
    reasons |= {"failed in A and B": failed_a & failed_b, "failed in A": failed_a, "failed in B": failed_b}
    scores = [name for name in ("correctness", *ANSWER_METRICS) if name in a and name in b]
    differ = ((a[scores] != b[scores]) & (a[scores].notna() | b[scores].notna())).any(axis=1)
    right_a, right_b = a["correctness"] == "right", b["correctness"] == "right"
    changes = np.select([~right_a & right_b, right_a & ~right_b, differ], [*CHANGES], "")
    reason = np.select([np.asarray(mask, bool) for mask in reasons.values()], [*reasons], "")
    table = a.add_suffix("_a").join(b.add_suffix("_b")).reset_index()
    table = table.assign(method_a=methods[0], method_b=methods[1], change=changes)
    left_out = table[["method_a", "method_b", "question_id"]].assign(reason=reason)[reason != ""]
    return table[reason == ""], left_out
