"""Scores as one reads them in a notebook or terminal: a mean with its interval in a cell, methods by family."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.methods.about import label_of

ANSWER_METRICS = ("em", "f1", "acc", "yes_no_acc", "str_em", "str_hit", "reject")
"""The metrics of an answer, in the order of every table and figure; a data set has those of its questions' tasks."""

RETRIEVAL_METRICS = ("all_gold_first", "all_gold_seen", "answer_in_passages_seen")
"""The metrics of the passages of the first search (`_first`) and of all searches (`_seen`)."""

QUEST_METRICS = ("q_r", "t_p", "t_r", "t_f1", "q_gold")
"""The metrics of RAGQuestEval, for answers that it was run on (`rag_notes.studies.quest_eval`)."""

METRIC_LABELS: Mapping[str, str] = {
    **{"em": "EM", "f1": "F1", "acc": "Acc.", "acc_raw": "Acc. (raw)", "yes_no_acc": "Yes/no acc."},
    **{"str_em": "str-EM", "str_hit": "str-hit", "reject": "Reject", "avg": "Avg."},
    **{"all_gold_first": "All gold, first search", "all_gold_seen": "All gold, all searches"},
    **{"answer_in_passages_seen": "Answer found, all searches"},
    **{"q_r": "Q-R", "t_p": "T-P", "t_r": "T-R", "t_f1": "T-F1", "q_gold": "Questions kept"},
}
"""The metrics in the order of every table and figure, as these print them."""

_DATASETS = {
    **{"asqa": "ASQA", "crud": "CRUD", "hotpotqa": "HotpotQA", "musique": "MuSiQue", "nq_open": "NQ"},
    **{"realtimeqa": "RealTimeQA", "squad": "SQuAD", "strategyqa": "StrategyQA", "triviaqa": "TriviaQA"},
    **{"twowikimultihopqa": "2WikiMultiHopQA", "webquestions": "WebQuestions"},
}

WIDTH = 110
"""Characters of a line in a terminal."""


@dataclass(frozen=True, repr=False)
class ScoresTable:
    """Rows of `results` as methods x (data set, metric), in %; a notebook shows it as HTML, a terminal as text.

    A cell is `mean [low, high]` with the marks that the caption explains, and `n = ...` where it covers fewer questions
    than others of its column. Only `metrics` are shown, if any; `notes` are added to the caption. Where `results` has
    the columns `label` and `family`, methods are grouped by them.
    """

    results: pd.DataFrame
    metrics: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def wide(self) -> pd.DataFrame:
        """The cells, a row a method by its family and label; columns by data set, metric and number of questions."""
        metrics = [*(self.metrics or METRIC_LABELS)]
        table = in_order(self.results[self.results["metric"].isin(metrics)], metrics)
        most = table.groupby(["dataset", "metric"])["n"].transform("max")
        table = table.assign(most=most, contradictory=_contradictory(table))
        columns: dict[str, Any] = {
            "family": table.get("family", ""),
            "method": table.get("label", table["method"].map(label_of)),
            "data set": table["dataset"].map(dataset_label),
            "metric": table["metric"].map(METRIC_LABELS),
            "questions": [f"n = {number}" for number in most],
            "cell": [_cell(row) for row in table.to_dict("records")],
        }
        cells = pd.DataFrame(columns, table.index)
        rows = cells[["family", "method"]].drop_duplicates().sort_values("family", kind="stable")
        heads = ["data set", "metric", "questions"][cells["data set"].nunique() == 1 :]
        wide = cells.pivot_table("cell", [*rows], heads, aggfunc="first", sort=False, observed=True)
        wide = wide.reindex(pd.MultiIndex.from_frame(rows)).fillna("–")
        return wide if "family" in table else wide.droplevel("family")

    @property
    def caption(self) -> str:
        """How to read the table, and which answers are missing."""
        table = self.results
        if (table["n"] == 0).all():
            return " ".join(["No question was answered without error.", *self.notes])
        level, baseline = table["confidence"].iloc[0], table["baseline"].iloc[0]
        datasets = table["dataset"].map(dataset_label).unique()
        sentences = {
            f"{datasets[0]}.": len(datasets) == 1,
            f"In %, with {100 * level:g} % intervals.": True,
            f"* differs from {label_of(baseline)}, p < {1 - level:.2g} after Holm.": baseline,
            "† interval and test disagree; the test decides.": _contradictory(table).any(),
            "sd: of the repeats' means; always: questions that score 1 in each repeat.": "repeat_sd" in table,
            "Intervals and tests are by clusters of questions that share gold passages.": "clusters" in table,
        }
        return " ".join([*(text for text, applies in sentences.items() if applies), *self.notes])

    def __repr__(self) -> str:
        return f"{as_text(self.wide)}\n\n{fill(self.caption, WIDTH)}"

    def _repr_html_(self) -> str:
        return as_html(self.wide, "results", self.caption)


