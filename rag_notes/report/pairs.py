"""Every two methods of a run: which is right more often, are they equivalent, and how small a difference would show."""

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from rag_notes.metrics.stats import MARGIN, equivalence, holm, paired_difference, smallest_detectable
from rag_notes.running.records import Run

_COLUMNS = [
    *("dataset", "method_a", "method_b", "n", "right_a", "right_b", "mean", "low", "high"),
    *("p_holm", "p_equivalent", "smallest_detectable", "verdict"),
]


def method_pairs(run: Run, *, confidence: float = 0.95, resamples: int = 10_000) -> pd.DataFrame:
    """Compare every two methods of a run by the share of questions answered right (see `running.correctness`).

    A row for each pair, in the order of the run's methods: `n` questions that both answered without error and that are
    scored, the shares right, `mean` (B - A) with the interval and test of `paired_difference`, `p_equivalent` of the
    hypothesis that they differ by `MARGIN` or more, both p Holm-corrected for all pairs, and `smallest_detectable`
    (the difference that n questions spread like these show with 80 % power at alpha .05, blocked by their type; NaN
    where no question differs). `verdict` is "differ", "equivalent" or "undecided". Intervals are those of single
    differences, without correction.
    """
    frame = run.frame()
    scored = frame[~frame["correctness"].isin(["error", "unscored"])]
    right = scored.assign(right=(scored["correctness"] == "right").astype(float))
    wide = right.pivot(index="question_id", columns="method", values="right").reindex(frame["question_id"].unique())
    types = frame.drop_duplicates("question_id").set_index("question_id")["type"]
    rows: list[dict[str, Any]] = []
    for a, b in combinations(run.methods, 2):
        scores = wide.reindex(columns=[a, b]).dropna()
        if scores.empty:
            continue
        test = paired_difference(scores[b].tolist(), scores[a].tolist(), confidence=confidence, resamples=resamples)
        changes = (scores[b] - scores[a]).tolist()
        row = {"dataset": run.label, "method_a": a, "method_b": b, "n": test.n, "p_holm": test.p}
        row |= {
            "right_a": scores[a].mean(),
            "right_b": scores[b].mean(),
            "mean": test.mean,
            "low": test.low,
            "high": test.high,
        }
        row["p_equivalent"] = equivalence(changes, MARGIN)
        row["smallest_detectable"] = smallest_detectable(changes, blocks=types[scores.index].tolist())
        rows.append(row)
    for name in ("p_holm", "p_equivalent"):
        for row, p in zip(rows, holm([row[name] for row in rows]), strict=True):
            row[name] = p
    table = pd.DataFrame(rows, columns=_COLUMNS)
    tests = {"differ": table["p_holm"] < 1 - confidence, "equivalent": table["p_equivalent"] < 1 - confidence}
    return table.assign(verdict=np.select([*tests.values()], [*tests], "undecided"))
