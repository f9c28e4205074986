"""The forest plot of verified comparisons: our differences with their intervals beside the papers'."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from rag_notes.papers.verdicts import AGREES, CONTRADICTED, EQUIVALENT, INCONCLUSIVE, NOT_RUN, SAME_DIRECTION
from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.types import InputError

_WIDTH = 7.0  # inches, of a page
_ROW, _HEAD = 0.17, 0.55  # inches for a comparison, for the head and axis of a panel
_ROWS = 25  # a panel
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
    """Draw the comparisons of one metric that were run: a panel a data set, model and paper, a line each, in points.

    `orders` is what `verify_orders` gave, or several of them. The mark is our difference, shaped and coloured by its
    verdict, the line its 95 % interval; the grey bar spans the paper's differences, from the smallest to the largest.
    A panel with too many goes on in the next. Raises ValueError where none was run.
    """
    shown = orders[(orders["metric"] == metric) & (orders["verdict"] != NOT_RUN)]
    if shown.empty:
        raise InputError(f"nothing to draw: no comparison by {metric} was run")
    panels = []
    for (dataset, model, paper), group in shown.groupby(["dataset", "our_model", "paper"], sort=False):
        rows = group.to_dict("records")
        title = f"{method_label(str(paper))} paper, tested on {dataset_label(str(dataset))} with {model}"
        parts = math.ceil(len(rows) / _ROWS)
        size = math.ceil(len(rows) / parts)  # as good as equal
        for part in range(parts):
            of_parts = f" ({part + 1} of {parts})" if parts > 1 else ""
            panels.append((title + of_parts, rows[part * size : (part + 1) * size]))
    heights = [_HEAD + _ROW * len(rows) for _, rows in panels]
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(_WIDTH, sum(heights) + 0.7), layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05)
        )
        grid = figure.add_gridspec(len(panels), 1, height_ratios=heights)
        shared: Axes | None = None
        for i, (title, rows) in enumerate(panels):
            axes = figure.add_subplot(grid[i], sharex=shared)
            shared = shared or axes
            axes.set_title(title, loc="right", fontweight="bold")  # there is room beside the labels
            _panel(axes, rows)
        present = set(shown["verdict"])
        handles = [
            Line2D([], [], color=colour, marker=marker, markerfacecolor=colour if filled else "white", label=verdict)
            for verdict, (colour, marker, filled) in _VERDICTS.items()
            if verdict in present
        ]
        handles.append(Line2D([], [], color=_LIGHT, linewidth=5, marker="none", label="the paper's differences"))
        name = METRIC_LABELS.get(metric, metric)
        title = f"{name}: first - second system (points)"  # below an axis it might leave the page: they begin far right
        figure.legend(handles=handles, title=title, title_fontsize=8, loc="outside lower center", ncols=3)
    return figure


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


def _panel(axes: Axes, rows: list[dict[Any, Any]]) -> None:
    several = len({row["n"] for row in rows}) > 1
    labels = [f"{order_label(row)}  n = {row['n']}" if several else order_label(row) for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first one on top
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.axvline(0, color="black", linewidth=0.8, zorder=1, marker="none")
    for place, row in enumerate(rows):
        colour, marker, filled = _VERDICTS[row["verdict"]]
        if not math.isnan(row["least"]):
            span = max(row["most"] - row["least"], _THINNEST)
            axes.barh(place, span, left=row["least"], height=0.6, color=_LIGHT, zorder=1)
        axes.plot([row["low"], row["high"]], [place, place], color=colour, marker="none", zorder=2)
        face = colour if filled else "white"
        axes.plot(row["ours"], place, color=colour, marker=marker, markerfacecolor=face, linestyle="none", zorder=3)
