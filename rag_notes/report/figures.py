"""Figures of results, drawn from tables alone, in one style that also reads in grey print."""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.csv_file import write_csv
from rag_notes.report.tables import ANSWER_METRICS, METRIC_LABELS
from rag_notes.types import InputError

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The colours of Okabe and Ito, told apart by the colour-blind; yellow is left out, too light on white."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""A marker for each colour, told apart without it."""

STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
    "font.size": 8,
    "text.parse_math": False,  # a dollar sign in a name is one
    "axes.titlesize": 8.5,
    "axes.labelsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(color=PALETTE, marker=MARKERS),
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 5,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "pdf.fonttype": 42,  # letters stay letters: searchable, and accepted by publishers
}
"""Settings of matplotlib for every figure; use as `matplotlib.rc_context(STYLE)`."""

_DPI = 200
_COLUMN_WIDTH, _PAGE_WIDTH = 3.4, 7.0  # inches, of a paper
_IN_COLUMN = 3  # panels side by side that a column takes
_LABELS_WIDTH = 1.1  # inches, for the methods' names
_LETTER = 0.065  # inches
_ROW, _ROW_WITH_PAPER = 0.18, 0.26  # inches for a method
_GREY = "#595959"
_UNBROKEN = "\N{NO-BREAK SPACE}"
_TESTS = {  # of the test against the baseline: colour, marker, what the legend says
    "better": (PALETTE[0], "^", "significantly better"),
    "worse": (PALETTE[1], "v", "significantly worse"),
    "not significant": (_GREY, "o", "no significant difference"),
    "baseline": ("black", "s", "baseline"),
}
_HOLLOW: dict[str, Any] = {
    "linestyle": "none",
    "markersize": 5.5,
    "markerfacecolor": "none",
    "markeredgecolor": _GREY,
    "markeredgewidth": 0.8,
}
_PAPER_MARKERS = ("o", "s", "D", "<", ">", "p", "*", "h", "P", "X", "d", "^")  # one for each model of the four papers


def _know_shipped_fonts() -> None:
    """Make matplotlib find the fonts it brings along, before any other of the same name.

    The list it keeps in the user's cache lacks them for good once it was written while an environment was removed; the
    letters of a figure would then be those of whatever the machine has installed.
    """
    shipped = Path(mpl.get_data_path(), "fonts", "ttf")
    known = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(map(str, shipped.glob("*.ttf"))):
        if path not in known:
            fontManager.addfont(path)
    fontManager.ttflist.sort(key=lambda entry: Path(entry.fname).parent != shipped)  # stable


_know_shipped_fonts()


class NotebookFigure(Figure):
    """A figure that a notebook shows as an image, without pyplot or a backend chosen for the whole process."""

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        return _bytes_of(self, "png"), {"width": 96 * self.get_figwidth()}


