"""Rows of `results` and `counts` as figures draw them: with the methods' labels, in the units of the axis."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rag_notes.methods.about import Family, family_of, label_of
from rag_notes.report.scores_table import METRIC_LABELS
from rag_notes.running.records import Run

FAMILIES = {family: f"{family[0].upper()}{family[1:]}" for family in get_args(Family)}
"""The families of methods in the order of every table, as figures print them."""


def described(table: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    """Add to each row the method's `label`, its `function` and its `family`."""
    functions = {name: method.family for run in runs for name, method in run.info.methods.items()}
    function = table["method"].map(functions)
    families = [FAMILIES.get(family_of(name) or "", "Own methods") for name in function]
    order = [name for name in (*FAMILIES.values(), "Own methods") if name in families]
    return table.assign(label=table["method"].map(label_of), function=function, family=pd.Categorical(families, order))


def score_rows(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the rows of one metric of `results`, in %, with their `panel` and, as `kind`, the result of their test."""
    rows = table[table["metric"] == metric].assign(kind=_verdicts, panel=f"{METRIC_LABELS[metric]} (%)")
    return rows.assign(**{name: 100 * rows[name].astype(float) for name in ("mean", "low", "high")})


def difference_rows(table: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the paired differences to the baseline in one metric of `results`, in points; the baseline is at 0."""
    rows = table[table["metric"] == metric].assign(kind=_verdicts)
    for name, difference in {"mean": "difference", "low": "difference_low", "high": "difference_high"}.items():
        rows[name] = 100 * rows[difference].astype(float).where(rows["kind"] != "baseline", 0.0)
    baseline = label_of(str(rows["baseline"].iloc[0]))
    return rows.assign(panel=f"{METRIC_LABELS[metric]}, difference to {baseline} (points)")


def _verdicts(rows: pd.DataFrame) -> NDArray[np.str_]:
    """`better`, `worse` or `no significant difference` by the test after Holm's correction, or `baseline`."""
    tests = {"baseline": rows["method"] == rows["baseline"], "better": rows["significant"] & (rows["difference"] > 0)}
    tests["worse"] = rows["significant"] & (rows["difference"] < 0)
    return np.select([test.astype(bool) for test in tests.values()], [*tests], "no significant difference")
