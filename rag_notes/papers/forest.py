"""The forest plot of verified comparisons: our differences with their intervals beside the papers'."""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rag_notes.papers.verdicts import AGREES, CONTRADICTED, EQUIVALENT, INCONCLUSIVE, NOT_RUN, SAME_DIRECTION
from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.curves import count_label
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.types import InputError

_WIDTH = 7.0  # inches, of a page
_LINE, _HEAD, _LEGEND = 0.17, 0.95, 0.7  # inches for a line of a label, for the heads and axis of a block, the legend
_ROWS, _COLUMNS = 25, 4  # comparisons and data sets of a block
_LETTERS = 34  # of a label's line
_LIMITS = ("max_step", "max_failure", "collector_iterations", "invalid_updates", "max_iterations")
_THINNEST = 0.2  # points that a single difference of a paper is drawn wide
_GREY, _LIGHT = "#595959", "#cfcfcf"
_VERDICTS = {  # colour, marker, filled
    AGREES: (PALETTE[0], "^", True),
    SAME_DIRECTION: (_GREY, "^", False),
    EQUIVALENT: (PALETTE[2], "s", True),
    INCONCLUSIVE: (_GREY, "v", False),
    CONTRADICTED: (PALETTE[1], "v", True),
}


def forest_figure(orders: pd.DataFrame, *, metric: str = "f1") -> NotebookFigure:
    """Draw the comparisons of one metric that were run, in points: a block a paper and model, a column a data set.

    `orders` is what `verify_orders` gave, or several of them. A row is a comparison of the paper; without a mark it was
    not run on the data set. The mark is our difference, shaped and coloured by its verdict, the line its 95 % interval;
    the grey bar spans the paper's differences, from the smallest to the largest. A block with too many rows or columns
    goes on in the next. Raises ValueError where none was run.
    """
    shown = orders[(orders["metric"] == metric) & (orders["verdict"] != NOT_RUN)]
    if shown.empty:
        raise InputError(f"nothing to draw: no comparison by {metric} was run")
    blocks = [
        (f"{method_label(str(paper))} paper, tested with {model}", labels, rows)
        for (model, paper), group in shown.groupby(["our_model", "paper"], sort=False)
        for labels, rows in _blocks(group)
    ]
    heights = [_HEAD + _LINE * sum(map(_lines, labels)) for _, labels, _ in blocks]
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(_WIDTH, sum(heights) + _LEGEND), layout=ConstrainedLayoutEngine(h_pad=0.04, w_pad=0.04)
        )
        *parts, last = figure.subfigures(len(blocks) + 1, 1, height_ratios=[*heights, _LEGEND], squeeze=False).ravel()
        shared: Axes | None = None
        for part, (title, labels, rows) in zip(parts, blocks, strict=True):
            part.suptitle(title, x=0.01, ha="left", fontsize=8.5, fontweight="bold")
            datasets = list(dict.fromkeys(rows["dataset"]))
            for column, dataset in enumerate(datasets, 1):
                axes = part.add_subplot(1, len(datasets), column, sharex=shared)
                shared = shared or axes
                cells = rows[rows["dataset"] == dataset]
                axes.set_title(f"{dataset_label(str(dataset))}\n{count_label(cells)}", fontsize=8)
                _panel(axes, cells, labels)
                axes.tick_params(labelleft=column == 1)
        present = set(shown["verdict"])
        handles = [
            Line2D([], [], color=colour, marker=marker, markerfacecolor=colour if filled else "white", label=verdict)
            for verdict, (colour, marker, filled) in _VERDICTS.items()
            if verdict in present
        ]
        handles.append(Line2D([], [], color=_LIGHT, linewidth=5, marker="none", label="the paper's differences"))
        title = f"{METRIC_LABELS.get(metric, metric)}: first - second system (points)"
        last.legend(handles=handles, title=title, title_fontsize=8, loc="center", ncols=3)
    return figure


def _blocks(group: pd.DataFrame) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """The labels of a block's rows, in the order of the data set that has most of them, and its cells."""
    group = group.assign(label=[_in_lines(order_label(row)) for row in group.to_dict("records")])
    datasets = list(dict.fromkeys(group["dataset"]))
    for first in range(0, len(datasets), _COLUMNS):
        beside = group[group["dataset"].isin(datasets[first : first + _COLUMNS])]
        longest = beside["dataset"].value_counts().index[0]
        labels = list(dict.fromkeys([*beside.loc[beside["dataset"] == longest, "label"], *beside["label"]]))
        size = math.ceil(len(labels) / math.ceil(len(labels) / _ROWS))  # blocks as good as equal
        for start in range(0, len(labels), size):
            part = labels[start : start + size]
            yield part, beside[beside["label"].isin(part)]


def _in_lines(label: str) -> str:
    """A label, if it is long with its second system in a line of its own."""
    if len(label) <= _LETTERS:
        return label
    first, second = label.split(" > ")
    return "\n".join(textwrap.fill(part, _LETTERS) for part in (f"{first} >", second))


def _lines(label: str) -> int:
    return 1 + label.count("\n")


def order_label(row: Mapping[Any, Any]) -> str:
    """How a comparison is printed: the first system is above the second; of one method only the settings differ."""
    first, second = method_label(row["method"]), method_label(row["other"])
    setting, other = _short(row["setting"]), _short(row["other_setting"])
    if first == second:
        return f"{first}: {setting or 'whole'} > {other or 'whole'}"
    return " > ".join(f"{name} {of}" if of else name for name, of in ((first, setting), (second, other)))


def _short(setting: str) -> str:
    """A claim's setting as the papers write it: the limits of a loop by numbers alone (3-1), others with their name."""
    pairs = [pair.split("=") for pair in setting.split(";") if pair]
    limits = "-".join(value for name, value in pairs if name in _LIMITS)
    others = (
        "w/o " + value if name == "without" else f"{name} {value}" for name, value in pairs if name not in _LIMITS
    )
    return ", ".join([*([limits] if limits else []), *others]).replace("_", " ")


def _panel(axes: Axes, cells: pd.DataFrame, labels: Sequence[str]) -> None:
    below = list(accumulate(map(_lines, labels)))
    places = {label: end - _lines(label) / 2 for label, end in zip(labels, below, strict=True)}
    axes.set_yticks(list(places.values()), labels)
    axes.set_ylim(below[-1], 0)  # the first one on top
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=3))
    axes.axvline(0, color="black", linewidth=0.8, zorder=1, marker="none")
    for row in cells.to_dict("records"):
        place = places[row["label"]]
        colour, marker, filled = _VERDICTS[row["verdict"]]
        if not math.isnan(row["least"]):
            span = max(row["most"] - row["least"], _THINNEST)
            axes.barh(place, span, left=row["least"], height=0.6, color=_LIGHT, zorder=1)
        axes.plot([row["low"], row["high"]], [place, place], color=colour, marker="none", zorder=2)
        face = colour if filled else "white"
        axes.plot(row["ours"], place, color=colour, marker=marker, markerfacecolor=face, linestyle="none", zorder=3)
