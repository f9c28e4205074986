"""Figures made from frames, in one style: `forest`, `curves`, `bars`, `scatter`, and `save`.

A frame has a row for each mark: `label`, `mean`, `low` and `high`, the name of their axis as `panel`, and where marks
differ their `kind`. Everything is drawn in the order of the frame's rows.
"""

import math
import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator

from rag_notes.report import drawing
from rag_notes.report.drawing import Look, NotebookFigure, save
from rag_notes.types import InputError

__all__ = ["LOOKS", "VERDICTS", "Look", "NotebookFigure", "bars", "curves", "forest", "save", "scatter"]

COLUMN, PAGE = 3.4, 7.0
"""Widths of a paper's column and page, in inches."""

BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
GREY, LIGHT, BLACK = "#5F5F5F", "#D5D5D5", "#000000"

LOOKS = tuple(map(Look, (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK), "os^DvPX"))
"""The colours of Okabe and Ito without yellow, each with a marker, so that they differ in grey print, too."""

VERDICTS: Mapping[str, Look] = {
    "better": Look(BLUE, "^"),
    "worse": Look(VERMILLION, "v"),
    "equivalent": Look(GREEN, "D", size=4),
    "no significant difference": Look(GREY, filled=False),
    "undecided": Look(GREY, filled=False),
    "baseline": Look(BLACK, "s"),
}
"""How the results of tests look."""

_ROW, _HEAD, _LINE, _GAP = 0.165, 0.6, 0.14, 0.3  # inches, of a row, axis and legend, a line of text; rows, of a gap
_RULE: dict[str, Any] = {"color": "#A0A0A0", "linewidth": 0.7, "zorder": 1}


def forest(
    table: pd.DataFrame, *, group: str = "", looks: Mapping[str, Look] = VERDICTS, note: str = "", width: float = PAGE
) -> NotebookFigure:
    """Draw a row for each `label` under a heading for each `group`: means with their intervals, a panel each.

    A line stands at the mean of the row of the kind `baseline`, in its group where each has one; without any, at 0
    where the values are on both sides of it. Where the frame has `least` and `most`, a grey bar spans them: a paper's
    differences. The legend names the kinds under the `note`, save those that are the row's own label.
    """
    _require(table, "label", "mean", "low", "high", "panel", "kind", *([group] if group else []))
    table = table.assign(heading=table[group].astype(str) if group else "")
    heights: dict[tuple[Any, str], float] = {}
    for number, (heading, labels) in enumerate(table.groupby("heading", sort=False)["label"]):
        for label in [*([""] if group else []), *labels.unique()]:
            heights[heading, label] = len(heights) + _GAP * number
    bottom, lines = max(heights.values()), 2 + len(textwrap.wrap(note, int(18 * width)))
    panels: Any = table.groupby("panel", sort=False)
    with drawing.figure_of((width, _HEAD + _LINE * lines + _ROW * bottom), len(panels), sharey=True) as (figure, grid):
        for axes, (_, part) in zip(grid, panels, strict=True):
            baselines = part[part["kind"] == "baseline"].set_index("heading")["mean"]
            for heading, mean in baselines.items():
                rows = [height for key, height in heights.items() if key[0] == heading or len(baselines) == 1]
                axes.plot([mean, mean], [min(rows) - 0.5, max(rows) + 0.5], **_RULE)
            if baselines.empty and part["low"].min() < 0 < part["high"].max():
                axes.axvline(0, **_RULE)
            for row in part.dropna(subset="mean").to_dict("records"):
                height = heights[row["heading"], row["label"]]
                if not math.isnan(least := row.get("least", math.nan)):
                    extent = max(row["most"] - least, 0.2)
                    left = (least + row["most"] - extent) / 2
                    axes.barh(height, extent, 0.6, left=left, color=LIGHT, zorder=0.9)
                drawing.mark(axes, row["mean"], height, looks[row["kind"]], (row["low"], row["high"]))
            axes.grid(visible=True, axis="x")
            axes.locator_params(axis="x", nbins=5)
        grid[0].set_ylim(bottom + 0.6, -0.6)
        grid[0].set_yticks([*heights.values()], [label or heading for heading, label in heights])
        for text, (_, label) in zip(grid[0].get_yticklabels(), heights, strict=True):
            text.set_fontweight("normal" if label else 600)
        kinds = set(table.loc[table["mean"].notna() & (table["kind"] != table["label"]), "kind"])
        handles: list[Any] = [Line2D([], [], label=kind, **look.line) for kind, look in looks.items() if kind in kinds]
        handles += [Patch(facecolor=LIGHT, label="the paper's differences")] if "least" in table else []
        drawing.add_legend(figure, handles, "lower", note)
        drawing.name_rows(figure, *grid)
        for axes, (name, part) in zip(grid, panels, strict=True):
            axes.set_xlabel(_with_count(textwrap.fill(name, int(0.16 * axes.bbox.width)), part, "\n"))
    return figure


