"""The verdicts on a paper's claim: what each is called, by which rule it is given, how many there are."""

import math
from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.metrics.stats import MARGIN

AGREES = "agrees"
WITHIN = "within interval"
SAME_DIRECTION = "same direction, not significant"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"
CONTRADICTED = "contradicted"
OTHER_CORPUS = "other corpus"
NOT_RUN = "not run"

SIGNS: Mapping[str, str] = {
    AGREES: "✓",
    WITHIN: "≈",
    SAME_DIRECTION: "↑",
    EQUIVALENT: "=",
    INCONCLUSIVE: "?",
    CONTRADICTED: "✗",
    OTHER_CORPUS: "≠",
    NOT_RUN: "–",
}
"""The verdicts in the order of every table, each with its sign."""

RULES: Mapping[str, str] = {
    AGREES: "A value: ours is within the paper's tolerance, which is how far a repetition on the paper's own number of "
    "questions may be off. A comparison: our difference is above 0, its 95 % interval excludes 0, and the paired "
    "permutation test gives p < .05.",
    WITHIN: "A value that is farther off, but our 95 % interval contains the paper's.",
    SAME_DIRECTION: "A comparison: our difference is above 0, but these questions cannot tell it from 0.",
    EQUIVALENT: f"A comparison of scores whose difference cannot be told from 0, but is shown to be less than "
    f"{100 * MARGIN:g} points either way (two one-sided paired t tests, each p < .05): there is no such difference. "
    "Fewer than 59 questions cannot show this.",
    INCONCLUSIVE: "A comparison: our difference is 0 or below, but these questions cannot tell it from 0: neither "
    "found nor refuted.",
    CONTRADICTED: "A value that is farther off, and outside our 95 % interval. A comparison: our difference is below "
    "0, by the same rule as for agreement.",
    OTHER_CORPUS: "A value that was measured on other passages than the paper's: the number of another task, neither "
    "confirmed nor refuted. A comparison may carry over; it says so where its passages are not the paper's.",
    NOT_RUN: "No run has the data set, the method and the setting of the claim.",
}
"""By what rule a verdict is given."""

_ALPHA = 0.05
_TOLERATED = 1e-9  # printed decimals are off by less in binary


def value_verdict(ours: float, low: float, high: float, theirs: float, tolerance: float) -> str:
    """The verdict on a number measured on the paper's corpus."""
    if abs(ours - theirs) <= tolerance + _TOLERATED:
        return AGREES
    return WITHIN if low - _TOLERATED <= theirs <= high + _TOLERATED else CONTRADICTED


def order_verdict(difference: float, low: float, high: float, p: float, p_equivalent: float = math.nan) -> str:
    """The verdict on a comparison; a single question has no interval (NaN) and tells nothing.

    `p_equivalent` is that of `rag_notes.metrics.stats.equivalence`, NaN where it was not tested.
    """
    if (low > 0 or high < 0) and p < _ALPHA:
        return AGREES if difference > 0 else CONTRADICTED
    if p_equivalent < _ALPHA:
        return EQUIVALENT
    return SAME_DIRECTION if difference > 0 else INCONCLUSIVE


def count_verdicts(table: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """How many rows have which verdict, a row for each value of the columns `by` and one for all of them.

    Columns: `by`, rows, the verdicts and, where the table has `same_model`, `other_model` (those run with another model
    than the paper's).
    """
    rows = [dict(zip(by, key, strict=True)) | _counted(group) for key, group in table.groupby(list(by), sort=False)]
    return pd.DataFrame([*rows, dict.fromkeys(by, "") | {by[0]: "all"} | _counted(table)])


def _counted(table: pd.DataFrame) -> dict[str, int]:
    counts = {"rows": len(table)} | {verdict: int((table["verdict"] == verdict).sum()) for verdict in RULES}
    if "same_model" in table:
        counts["other_model"] = int(((table["verdict"] != NOT_RUN) & ~table["same_model"].astype(bool)).sum())
    return counts
