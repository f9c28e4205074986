"""Scores as notebooks and terminals show them: a mean with its interval in a cell, one group of metrics at a time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from html import escape
from itertools import groupby
from textwrap import fill
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.report.cells import DISAGREE, dataset_label, disagree, interval_text, method_label
from rag_notes.report.markdown import markdown
from rag_notes.report.tables import ANSWER_METRICS, EXPLAINED, METRIC_LABELS, QUEST_METRICS, RETRIEVAL_METRICS

WIDTH = 100
"""Characters of a line in a terminal."""

_COLUMNS = 10  # of a table in a notebook

# A caption is no wider than its table by itself: below a narrow or an empty one it would have a word a line.
_CAPTION_STYLE = "caption-side: bottom; text-align: left; padding-top: 0.6em; min-width: 40em"
_MOST = "n = {}".format
_TOOK = {  # columns of `diagnostics`: how they are headed, and their decimals
    "questions": ("questions", 0),
    "errors": ("errors", 0),
    "not_recorded": ("not recorded", 0),
    "empty": ("empty answers", 0),
    "parse_failures": ("parse failures", 0),
    "empty_responses": ("empty responses", 0),
    "truncated": ("cut responses", 0),
    "searches": ("searches a question", 1),
    "steps": ("steps a question", 1),
    "distinct_passages": ("passages a question", 1),
    "calls": ("calls a question", 1),
    "prompt_tokens": ("prompt tokens a question", 0),
    "completion_tokens": ("tokens written a question", 0),
    "cost": ("US dollars in all", 4),
    "seconds": ("seconds waited a question", 1),
}


@dataclass(frozen=True, repr=False)
class ScoresTable:
    """What `results` gave as methods x (data set, metric), in %.

    A cell is `mean [low, high]`, with `*` where the difference to the baseline is significant, `†` where its interval
    and its test disagree, `sd ..., always ...` of repeats, and `n = ...` where it covers fewer questions than others of
    its column, whose head has the largest number. The caption says all of it.

    A notebook shows tables of at most ten columns, a terminal lines of at most `WIDTH` characters, each with one group
    of metrics: those of answers or those of passages.
    """

    results: pd.DataFrame

    @cached_property
    def wide(self) -> pd.DataFrame:
        """The cells, a row a method by its label; columns by data set, metric and its number of questions."""
        table = self.results
        most = table.groupby(["dataset", "metric"])["n"].transform("max")
        cells, columns = {}, []
        ordered = table.assign(most=most, group=table["metric"].isin(RETRIEVAL_METRICS))
        for row in ordered.sort_values("group", kind="stable").to_dict("records"):
            column = (
                dataset_label(row["dataset"]),
                METRIC_LABELS.get(row["metric"], row["metric"]),
                _MOST(row["most"]),
            )
            columns.append(column)
            cells[row["method"], column] = cell_text(row, row["most"])
        columns = list(dict.fromkeys(columns))
        methods = list(dict.fromkeys(table["method"]))
        return pd.DataFrame(
            [[cells.get((method, column), "–") for column in columns] for method in methods],
            index=pd.Index(map(method_label, methods), name="method"),
            columns=pd.MultiIndex.from_tuples(columns, names=["data set", "metric", "questions"])
            if columns
            else pd.Index([]),
        )

    @property
    def caption(self) -> str:
        """How to read the table."""
        return _caption(self.results)

    def __repr__(self) -> str:
        def lines(columns: Sequence[Any]) -> str:
            return _plain(_two_lines(self.wide[columns]))

        blocks = self._blocks(lambda columns: _width(lines(columns)) <= WIDTH)
        return "\n\n".join([*map(lines, blocks), fill(self.caption, WIDTH)])

    def to_html(self) -> str:
        """The tables for a page, with the caption below the last one."""
        blocks = list(self._blocks(lambda columns: len(columns) <= _COLUMNS)) or [[]]
        tables = []
        for number, columns in enumerate(blocks):
            last = columns is blocks[-1]
            shown = styled(self.wide[columns], f"results{number}", self.caption if last else "").format(_stacked)
            tables.append(shown.to_html())
        return "".join(tables)

    _repr_html_ = to_html

    def to_markdown(self) -> str:
        """One table in Markdown, however wide, with the caption below it."""
        wide = self.wide
        several = len({of[0] for of in wide.columns}) > 1
        heads = [f"{f'{of[0]}, ' if several else ''}{of[1]} ({of[2]})" for of in wide.columns]
        table = markdown(wide.set_axis(heads, axis=1).reset_index())
        return f"{table}\n\n{self.caption}" if self.caption else table

    def _blocks(self, fits: Callable[[Sequence[Any]], bool]) -> Iterator[list[Any]]:
        """The columns by table: those of a group and data set stay together where they fit into one."""
        block: list[Any] = []
        passages = {METRIC_LABELS[metric] for metric in RETRIEVAL_METRICS}
        groups = groupby(self.wide.columns, lambda column: (column[1] in passages, column[0]))
        kind = None
        for (of_passages, _), unit in groups:
            columns = list(unit)
            if block and (of_passages != kind or not fits(block + columns)):
                yield block
                block = []
            kind = of_passages
            for column in columns:
                if block and not fits([*block, column]):
                    yield block
                    block = []
                block.append(column)
        if block:
            yield block


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """What `diagnostics` gave as texts, rounded, with units in the heads; data set and method are the index."""
    shown = {"data set": table["dataset"].map(dataset_label), "method": table["method"].map(method_label)}
    for name, (head, decimals) in _TOOK.items():
        shown[head] = pd.Series([f"{value:,.{decimals}f}" for value in table[name]]).replace("nan", "–")
    return pd.DataFrame(shown).set_index(["data set", "method"])


def settings_table(table: pd.DataFrame, heads: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """Lay out rows of `results` in %: a row for each data set, metric and method, a column for each of `heads`.

    `heads` has that of each row of `table`, such as "40 % noise". A cell is `mean [low, high]`, with `*` where the
    difference to the baseline is significant; where no question has the metric, it is the number of questions.
    """
    cells = pd.DataFrame(
        {
            "data set": table["dataset"].map(dataset_label),
            "metric": table["metric"].map(METRIC_LABELS),
            "method": table["method"].map(method_label),
            "head": heads,
            "cell": [_of_setting(row) for row in table.to_dict("records")],
        }
    )
    wide = cells[table["metric"].isin(metrics)].pivot_table(
        index=["data set", "metric", "method"], columns="head", values="cell", aggfunc="first", sort=False
    )
    return wide.rename_axis(columns=None).fillna("–")


def _of_setting(row: Mapping[Any, Any]) -> str:
    if math.isnan(row["mean"]):
        return f"– (n = {row['n']})"
    return interval_text(row["mean"], row["low"], row["high"]) + "*" * bool(row["significant"])


def in_lines(table: pd.DataFrame) -> str:
    """A table as text in lines of at most `WIDTH` characters: what is wider goes on below, behind the index again."""
    rest, blocks = list(table.columns), []
    while rest:
        count = 1
        while count < len(rest) and _width(_plain(table[rest[: count + 1]])) <= WIDTH:
            count += 1
        blocks.append(_plain(table[rest[:count]]))
        rest = rest[count:]
    return "\n\n".join(blocks)


def _plain(table: pd.DataFrame) -> str:
    return "\n".join(line.rstrip() for line in table.to_string().splitlines())


def _width(text: str) -> int:
    return max(map(len, text.splitlines()))


def styled(wide: pd.DataFrame, uuid: str, caption: str) -> Styler:
    """Return a table of texts for display, the same bytes each time: pandas would draw a `uuid` at random."""
    styler = Styler(wide, uuid=uuid, cell_ids=False, caption=caption or None).format(escape="html")
    styler = styler.format_index(escape="html").format_index(axis="columns", escape="html")
    return styler.set_table_styles(
        [
            {"selector": "caption", "props": _CAPTION_STYLE},
            {"selector": "td", "props": "white-space: nowrap; text-align: right"},
        ]
    )


def cell_text(row: Mapping[Any, Any], most: int) -> str:
    """A row of `results` as `mean [low, high]` in %, marked as `ScoresTable` says; `most` is its column's n."""
    text = interval_text(row["mean"], row["low"], row["high"])
    text += marks(row)
    if not math.isnan(row.get("repeat_sd", math.nan)):
        text += f" sd {100 * row['repeat_sd']:.1f}, always {100 * row['always']:.1f}"
    return text + (f" n = {row['n']}" if row["n"] < most and text != "–" else "")


