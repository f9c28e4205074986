"""Scores as one reads them in a notebook or terminal: a mean with its interval in a cell, methods by family."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.methods.about import label_of
from rag_notes.report.cells import METRIC_LABELS, dataset_label, interval_text

WIDTH = 110
"""Characters of a line in a terminal."""

# A caption is no wider than its table by itself: below a narrow or an empty one it would have a word a line.
_CAPTION_STYLE = "caption-side: bottom; text-align: left; padding-top: 0.6em; min-width: 40em"


@dataclass(frozen=True, repr=False)
class ScoresTable:
    """Rows of `results` as methods x (data set, metric), in %; a notebook shows it as HTML, a terminal as text.

    A cell is `mean [low, high]`, with `*` where the difference to the baseline is significant, `†` where its interval
    and its test disagree, `sd ..., always ...` of repeats, and `n = ...` where it covers fewer questions than others of
    its column. `metrics` are those shown, all without any; `notes` are added to the caption. Where `results` has the
    columns `label` and `family`, methods are grouped by them.
    """

    results: pd.DataFrame
    metrics: Sequence[str] = ()
    notes: Sequence[str] = ()

    @cached_property
    def wide(self) -> pd.DataFrame:
        """The cells, a row a method by its family and label; columns by data set, metric and number of questions."""
        table = self.results[self.results["metric"].isin(self.metrics or [*METRIC_LABELS])]
        most = table.groupby(["dataset", "metric"])["n"].transform("max")
        sort_keys = table["metric"].map([*(self.metrics or METRIC_LABELS)].index), pd.factorize(table["dataset"])[0]
        columns: dict[str, Any] = {
            "family": table.get("family", ""),
            "method": table.get("label", table["method"].map(label_of)),
            "data set": table["dataset"].map(dataset_label),
            "metric": table["metric"].map(METRIC_LABELS),
            "questions": [f"n = {number}" for number in most],
            "cell": [cell_text(row, number) for row, number in zip(table.to_dict("records"), most, strict=True)],
        }
        cells = pd.DataFrame(columns, table.index).iloc[np.lexsort(sort_keys)]
        rows = cells[["family", "method"]].drop_duplicates().sort_values("family", kind="stable")
        heads = ["data set", "metric", "questions"][cells["data set"].nunique() == 1 :]
        wide = cells.pivot_table("cell", [*rows], heads, aggfunc="first", sort=False, observed=True)
        wide = wide.reindex(pd.MultiIndex.from_frame(rows)).fillna("–")
        return wide if "family" in table else wide.droplevel("family")

    @property
    def caption(self) -> str:
        """How to read the table, and which answers are missing."""
        table = self.results
        if table.empty or (table["n"] == 0).all():
            return " ".join(["No question was answered without error.", *self.notes])
        level, baseline = table["confidence"].iloc[0], table["baseline"].iloc[0]
        datasets = table["dataset"].map(dataset_label).unique()
        sentences = [f"{datasets[0]}." if len(datasets) == 1 else "", f"In %, with {100 * level:g} % intervals."]
        if baseline:
            sentences.append(f"* differs from {label_of(baseline)}, p < {1 - level:.2g} after Holm.")
        if any(_contradictory(row) for row in table.to_dict("records")):
            sentences.append("† interval and test disagree; the test decides.")
        if "repeat_sd" in table:
            sentences.append("sd: of the repeats' means; always: questions that score 1 in each repeat.")
        if "clusters" in table:
            sentences.append("Intervals and tests are by clusters of questions that share gold passages.")
        return " ".join([*filter(None, sentences), *self.notes])

    def __repr__(self) -> str:
        return f"{as_text(self.wide)}\n\n{fill(self.caption, WIDTH)}"

    def _repr_html_(self) -> str:
        return str(styled(self.wide, "results", self.caption).to_html())


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of `diagnostics` as texts, rounded; columns with nothing to report are left out."""
    table = table.assign(dataset=table["dataset"].map(dataset_label), method=table["method"].map(label_of))
    table = table.set_index(["dataset", "method"]).rename(columns=lambda name: name.replace("_", " "))
    table = table.loc[:, table.fillna(0).any()].astype(float)
    return table.map(lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.3g}").replace("nan", "–")


def as_text(table: pd.DataFrame) -> str:
    """A table of texts, aligned left, in lines of at most `WIDTH` characters; further columns follow below."""
    if table.empty:
        return "(empty)"
    table = _without_names(table).apply(lambda column: column.str.ljust(column.str.len().max()))
    table.columns = pd.MultiIndex.from_tuples([name if isinstance(name, tuple) else (name,) for name in table.columns])
    lines = table.to_string(line_width=WIDTH, justify="left", col_space=1).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def styled(table: pd.DataFrame, uuid: str, caption: str = "") -> Styler:
    """A table of texts for a notebook, the same bytes each time: pandas would draw a `uuid` at random."""
    styler = Styler(_without_names(table), uuid=uuid, cell_ids=False, caption=escape(caption) or None)
    styler = styler.format(escape="html").format_index(escape="html").format_index(axis="columns", escape="html")
    wrap = "normal" if table.size and table.map(len).max().max() > WIDTH // 2 else "nowrap"
    cells: Any = {"selector": "td, th", "props": f"white-space: {wrap}; text-align: left; vertical-align: top"}
    return styler.set_table_styles([{"selector": "caption", "props": _CAPTION_STYLE}, cells])


def _without_names(table: pd.DataFrame) -> pd.DataFrame:
    """The table without the names of its rows' and columns' levels, which its cells explain."""
    rows, columns = ([None] * axis.nlevels for axis in (table.index, table.columns))
    return table.set_axis(table.index.set_names(rows), axis=0).set_axis(table.columns.set_names(columns), axis=1)


def cell_text(row: Mapping[Any, Any], most: int) -> str:
    """A row of `results` as `mean [low, high]` in %, marked as `ScoresTable` says; `most` is its column's n."""
    text = interval_text(row["mean"], row["low"], row["high"])
    text += "*" * bool(row["significant"]) + "†" * _contradictory(row)
    if not math.isnan(row.get("repeat_sd", math.nan)):
        text += f" sd {100 * row['repeat_sd']:.1f}, always {100 * row['always']:.1f}"
    return text + (f" n = {row['n']}" if row["n"] < most and text != "–" else "")


def _contradictory(row: Mapping[Any, Any]) -> bool:
    """Whether the interval of a row's difference and its test, before correction, contradict each other about 0."""
    if math.isnan(row["p"]) or math.isnan(row["difference_low"]):
        return False
    return bool((row["difference_low"] > 0 or row["difference_high"] < 0) != (row["p"] < 1 - row["confidence"]))