def main_figure(
    results: pd.DataFrame,
    *,
    paper: pd.DataFrame | None = None,
    metrics: Sequence[str] = ANSWER_METRICS,
    families: Mapping[str, str] | None = None,
    differences: bool = False,
) -> NotebookFigure:
    """Draw every method's mean with its interval: a row of panels a data set, a panel for each of its metrics, in %.

    A metric by which all methods are equal has no panel where others have; with `differences` each has one more, of the
    paired differences to the baseline in points. `results` is what `results` of the tables gave. Methods are in the
    order of their means in a row's first panel, the
    best on top, equal ones by the next; `families` names what a method belongs to, and keeps those of a family
    together, in the order of the families. The vertical line is the baseline; colour and marker say how the test
    against it came out. The figure is as wide as a paper's column where three panels a row do, otherwise as its page.
    `paper` has the papers' values, with the columns dataset, method, metric, `theirs`, paper and model: hollow marks, a
    shape for each of their models. Raises ValueError where `results` has none of `metrics`.
    """
    panels = {dataset: _panels(rows, metrics, differences) for dataset, rows in results.groupby("dataset", sort=False)}
    panels = {dataset: shown for dataset, shown in panels.items() if shown}
    if not panels:
        raise InputError(f"nothing to draw: the results have none of the metrics {list(metrics)}")
    shown = results[results["metric"].isin(metrics)]
    theirs = pd.DataFrame(columns=["paper", "model", "dataset", "metric"]) if paper is None else paper
    theirs = theirs[theirs["metric"].isin(metrics)]
    models = list(dict.fromkeys(zip(theirs["paper"], theirs["model"], strict=True)))
    markers = dict(zip(models, _PAPER_MARKERS * math.ceil(len(models) / len(_PAPER_MARKERS)), strict=False))

    methods = {str(dataset): _ordered(shown[shown["dataset"] == dataset], families or {}) for dataset in panels}
    columns = max(len(of_dataset) for of_dataset in panels.values())
    row = _ROW_WITH_PAPER if models else _ROW
    head = 1.0 if differences else 0.68  # for a longer label below
    heights = [head + row * len(methods[str(dataset)]) for dataset in panels]
    width = _COLUMN_WIDTH if columns <= _IN_COLUMN and not models else _PAGE_WIDTH
    letters = int((width - _LABELS_WIDTH) / columns / _LETTER)
    with mpl.rc_context(STYLE):
        handles = _legend_handles(shown, markers)
        legend_columns = max(1, int(width / (2.9 if models else 1.7)))  # inches that the longest label needs
        title = textwrap.fill(_legend_title(shown), int(width / _LETTER)).replace(_UNBROKEN, " ")
        legend_height = 0.18 * (2 + title.count("\n") + math.ceil(len(handles) / legend_columns))
        figure = NotebookFigure(
            figsize=(width, sum(heights) + legend_height),
            layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05),
        )
        grid = figure.add_gridspec(len(panels), columns, height_ratios=heights)
        for i, (dataset, of_dataset) in enumerate(panels.items()):
            for j, (metric, of_difference) in enumerate(of_dataset):
                axes = figure.add_subplot(grid[i, j])
                cells = shown[(shown["dataset"] == dataset) & (shown["metric"] == metric)]
                marks = theirs[(theirs["dataset"] == dataset) & (theirs["metric"] == metric)]
                if of_difference:
                    cells, marks = _as_differences(cells), marks[:0]
                _panel(axes, cells, methods[str(dataset)], marks, markers)
                _part_families(axes, methods[str(dataset)], families or {})
                axes.xaxis.set_major_locator(_ticks(letters))
                unit = f"- {method_label(str(cells['baseline'].iloc[0]))} (points)" if of_difference else "(%)"
                axes.set_xlabel(_metric_label(metric, unit, cells, letters))
                if j == 0:
                    axes.set_title(dataset_label(str(dataset)), loc="left", fontweight="bold")
                else:
                    axes.tick_params(labelleft=False)
        figure.legend(
            handles=handles,
            title=title,
            title_fontsize=8,
            loc="outside lower center",
            ncols=legend_columns,
            handlelength=1.8,
        )
    return figure