def marks(row: Mapping[Any, Any]) -> str:
    """`*` where the difference of a row of `results` is significant, `†` where its interval and its test disagree."""
    return "*" * bool(row["significant"]) + DISAGREE * _disagreeing(row)


def _disagreeing(row: Mapping[Any, Any]) -> bool:
    """Whether the interval of a row's difference and its test, before correction, disagree."""
    return disagree(row["difference_low"], row["difference_high"], row["p"], 1 - row["confidence"])


def _stacked(cell: object) -> str:
    """The mean with the rest of its cell below it, so that more columns fit beside each other."""
    mean, _, rest = escape(str(cell)).partition(" ")
    return f"{mean}<br><small>{rest}</small>" if rest else mean


def _two_lines(wide: pd.DataFrame) -> pd.DataFrame:
    """The same as `_stacked`, as two rows a method."""
    rows, names = [], []
    for name, *cells in wide.itertuples():
        means, rests = zip(*(cell.partition(" ")[::2] for cell in cells), strict=True)
        rows += [means, rests]
        names += [name, ""]
    return pd.DataFrame(rows, index=pd.Index(names, name=wide.index.name), columns=wide.columns)


def _caption(table: pd.DataFrame) -> str:
    if table.empty:
        return "No question was answered without error."
    answers = table[table["metric"].isin((*ANSWER_METRICS, *QUEST_METRICS))]
    counts = []
    for dataset, numbers in answers.groupby("dataset", sort=False)["n"]:
        least, most = numbers.min(), numbers.max()
        counts.append(f"{dataset} {most}" if least == most else f"{dataset} {least} to {most}")
    level, baseline = table["confidence"].iloc[0], table["baseline"].iloc[0]
    parts = [
        f"Mean in % with its {100 * level:g} % interval (Wilson's where every score is 0 or 1, otherwise the BCa "
        f"bootstrap's) over the questions answered without error; n: {', '.join(counts)}."
    ]
    parts += [text for column, text in EXPLAINED.items() if column in table]
    if baseline:
        parts.append(
            f"* differs from {method_label(baseline)} with p < {1 - level:.2g} (two-sided paired sign-flip permutation "
            "test, Holm-corrected for the methods of a column)."
        )
    if any(_disagreeing(row) for row in table.to_dict("records")):
        parts.append(
            f"{DISAGREE} the bootstrap interval of the difference and this test disagree about 0 (before correction): "
            "of few questions, or few that differ, the interval is too narrow; the test decides."
        )
    return " ".join(parts)
