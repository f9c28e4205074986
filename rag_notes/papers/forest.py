"""The forest plot of verified orders: our differences with their intervals beside the papers'."""

import math
from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from rag_notes.papers.verification import AGREES, DIFFERS, NOT_RUN, WITHIN
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import METRIC_LABELS

_ROW, _HEAD = 0.17, 0.55  # inches for an order, for the head and axis of a panel
_LETTER, _PANEL = 0.062, 3.6  # inches for a letter of a label, for the panels
_LIMITS = ("max_step", "max_failure", "collector_iterations", "invalid_updates", "max_iterations")
_THINNEST = 0.2  # points that a single difference of a paper is drawn wide
_GREY, _LIGHT = "#595959", "#cfcfcf"
_VERDICTS = {  # colour, marker
    AGREES: (PALETTE[0], "^"),
    WITHIN: (_GREY, "o"),
    DIFFERS: (PALETTE[1], "v"),
}


def forest_figure(orders: pd.DataFrame, *, metric: str = "f1") -> NotebookFigure:
    """Draw the orders of one metric that were run: a panel a data set, model and paper, an order a line, in points.

    `orders` is what `verify_orders` gave, or several of them. The mark is our difference, shaped and coloured by its
    verdict, hollow where that is open, the line its 95 % interval; the grey bar spans the paper's differences, from the
    smallest to the largest. Raises ValueError where none was run.
    """
    shown = orders[(orders["metric"] == metric) & (orders["verdict"] != NOT_RUN)]
    if shown.empty:
        raise ValueError(f"nothing to draw: no order of {metric} was run")
    panels = [rows.to_dict("records") for _, rows in shown.groupby(["dataset", "our_model", "paper"], sort=False)]
    longest = max(len(order_label(row)) for rows in panels for row in rows)
    heights = [_HEAD + _ROW * len(rows) for rows in panels]
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(_PANEL + _LETTER * longest, sum(heights) + 0.5),
            layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05),
        )
        grid = figure.add_gridspec(len(panels), 1, height_ratios=heights)
        shared: Axes | None = None
        for i, rows in enumerate(panels):
            axes = figure.add_subplot(grid[i], sharex=shared)
            shared = shared or axes
            _panel(axes, rows)
        axes.set_xlabel(f"{METRIC_LABELS.get(metric, metric)}: first - second system (points)")
        handles = [
            Line2D([], [], color=colour, marker=marker, label=verdict)
            for verdict, (colour, marker) in _VERDICTS.items()
        ]
        colour, marker = _VERDICTS[DIFFERS]
        handles.append(Line2D([], [], color=colour, marker=marker, markerfacecolor="white", label="differs; open"))
        handles.append(Line2D([], [], color=_LIGHT, linewidth=5, marker="none", label="the paper's differences"))
        figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure


def order_label(row: Mapping[Any, Any]) -> str:
    """How an order is printed: the first system is above the second."""
    sides = ((row[name], _short(row[setting])) for name, setting in (("method", "setting"), ("other", "other_setting")))
    return " > ".join(f"{name} {setting}" if setting else name for name, setting in sides).replace("_", " ")


def _short(setting: str) -> str:
    """A claim's setting as the papers write it: the limits of a loop by numbers alone (3-1), others with their name."""
    pairs = [pair.split("=") for pair in setting.split(";") if pair]
    limits = "-".join(value for name, value in pairs if name in _LIMITS)
    return ", ".join([*([limits] if limits else []), *(f"{n} {value}" for n, value in pairs if n not in _LIMITS)])


def _panel(axes: Axes, rows: list[dict[Any, Any]]) -> None:
    axes.set_title(
        f"{rows[0]['paper']} paper, tested on {rows[0]['dataset']} with {rows[0]['our_model']}",
        loc="right",  # it is longer than the panel, and there is room beside the labels
        fontweight="bold",
    )
    counts = [row["n"] for row in rows]
    labels = [f"{order_label(row)}  n = {row['n']}" if len(set(counts)) > 1 else order_label(row) for row in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first order on top
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True, axis="x")
    axes.axvline(0, color="black", linewidth=0.8, zorder=1, marker="none")
    for place, row in enumerate(rows):
        colour, marker = _VERDICTS[row["verdict"]]
        face = "white" if row["open"] else colour
        if not math.isnan(row["least"]):
            span = max(row["most"] - row["least"], _THINNEST)
            axes.barh(place, span, left=row["least"], height=0.6, color=_LIGHT, zorder=1)
        axes.plot([row["low"], row["high"]], [place, place], color=colour, marker="none", zorder=2)
        axes.plot(row["ours"], place, color=colour, marker=marker, markerfacecolor=face, linestyle="none", zorder=3)