def curves(
    table: pd.DataFrame,
    x: str,
    *,
    looks: Mapping[str, Look] | None = None,
    band: bool = False,
    dodge: float = 0.0,
    ylabel: str = "",
    size: tuple[float, float] = (PAGE, 2.3),
) -> NotebookFigure:
    """Draw `mean` with its interval against `x`, a line for each `label`, named at its end, a panel each.

    With `band` the intervals are shaded; `dodge` is the distance between the marks of lines at the same `x`; columns
    `x_low` and `x_high` are the interval of `x`. Panels that have one `ylabel` share their axis.
    """
    _require(table, "label", "mean", "panel", x)
    looks = looks or dict(zip(table["label"].unique(), LOOKS, strict=False))
    panels: Any = table.groupby("panel", sort=False)
    with drawing.figure_of(size, len(panels), sharey=bool(ylabel)) as (figure, grid):
        ends: list[list[tuple[float, float, str, Any]]] = []
        for axes, (name, part) in zip(grid, panels, strict=True):
            lines = [label for label in looks if label in set(part["label"])]
            ends.append([])
            for number, label in enumerate(lines):
                line, look = part[part["label"] == label].sort_values(x, kind="stable"), looks[label]
                xs = line[x].astype(float) + dodge * (number - (len(lines) - 1) / 2)
                axes.plot(xs, line["mean"], color=look.colour, zorder=2)
                if band and "low" in line:
                    bounds = line["low"].astype(float), line["high"].astype(float)
                    axes.fill_between(xs, *bounds, color=look.colour, alpha=0.13, linewidth=0)
                for position, row in zip(xs, line.to_dict("records"), strict=True):
                    drawing.mark(axes, position, row["mean"], look, *_intervals(row, band))
                ends[-1].append((line.get("x_high", xs).iloc[-1], line["mean"].iloc[-1], label, look.ink))
            title = textwrap.fill(_with_count(name, part), int(17 * size[0] / len(panels)))
            axes.set_title(title if len(panels) > 1 else "")
            axes.set(xlabel=x, ylabel=title if len(panels) == 1 else ylabel if axes is grid[0] else "")
            if all(float(value).is_integer() for value in part[x]):
                axes.set_xticks(sorted(set(part[x])))  # where something was run
            axes.locator_params(axis="y", nbins=5)
            axes.grid(visible=True, axis="y")
        figure.draw_without_rendering()
        for axes, line_ends in zip(grid, ends, strict=True):
            drawing.label_ends(axes, line_ends)
    return figure


def bars(table: pd.DataFrame, *, looks: Mapping[str, Look], smallest: float = 6, width: float = PAGE) -> NotebookFigure:
    """Draw a bar for each `label`, stacked of its `kind`s in the order of `looks`.

    Parts of `smallest` or more have their number in them.
    """
    _require(table, "label", "mean", "kind", "panel")
    wide = table.pivot_table("mean", "label", "kind", sort=False).reindex(columns=[*looks]).fillna(0)
    with drawing.figure_of((width, 1.05 + 0.185 * len(wide))) as (figure, (axes,)):
        left = np.zeros(len(wide))
        for name, look in looks.items():
            style: dict[str, Any] = {"color": look.colour, "hatch": look.hatch, "edgecolor": "white", "linewidth": 0.6}
            parts = axes.barh(wide.index, wide[name], 0.78, left=left, label=name, **style)
            colour = "white" if np.dot(to_rgb(look.colour), (0.3, 0.59, 0.11)) < 0.55 else BLACK
            numbers = [f"{share:.0f}" if share >= smallest else "" for share in wide[name]]
            for text in axes.bar_label(parts, numbers, label_type="center", fontsize=7.5):
                box = {"facecolor": look.colour, "edgecolor": "none", "boxstyle": "square,pad=0.05"}
                text.set(color=colour, bbox=box if look.hatch and text.get_text() else None, position=(0, -0.7))
            left = left + wide[name].to_numpy()
        axes.set(ylim=(len(wide) - 0.5, -0.5), xlim=(0, left.max()), xlabel=_with_count(table["panel"].iloc[0], table))
        drawing.add_legend(figure, axes.get_legend_handles_labels()[0], "upper")
        drawing.name_rows(figure, axes)
    return figure


