"""Numbers and names as tables and figures print them."""

import math
import re

import pandas as pd

from rag_notes.methods.about import label_of

DISAGREE = "†"
"""Marks a difference about which its interval and its test disagree."""

_DATASETS = {
    "asqa": "ASQA",
    "crud": "CRUD",
    "hotpotqa": "HotpotQA",
    "musique": "MuSiQue",
    "nq_open": "NQ",
    "realtimeqa": "RealTimeQA",
    "squad": "SQuAD",
    "strategyqa": "StrategyQA",
    "triviaqa": "TriviaQA",
    "twowikimultihopqa": "2WikiMultiHopQA",
    "webquestions": "WebQuestions",
}


def interval_text(mean: float, low: float, high: float, *, scale: float = 100.0, spec: str = ".1f") -> str:
    """A mean with its interval, as `26.5 [14.6, 43.1]`: without interval where `low` is NaN, `–` where `mean` is."""
    if math.isnan(mean):
        return "–"
    interval = "" if math.isnan(low) else f" [{scale * low:{spec}}, {scale * high:{spec}}]"
    return f"{scale * mean:{spec}}{interval}"


def interval_texts(table: pd.DataFrame, mean: str = "mean", *, scale: float = 100.0, spec: str = ".1f") -> list[str]:
    """`interval_text` of each row: of its column `mean` with `low` and `high`."""
    rows = table[[mean, "low", "high"]].astype(float)
    return [interval_text(*row, scale=scale, spec=spec) for row in rows.itertuples(index=False)]


def p_text(p: float) -> str:
    """A p value to three decimals; `–` where nothing was tested."""
    return "–" if math.isnan(p) else "< .001" if p < 0.001 else f"{p:.3f}"


def disagree(low: float, high: float, p: float, alpha: float) -> bool:
    """Whether the interval of a difference and the p of its test say different things about 0."""
    return not math.isnan(p) and not math.isnan(low) and (low > 0 or high < 0) != (p < alpha)


def dataset_label(name: str) -> str:
    """What a table or figure calls a data set, or the data set of a run's label: by its own name where it has one."""
    return re.sub(r"^\w+", lambda found: _DATASETS.get(found[0], found[0]), name)


def method_label(name: str) -> str:
    """What a table or figure calls a method, as `rag_notes.methods.about.label_of`."""
    return label_of(name)
