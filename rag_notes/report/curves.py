"""Scores along a setting: what thresholds, the number of passages or noise do to a method, as table rows and figure."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.figures import MARKERS, PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import METRIC_LABELS
from rag_notes.running.records import Run
from rag_notes.types import InputError

_COUNT_LABELS = {
    "searches": "Searches a question",
    "later_searches": "Searches after the first",
    "distinct_passages": "Passages read",
    "calls": "Calls a question",
    "tokens": "Thousand tokens a question",
    "completion_tokens": "Tokens written a question",
    "cost": "US dollars for 1,000 questions",
    "computing": "Seconds of computing a question",
    "seconds": "Seconds waited a question",
}
_PANEL_WIDTH, _PANEL_HEIGHT, _LEGEND_ROW = 2.6, 2.0, 0.2  # inches
_KEY = 0.7  # inches, of a legend's line and the space about its name
_SHORT, _NAME, _LETTER = 6, 0.18, 0.07  # letters that stand side by side; inches for a longer name, for its letter


def with_settings(table: pd.DataFrame, runs: Sequence[Run], settings: Sequence[str]) -> pd.DataFrame:
    """Return the rows of a table of `results` or `counts` with the settings that their methods were run with.

    Adds `family`, the name of the method's function, and a column for each of `settings`, empty where the method has
    none of that name.
    """
    methods = {(run.label, name): method for run in runs for name, method in run.info.methods.items()}
    described = [methods[row["dataset"], row["method"]] for row in table.to_dict("records")]
    added: dict[str, Any] = {name: [method.settings.get(name) for method in described] for name in settings}
    return table.assign(family=[method.family for method in described], **added)


def curve_figure(points: pd.DataFrame, x: str, xlabel: str, *, line: str = "family") -> NotebookFigure:
    """Draw `mean` with its interval against `x`: a panel for each data set and metric, a curve for each `line`.

    `points` are rows of `results` or `counts` with the columns `x` and `line` added. Text in `x` is drawn at equal
    distances, in the order of first appearance; names stand upright, and their marks are not joined. A metric of
    `results` is drawn in %, another one as it is. Raises ValueError where there is nothing to draw.
    """
    points = points[points["mean"].notna()]
    if points.empty:
        raise InputError("nothing to draw: no question was answered without error")
    datasets, metrics, lines = (list(dict.fromkeys(points[name])) for name in ("dataset", "metric", line))
    categories = None if pd.api.types.is_numeric_dtype(points[x]) else list(dict.fromkeys(points[x]))
    with mpl.rc_context(STYLE):
        rows, columns = len(datasets), len(metrics)
        names = [str(category) for category in categories or []]
        upright = max(map(len, names), default=0) > _SHORT
        width = max(_PANEL_WIDTH, _NAME * len(names) * upright)
        height = _PANEL_HEIGHT + upright * _LETTER * max(map(len, names), default=0)
        longest = max(len(method_label(str(name))) for name in lines)
        beside = max(1, min(len(lines), int(max(columns * width, 3.4) / (_KEY + _LETTER * longest))))
        figure = NotebookFigure(
            figsize=(max(columns * width, 3.4), rows * height + _LEGEND_ROW * math.ceil(len(lines) / beside)),
            layout="constrained",
        )
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes_row, dataset in zip(grid, datasets, strict=True):
            for axes, metric in zip(axes_row, metrics, strict=True):
                cells = points[(points["dataset"] == dataset) & (points["metric"] == metric)]
                by_line = [(str(name), cells[cells[line] == name]) for name in lines]
                _curves(axes, by_line, x, categories, joined=not upright)
                axes.set_xlabel(f"{xlabel}\n{count_label(cells)}")
                axes.set_ylabel(axis_label(metric))
                if upright:
                    axes.tick_params(axis="x", rotation=90)
            axes_row[0].set_title(dataset_label(str(dataset)), loc="left", fontweight="bold")
        handles, labels = max((axes.get_legend_handles_labels() for axes in figure.axes), key=lambda both: len(both[1]))
        figure.legend(handles, labels, loc="outside lower center", ncols=beside)
    return figure


def axis_label(metric: str) -> str:
    """What an axis says of a metric or count: its name and unit."""
    return _COUNT_LABELS.get(metric) or f"{METRIC_LABELS.get(metric, metric)} (%)"


def count_label(cells: pd.DataFrame) -> str:
    """How many questions the cells cover, least and most."""
    least, most = (0, 0) if cells.empty else (int(cells["n"].min()), int(cells["n"].max()))
    return f"n = {most}" if least == most else f"n = {least} to {most}"


def scale(metric: str) -> float:
    """By what a figure multiplies a metric: to %, to money for 1,000 questions, to thousands of tokens."""
    return {"cost": 1000.0, "tokens": 0.001}.get(metric, 1.0) if metric in _COUNT_LABELS else 100.0


def _curves(
    axes: Axes,
    by_line: Sequence[tuple[str, pd.DataFrame]],
    x: str,
    categories: Sequence[Any] | None,
    *,
    joined: bool,
) -> None:
    for number, (name, own) in enumerate(by_line):
        if own.empty:
            continue
        places = own[x] if categories is None else own[x].map(list(categories).index)
        points = own.assign(place=places.astype(float)).sort_values("place", kind="stable")
        factor = scale(str(points["metric"].iloc[0]))
        mean = factor * points["mean"]
        reach = [mean - (factor * points["low"]).fillna(mean), (factor * points["high"]).fillna(mean) - mean]
        shift = 0.0 if categories is None else 0.12 * (number - (len(by_line) - 1) / 2)  # intervals beside each other
        axes.errorbar(
            points["place"] + shift,
            mean,
            yerr=reach,
            label=method_label(name),
            color=PALETTE[number % len(PALETTE)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle="-" if joined else "none",
            elinewidth=0.7,
            capsize=1.5,
        )
    axes.grid(visible=True, axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
    if categories is not None:
        axes.set_xticks(range(len(categories)), [str(category) for category in categories])
        axes.set_xlim(-0.5, len(categories) - 0.5)