def save_figure(figure: Figure, data: pd.DataFrame, folder: str | Path, name: str) -> list[Path]:
    """Write `name`.png, `name`.pdf and, as `name`.csv, the data behind the figure; returns the three paths.

    The same figure and data give the same bytes: the files hold no date and no program's name.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in ("png", "pdf"):
        path = folder / f"{name}.{kind}"
        path.write_bytes(_bytes_of(figure, kind))
        paths.append(path)
    return [*paths, write_csv(data, folder / f"{name}.csv")]


def _bytes_of(figure: Figure, kind: str) -> bytes:
    metadata = {"png": {"Software": None}, "pdf": {"CreationDate": None, "Creator": None, "Producer": None}}
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        if figure.get_layout_engine() is not None:
            # A second layout differs a little from the first: what was shown before would change the file.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata[kind])
    return buffer.getvalue()


def _panel(
    axes: Axes,
    cells: pd.DataFrame,
    methods: Sequence[str],
    marks: pd.DataFrame,
    markers: Mapping[tuple[str, str], str],
) -> None:
    places = {method: float(place) for place, method in enumerate(methods)}
    axes.set_yticks(range(len(methods)), [method_label(method) for method in methods])
    axes.set_ylim(len(methods) - 0.5, -0.5)  # the first method on top
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True)
    axes.grid(visible=not markers, axis="y")
    if markers:  # bands hold together what stands on two lines
        for band in range(0, len(methods), 2):
            axes.axhspan(band - 0.5, band + 0.5, color="#f3f3f3", linewidth=0, zorder=0)
    apart = 0.2 if len(markers) else 0.0  # ours above the line, the papers' below it: neither hides the other
    for row in marks.to_dict("records"):
        marker = markers[row["paper"], row["model"]]
        axes.plot(row["theirs"], places[row["method"]] + apart, marker=marker, **_HOLLOW)
    for row in cells.to_dict("records"):
        colour, marker, _ = _TESTS[_test_of(row)]
        place = places[row["method"]] - apart
        axes.plot([100 * row["low"], 100 * row["high"]], [place, place], color=colour, marker="none")
        axes.plot(100 * row["mean"], place, color=colour, marker=marker, linestyle="none", zorder=3)
        if row["method"] == row["baseline"]:
            axes.axvline(100 * row["mean"], color="#9a9a9a", linewidth=0.9, zorder=0.9, marker="none")
    axes.margins(x=0.08)


def _ticks(letters: int) -> MaxNLocator:
    """As many numbers below a panel as its width takes."""
    return MaxNLocator(nbins=min(5, max(2, letters // 6)), steps=[1, 2, 2.5, 5, 10], min_n_ticks=2)


def _test_of(row: Mapping[Any, Any]) -> str:
    if row["method"] == row["baseline"]:
        return "baseline"
    if not row["significant"]:
        return "not significant"
    return "better" if row["difference"] > 0 else "worse"


def _ordered(shown: pd.DataFrame, families: Mapping[str, str]) -> list[str]:
    """The methods of a data set, the best of a family first."""
    order = list(dict.fromkeys(families.values()))
    keys: dict[str, tuple[int, list[float]]] = {}
    for method, mean in zip(shown["method"], shown["mean"], strict=True):
        family = order.index(families[method]) if method in families else len(order)
        keys.setdefault(method, (family, []))[1].append(math.inf if math.isnan(mean) else -mean)
    return sorted(keys, key=lambda method: keys[method])


def _panels(rows: pd.DataFrame, metrics: Sequence[str], differences: bool) -> list[tuple[str, bool]]:
    """The panels of a data set: a metric, and whether its differences are shown."""
    spread = rows.groupby("metric")["mean"].nunique()
    there = [metric for metric in metrics if metric in spread.index]
    shown = [metric for metric in there if spread[metric] > 1] or there
    compared = differences and rows["difference"].notna().any()
    return [(metric, kind) for metric in shown for kind in ((False, True) if compared else (False,))]


def _as_differences(cells: pd.DataFrame) -> pd.DataFrame:
    """The differences in the place of the means, the baseline's own 0 without interval."""
    own = cells["method"] == cells["baseline"]
    drawn = cells.assign(mean=cells["difference"], low=cells["difference_low"], high=cells["difference_high"])
    drawn.loc[own, "mean"] = 0.0
    return drawn.assign(n=cells["n_paired"].where(~own))


def _part_families(axes: Axes, methods: Sequence[str], families: Mapping[str, str]) -> None:
    for place, (above, below) in enumerate(pairwise(methods)):
        if families.get(above) != families.get(below):
            axes.axhline(place + 0.5, color="#9a9a9a", linewidth=0.6, linestyle=":", marker="none")


def _metric_label(metric: str, unit: str, cells: pd.DataFrame, letters: int) -> str:
    least, most = cells["n"].min(), cells["n"].max()
    n = str(most) if least == most else f"{least} to {most}"
    return textwrap.fill(f"{METRIC_LABELS.get(metric, metric)} {unit}", letters) + f"\nn = {n}"


def _legend_title(shown: pd.DataFrame) -> str:
    confidence, baseline = shown["confidence"].iloc[0], shown["baseline"].iloc[0]
    level = f"p < {1 - confidence:.2g}".replace(" ", _UNBROKEN)
    test = f"; test against {method_label(baseline)}, {level} after Holm" if baseline else ""
    return f"Mean with {100 * confidence:g} % interval{test}"


def _legend_handles(shown: pd.DataFrame, markers: Mapping[tuple[str, str], str]) -> list[Line2D]:
    present = {_test_of(row) for row in shown.to_dict("records")}
    compared = bool(shown["baseline"].iloc[0])
    handles = [
        Line2D([], [], color=colour, marker=marker, label=label if compared else "mean")
        for result, (colour, marker, label) in _TESTS.items()
        if result in present
    ]
    handles += [
        Line2D([], [], marker=marker, label=f"{model} ({paper} paper)", **_HOLLOW)
        for (paper, model), marker in markers.items()
    ]
    return handles