def scatter(
    table: pd.DataFrame,
    x: str,
    *,
    looks: Mapping[str, Look] | None = None,
    front: bool = False,
    log: bool = False,
    typical: str = "",
    size: tuple[float, float] = (PAGE, 3.6),
) -> NotebookFigure:
    """Draw `mean` against `x`, each mark named by its `label` beside it, intervals in both directions.

    The steps of the `front` show the best mean that can be had for at most so much of `x`. With `typical`, a text such
    as "typical 95 % interval", one interval of the median width at the lower right stands for all.
    """
    _require(table, "label", "mean", "low", "high", "kind", "panel", x)
    looks = looks or dict(zip(table["kind"].unique(), LOOKS, strict=False))
    with drawing.figure_of(size) as (figure, (axes,)):
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
        for row in sorted(table.to_dict("records"), key=lambda row: -looks[row["kind"]].size):  # small marks on top
            intervals = _intervals(row, bool(typical))
            drawing.mark(axes, row[x], row["mean"], looks[row["kind"]], *intervals, alpha=0.3, linewidth=0.8)
        steps = np.empty((0, 2))
        if front:
            best = table.sort_values([x, "mean"], ascending=[True, False], kind="stable")
            best = best[best["mean"] > best["mean"].cummax().shift(fill_value=-math.inf)]
            steps = np.array([[*np.repeat(best[x], 2)[1:], table[x].max()], np.repeat(best["mean"], 2)]).T
            axes.plot(*steps.T, color=BLACK, linewidth=0.9, zorder=1.8)
        axes.grid(visible=True)
        axes.margins(0.06)
        axes.locator_params(axis="y", nbins=6)
        axes.set(xlabel=x, ylabel=_with_count(table["panel"].iloc[0], table))
        if typical:
            half, (bottom, top) = (table["high"] - table["low"]).median() / 2, axes.get_ylim()
            middle, across = bottom + half + 0.05 * (top - bottom), axes.get_yaxis_transform()
            axes.errorbar(0.97, middle, half, color=GREY, capsize=2, elinewidth=0.9, transform=across)
            axes.text(0.955, middle, typical, color=GREY, ha="right", va="center", transform=across)
        handles = [Line2D([], [], label=kind, **look.line) for kind, look in looks.items()]
        drawing.add_legend(figure, handles, "upper")
        figure.draw_without_rendering()
        drawing.label_marks(axes, table[table["label"] != ""], x, looks, steps)
    return figure


def _require(table: pd.DataFrame, *columns: str) -> None:
    if missing := [name for name in columns if name not in table]:
        names = ", ".join(map(str, table))
        raise InputError(f"the frame has no column {missing[0]!r}, which this figure draws; it has {names}")
    if table["mean"].isna().all():
        raise InputError("nothing to draw: the frame has no row with a mean")


def _intervals(row: Mapping[Any, Any], shown_otherwise: bool) -> list[tuple[float, float]]:
    """The intervals of `x` and of the mean, NaN where there is none or it is shown otherwise."""
    names = [("x_low", "x_high"), ("", "") if shown_otherwise else ("low", "high")]
    return [(row.get(low, math.nan), row.get(high, math.nan)) for low, high in names]


def _with_count(name: Any, rows: pd.DataFrame, separator: str = ", ") -> str:
    """An axis' name with the number of questions."""
    counts = rows["n"].dropna().astype(int) if "n" in rows else pd.Series(dtype=int)
    number = " to ".join(map(str, dict.fromkeys([counts.min(), counts.max()])))
    return f"{name}{separator}n = {number}" if len(counts) else str(name)
