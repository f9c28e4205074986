"""Two runs, or two methods of one run, question by question: what differs, by how much, and where."""

import math
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.methods.about import label_of
from rag_notes.metrics.stats import holm, paired_difference, smallest_detectable
from rag_notes.report.cells import ANSWER_METRICS, METRIC_LABELS, RETRIEVAL_METRICS, interval_text
from rag_notes.report.scores_table import as_text, styled
from rag_notes.running.records import Run
from rag_notes.running.samples import RecordError

COSTS = ("searches", "distinct_passages", "calls", "prompt_tokens", "completion_tokens")
"""The counts that are compared beside the metrics; less is better."""

CHANGES: Mapping[str, str] = {
    "won": "right only in {1}",
    "lost": "right only in {0}",
    "other": "scored differently, neither or both right",
}
"""How the scores of a question may differ between the two sides, whose names are filled in."""

_KINDS = {"answer": ANSWER_METRICS, "retrieval": RETRIEVAL_METRICS, "cost": COSTS}
_COLUMNS = [
    *("method_a", "method_b", "kind", "metric", "n", "mean_a", "mean_b"),
    *("difference", "low", "high", "p", "p_holm", "significant", "wins", "ties", "losses"),
    *("smallest_detectable", "confidence"),
]
_SETTINGS = ("dataset", "llm", "repeat", "retriever", "prompt_set", "prompts", "endpoint", "versions", "git")
_LISTED, _LONGEST = 10, 80  # questions shown, of each change; characters of a text shown


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Two runs side by side, shown as HTML in a notebook and as text in a terminal; all differences are B - A.

    `table` has a row for each pair of methods and metric, as `compare_runs` says. `questions` has a row for each
    question compared: `method_a`, `method_b`, `question_id`, every column of the runs' frames with `_a` and `_b`
    appended, and `change`: won, lost, other (`CHANGES`), or "" where all scores are equal. `left_out` has the
    questions that could not be compared, with the `reason`.
    """

    run_a: Run
    run_b: Run
    names: tuple[str, str]
    table: pd.DataFrame
    questions: pd.DataFrame
    left_out: pd.DataFrame

    def settings(self) -> pd.DataFrame:
        """A row for each setting, prompt and version that differs, with its value in both runs ("–": it has none)."""
        sides = []
        for run, column in ((self.run_a, "method_a"), (self.run_b, "method_b")):
            names, info = list(self.table[column].unique()), asdict(run.info)
            methods = [
                {**info["methods"][name]["settings"], "function": info["methods"][name]["function"]} for name in names
            ]
            parts = {name.replace("_", " "): info[name] for name in _SETTINGS if name in info}
            parts["method"] = methods[0] if len(methods) == 1 else dict(zip(names, methods, strict=True))
            sides.append(pd.json_normalize(parts, sep=" ").iloc[0].map(str))
        table = pd.concat(sides, axis=1, keys=["a", "b"]).fillna("–")
        return table[table["a"] != table["b"]].set_axis([*self.names], axis=1).rename_axis("setting")

    def _parts(self) -> Iterator[tuple[str, pd.DataFrame]]:
        level, (a, b) = self.table["confidence"].iloc[0], self.names
        yield (
            f"{b} minus {a}, scores in %, with {100 * level:g} % intervals; * p < {1 - level:.2g} after Holm",
            _readable(self.table, self.names),
        )
        for change, meaning in CHANGES.items():
            rows = self.questions[self.questions["change"] == change]
            texts = {"question": "question_a", "gold": "gold_a", a: "answer_a", b: "answer_b"}
            columns = {name: rows[column].map(_shortened) for name, column in texts.items() if column in rows}
            if len(rows):
                extent = f", the first {_LISTED}" if len(rows) > _LISTED else ""
                examples = pd.DataFrame(columns, rows.index).set_axis(rows["question_id"], axis=0)[:_LISTED]
                yield f"{meaning.format(a, b)}: {len(rows)} questions{extent}", examples
        if len(settings := self.settings()):
            yield "settings that differ", settings
        if len(self.left_out):
            counts = self.left_out["reason"].value_counts(sort=False).map(str)
            yield "questions left out", counts.rename("questions").to_frame()

    def __repr__(self) -> str:
        return "\n\n".join(f"{title}\n{as_text(table)}" for title, table in self._parts())

    def _repr_html_(self) -> str:
        tables = [styled(table, f"comparison{number}", title) for number, (title, table) in enumerate(self._parts())]
        return "".join(table.to_html() for table in tables)


def compare_runs(
    run_a: Run,
    run_b: Run,
    *,
    method_a: str | None = None,
    method_b: str | None = None,
    names: tuple[str, str] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> Comparison:
    """Compare two runs of one data set on the questions that both have: method by method, or the methods named.

    Without methods every method of both runs is compared with itself; one name stands for both sides. `names` are those
    of the two sides, the methods' labels or A and B by default. Questions match by id, text and gold answers; those
    that do not, and those that failed, are left out.

    The table has a row for each pair of methods and metric. `kind` is answer or retrieval (scores between 0 and 1) or
    cost (COSTS, a number a question). The means are those of the `n` questions compared, `difference` is B - A with
    interval and p as in `paired_difference`, `p_holm` is corrected for the pairs compared by one metric, and
    `significant` is p_holm < 1 - confidence. `wins`, `ties` and `losses` count the questions on which B's value is
    higher, equal and lower. `smallest_detectable` is the difference that `n` questions spread like these show with 80 %
    power at alpha .05 (NaN where the differences have no spread). With `clusters` interval and test are by clusters of
    questions that share gold passages.

    Raises RecordError for different data sets, no method or no question in common, a method that a run lacks, and a
    method that would be compared with itself because both runs are the same object.
    """
    if run_a.label != run_b.label:
        raise RecordError(f"only runs of one data set can be compared, not {run_a.label!r} and {run_b.label!r}")
    pairs = _methods(run_a, run_b, method_a or method_b, method_b or method_a)
    sides = [label_of(name) for name in pairs[0]] if len(pairs) == 1 else []
    names = names or (("A", "B") if len(set(sides)) < 2 else (sides[0], sides[1]))
    frames = run_a.frame(), run_b.frame()
    matched = {pair: _match(*frames, *pair) for pair in pairs}
    for pair, (questions, left_out) in matched.items():
        if questions.empty:
            counts = left_out["reason"].value_counts(sort=False).to_dict()
            raise RecordError(
                f"no question was answered by both {pair[0]} of {names[0]} and {pair[1]} of {names[1]}: {counts}"
            )
    options: dict[str, Any] = {"confidence": confidence, "resamples": resamples}
    rows: list[dict[str, Any]] = []
    for kind, metric in ((kind, metric) for kind, metrics in _KINDS.items() for metric in metrics):
        family: list[dict[str, Any]] = []
        for (a, b), (questions, _) in matched.items():
            columns = [f"{metric}_a", f"{metric}_b"]
            scored = questions.dropna(subset=columns) if {*columns} <= {*questions} else questions[:0]
            if len(scored):
                before, after = ([float(value) for value in scored[name]] for name in columns)
                cluster = scored["cluster_a"].tolist() if clusters else None
                test = paired_difference(after, before, clusters=cluster, **options)
                row = {"method_a": a, "method_b": b, "kind": kind, "metric": metric, "confidence": confidence}
                row |= {"mean_a": math.fsum(before) / len(scored), "mean_b": math.fsum(after) / len(scored)}
                row |= test._asdict() | {"difference": test.mean}
                row["smallest_detectable"] = smallest_detectable([y - x for x, y in zip(before, after, strict=True)])
                family.append(row)
        for row, p_holm in zip(family, holm([row["p"] for row in family]), strict=True):
            rows.append(row | {"p_holm": p_holm, "significant": p_holm < 1 - confidence})
    questions, left_out = (pd.concat(parts, ignore_index=True) for parts in zip(*matched.values(), strict=True))
    return Comparison(run_a, run_b, names, pd.DataFrame(rows, columns=_COLUMNS), questions, left_out)


def _readable(table: pd.DataFrame, names: tuple[str, str]) -> pd.DataFrame:
    """The rows of a comparison's table as texts: scores in %, costs a question, a star where significant."""
    rows = []
    for row in table.to_dict("records"):
        scale = 1 if row["kind"] == "cost" else 100
        pair = dict.fromkeys([label_of(row["method_a"]), label_of(row["method_b"])])
        metric = METRIC_LABELS.get(row["metric"], row["metric"].replace("_", " "))
        difference = interval_text(row["difference"], row["low"], row["high"], scale=scale)
        means = [f"{scale * row[name]:.1f}" for name in ("mean_a", "mean_b")]
        rows.append([" → ".join(pair), metric, str(row["n"]), *means, difference + "*" * bool(row["significant"])])
    wide = pd.DataFrame(rows, columns=["method", "metric", "n", *names, "difference"]).set_index(["method", "metric"])
    return wide.droplevel("method") if table[["method_a", "method_b"]].drop_duplicates().shape[0] == 1 else wide