def in_order(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """Return rows by data set, in the order of their first rows, then by metric, in the order of `metrics`."""
    keys: Any = [table["metric"].map([*metrics].index), pd.factorize(table["dataset"])[0]]
    return table.iloc[np.lexsort(keys)]


def dataset_label(name: str) -> str:
    """Return the printed name of a data set, or of the data set in a run's label."""
    return re.sub(r"^\w+", lambda match: _DATASETS.get(match[0], match[0]), name)


def interval_text(mean: float, low: float, high: float, *, scale: float = 100.0) -> str:
    """Return a mean with its interval, as `26.5 [14.6, 43.1]`; no interval where `low` is NaN, `–` where `mean` is."""
    if math.isnan(mean):
        return "–"
    interval = "" if math.isnan(low) else f" [{scale * low:.1f}, {scale * high:.1f}]"
    return f"{scale * mean:.1f}{interval}"


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return rows of `diagnostics` as texts, rounded, without the columns that have nothing to report."""
    table = table.assign(dataset=table["dataset"].map(dataset_label), method=table["method"].map(label_of))
    table = table.set_index(["dataset", "method"]).rename(columns=lambda name: name.replace("_", " "))
    table = table.loc[:, table.fillna(0).any()].astype(float)
    return table.map(lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}").replace("nan", "–")


def as_text(table: pd.DataFrame) -> str:
    """Return a table of texts, aligned left, in lines of at most `WIDTH` characters; further columns follow below."""
    if table.empty:
        return "(empty)"
    table = _without_names(table).apply(lambda column: column.str.ljust(column.str.len().max()))
    table.columns = pd.MultiIndex.from_tuples([name if isinstance(name, tuple) else (name,) for name in table])
    lines = table.to_string(line_width=WIDTH, justify="left", col_space=1).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def as_html(table: pd.DataFrame, uuid: str, caption: str = "") -> str:
    """Return a table of texts for a notebook, the same bytes each time: pandas would draw a `uuid` at random."""
    styler = Styler(_without_names(table), uuid=uuid, cell_ids=False, caption=escape(caption) or None)
    styler = styler.format(escape="html").format_index(escape="html").format_index(axis="columns", escape="html")
    wrap = "normal" if table.size and table.map(len).max().max() > WIDTH // 2 else "nowrap"
    # A caption is no wider than its table by itself: below a narrow or an empty one it would have a word a line.
    caption_style = "caption-side: bottom; text-align: left; padding-top: 0.6em; min-width: 40em"
    styles: Any = [
        {"selector": "caption", "props": caption_style},
        {"selector": "td, th", "props": f"white-space: {wrap}; text-align: left; vertical-align: top"},
    ]
    return str(styler.set_table_styles(styles).to_html())


def _without_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the names of its rows' and columns' levels, which its cells explain."""
    return table.rename_axis(index=lambda _: None, columns=lambda _: None)


def _cell(row: Mapping[Any, Any]) -> str:
    text = interval_text(row["mean"], row["low"], row["high"])
    text += "*" * bool(row["significant"]) + "†" * bool(row["contradictory"])
    if not math.isnan(row.get("repeat_sd", math.nan)):
        text += f" sd {100 * row['repeat_sd']:.1f}, always {100 * row['always']:.1f}"
    return text + (f" n = {row['n']}" if row["n"] < row["most"] and text != "–" else "")


def _contradictory(table: pd.DataFrame) -> "pd.Series[bool]":
    """Whether the interval of each row's difference and its test, before correction, contradict each other about 0."""
    low, high, p = (table[name].astype(float) for name in ("difference_low", "difference_high", "p"))
    return (((low > 0) | (high < 0)) != (p < 1 - table["confidence"])) & p.notna() & low.notna()
