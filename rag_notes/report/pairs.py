"""Every two methods of a run: which is right more often, are they equivalent, and how small a difference would show."""

import math
from itertools import combinations
from typing import Any

import pandas as pd

from rag_notes.metrics.stats import MARGIN, equivalence, holm, paired_difference, smallest_detectable
from rag_notes.report.cells import dataset_label, interval_texts, method_label
from rag_notes.report.compare import match
from rag_notes.running.correctness import correctness
from rag_notes.running.records import Run

_COLUMNS = [
    *("dataset", "method_a", "method_b", "n", "right_a", "right_b", "mean", "low", "high"),
    *("p_holm", "p_equivalent", "smallest_detectable", "verdict"),
]

_NAMED = 3  # methods that a cell names; a notebook would cut more off


def method_pairs(run: Run, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Compare every two methods of a run by the share of questions answered right (see `running.correctness`).

    A row for each pair, in the order of the run's methods: `n` questions that both answered without error and that are
    scored, the shares right, `mean` (B - A) with the interval and test of `paired_difference`, `p_equivalent` of the
    hypothesis that they differ by `MARGIN` or more, both p Holm-corrected for all pairs, and `smallest_detectable`
    (what n questions spread like these show with 80 % power at alpha .05, blocked by their type; NaN where no question
    differs). `verdict` is "differ", "equivalent" or "undecided". Intervals are those of single differences, without
    correction.
    """
    rows: list[dict[str, Any]] = []
    for a, b in combinations(run.methods, 2):
        judged = [(m.a.question.type, correctness(m.a), correctness(m.b)) for m in match(run, run, a, b).matched]
        right = [(kind, float(x == "right"), float(y == "right")) for kind, x, y in judged if "unscored" not in (x, y)]
        if not right:
            continue
        types, of_a, of_b = zip(*right, strict=True)
        result = paired_difference(of_b, of_a, confidence=confidence, resamples=resamples)
        changes = [y - x for _, x, y in right]
        shares = (math.fsum(of_a) / result.n, math.fsum(of_b) / result.n)
        tests = (result.p, equivalence(changes, MARGIN), smallest_detectable(changes, blocks=types))
        of_pair = (run.label, a, b, result.n, *shares, result.mean, result.low, result.high, *tests, "")
        rows.append(dict(zip(_COLUMNS, of_pair, strict=True)))
    for name in ("p_holm", "p_equivalent"):
        for row, p in zip(rows, holm([row[name] for row in rows]), strict=True):
            row[name] = p
    alpha = 1 - confidence
    for row in rows:
        same = "equivalent" if row["p_equivalent"] < alpha else "undecided"
        row["verdict"] = "differ" if row["p_holm"] < alpha else same
    return pd.DataFrame(rows, columns=_COLUMNS)


def pairs_table(pairs: pd.DataFrame) -> pd.DataFrame:
    """Rows of `method_pairs` as they are shown: shares in %, differences in points, a star where significant."""
    stars = ["*" * (verdict == "differ") for verdict in pairs["verdict"]]
    return pd.DataFrame(
        {
            "data set": pairs["dataset"].map(dataset_label),
            "A": pairs["method_a"].map(method_label),
            "B": pairs["method_b"].map(method_label),
            "n": pairs["n"],
            "A right (%)": [f"{100 * share:.1f}" for share in pairs["right_a"]],
            "B right (%)": [f"{100 * share:.1f}" for share in pairs["right_b"]],
            "B - A": [text + star for text, star in zip(interval_texts(pairs), stars, strict=True)],
            "smallest detectable": [_points(least) for least in pairs["smallest_detectable"]],
            "verdict": pairs["verdict"],
        }
    )


def told_apart(pairs: pd.DataFrame) -> pd.DataFrame:
    """One row a method of `method_pairs`, the best first: what it is better and worse than, what it is equivalent to.

    More than three are counted, not named. `undecided` counts the rest. `smallest detectable` is the largest of the
    method's pairs, in points: a true difference of so much would have shown with each of them.
    """
    turned = pairs.rename(
        columns={"method_a": "method_b", "method_b": "method_a", "right_a": "right_b", "right_b": "right_a"}
    ).assign(mean=-pairs["mean"])
    rows = []
    both = pd.concat([pairs, turned])
    for (dataset, method), of_method in both.groupby(["dataset", "method_a"], sort=False):
        others, differ = of_method["method_b"], of_method["verdict"] == "differ"
        rows.append(
            {
                "data set": dataset_label(str(dataset)),
                "method": method_label(str(method)),
                "right": of_method["right_a"].iloc[0],
                "better than": _names(others[differ & (of_method["mean"] < 0)]),
                "worse than": _names(others[differ & (of_method["mean"] > 0)]),
                "equivalent to": _names(others[of_method["verdict"] == "equivalent"]),
                "undecided": int((of_method["verdict"] == "undecided").sum()),
                "smallest detectable": _points(of_method["smallest_detectable"].max()),
            }
        )
    columns = ["data set", "method", "right", "better than", "worse than", "equivalent to", "undecided"]
    table = pd.DataFrame(rows, columns=[*columns, "smallest detectable"])
    table = table.sort_values("right", ascending=False, kind="stable", ignore_index=True)
    shares = [f"{100 * share:.1f}" for share in table["right"]]
    return table.assign(right=shares).rename(columns={"right": "right (%)"})


def _names(methods: pd.Series) -> str:
    return f"{len(methods)} methods" if len(methods) > _NAMED else ", ".join(methods.map(method_label)) or "–"


def _points(share: float) -> str:
    return "–" if math.isnan(share) else f"{100 * share:.1f}"