def _shortened(text: object) -> str:
    return textwrap.shorten(str(text), _LONGEST, placeholder=" …")


def _methods(run_a: Run, run_b: Run, method_a: str | None, method_b: str | None) -> list[tuple[str, str]]:
    available = f"{', '.join(run_a.methods)}" + ("" if run_a is run_b else f" and {', '.join(run_b.methods)}")
    if method_a is None or method_b is None:
        pairs = [(method, method) for method in run_a.methods if method in run_b.methods]
    else:
        pairs = [(method_a, method_b)]
        if unknown := [name for name, run in ((method_a, run_a), (method_b, run_b)) if name not in run.methods]:
            raise RecordError(f"no method {unknown[0]!r} to compare; there is {available}")
    if run_a is run_b and any(a == b for a, b in pairs):
        raise RecordError(f"a run would be compared with itself; name two of its methods: {available}")
    if not pairs:
        raise RecordError(f"no method in common; name one of each run: {available}")
    return pairs


def _match(
    frame_a: pd.DataFrame, frame_b: pd.DataFrame, method_a: str, method_b: str
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The questions that two methods answered, both answers in a row, and those that cannot be compared."""
    sides = [
        frame[frame["method"] == method].drop(columns="method").set_index("question_id").add_suffix(suffix)
        for frame, method, suffix in ((frame_a, method_a, "_a"), (frame_b, method_b, "_b"))
    ]
    order = pd.Index(dict.fromkeys([*sides[0].index, *sides[1].index]))
    pairs = sides[0].join(sides[1], how="outer").reindex(order).rename_axis("question_id").reset_index()
    missing = [~pairs["question_id"].isin(side.index) for side in sides]
    failed = [pairs["error_a"].notna(), pairs["error_b"].notna()]
    reasons = {"only in A": missing[1], "only in B": missing[0]}
    for name, text in {"question": "another question under the same id", "gold": "other gold answers"}.items():
        if f"{name}_a" in pairs and f"{name}_b" in pairs:
            reasons[text] = pairs[f"{name}_a"] != pairs[f"{name}_b"]
    reasons |= {"failed in A and B": failed[0] & failed[1], "failed in A": failed[0], "failed in B": failed[1]}
    reason = pd.Series(np.select([mask.to_numpy(dtype=bool) for mask in reasons.values()], [*reasons], ""), pairs.index)
    right = [pairs[f"correctness{suffix}"] == "right" for suffix in ("_a", "_b")]
    scores = [name for name in ("correctness", *ANSWER_METRICS) if f"{name}_a" in pairs and f"{name}_b" in pairs]
    equal = [
        (pairs[f"{name}_a"] == pairs[f"{name}_b"]) | (pairs[f"{name}_a"].isna() & pairs[f"{name}_b"].isna())
        for name in scores
    ]
    changes = [~right[0] & right[1], right[0] & ~right[1], ~np.logical_and.reduce(equal)]
    pairs = pairs.assign(method_a=method_a, method_b=method_b, change=np.select(changes, [*CHANGES], ""))
    left_out = pairs[["method_a", "method_b", "question_id"]].assign(reason=reason)
    return pairs.loc[reason == ""], left_out.loc[reason != ""]
