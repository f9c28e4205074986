"""What methods cost against what they score (DeepNote, Table 9; Chain-of-Note, Table 5): the Pareto front."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogFormatter

from rag_notes.config import ConfigError, load_prices, load_study
from rag_notes.llm.client import Price
from rag_notes.report.cells import method_label
from rag_notes.report.curves import axis_label, count_label, scale
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import counts
from rag_notes.running.records import Run, Sample
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import InputError

_PANEL_WIDTH, _PANEL_HEIGHT = 2.6, 2.5  # inches
_LEGEND_COLUMNS = 6
_OFFSETS = (5, -5, 12, -12)  # points above the mark, so that neighbours of one height do not hide each other


async def run(
    options: Sequence[str] = (), *, metric: str = "acc", model_priced: str = "gpt-4o-mini", progress: bool = True
) -> "Cost":
    """Run every chosen method and set `metric` against what it costs.

    A model without a price of its own is counted at that of `model_priced` in conf/prices.yaml. Raises ConfigError
    where that is not there, otherwise as `rag_notes.running.run.run_methods`.
    """
    if (price := load_prices().get(model_priced)) is None:
        raise ConfigError(f"model_priced: {model_priced!r} is not in conf/prices.yaml, which has {list(load_prices())}")
    config = load_study("cost", options)
    runs = await run_methods(config, options, progress=progress)
    return Cost(config, options, priced(runs, price), metric)


@dataclass(frozen=True, eq=False, repr=False)
class Cost(Study):
    """Money, calls and time of every method against its score."""

    metric: str

    @once
    def table(self) -> pd.DataFrame:
        """Cost and score of each method, and who is on the front, as `costs_and_scores`."""
        spent = counts(self.runs, ["cost", "calls", "seconds"], **self.intervals)
        return costs_and_scores(self.results(), spent, self.metric)

    def display(self) -> pd.DataFrame:
        """A row for each method: what it costs per question, and its score; the cheapest first."""
        points = self.table()
        wide = points.pivot_table(index=["dataset", "method"], columns="cost_metric", values="cost", sort=False)
        scores = points.groupby(["dataset", "method"])[["score", "score_low", "score_high", "n"]].first()
        return wide.join(scores).sort_values("cost")

    def figure(self) -> NotebookFigure:
        """The Pareto front; saved with the table."""
        return self.save(pareto_figure(self.table(), self.metric), self.table())


def priced(runs: Sequence[Run], price: Mapping[str, float]) -> list[Run]:
    """The runs with a `cost` for every sample without error: its own, or its tokens at this price.

    The traces are left out, as nothing of this study reads them.
    `price` has `prompt` and `completion` in US dollars per million tokens, as in conf/prices.yaml.
    """
    per_token = Price(price["prompt"], price["completion"])

    def with_cost(sample: Sample) -> Sample:
        sample = replace(sample, trace=[])
        if sample.error is not None or "cost" in sample.metrics:
            return sample
        cost = per_token.of(sample.counts.prompt_tokens, sample.counts.completion_tokens)
        return replace(sample, metrics=sample.metrics | {"cost": cost})

    return [replace(run, samples=[with_cost(sample) for sample in run.samples]) for run in runs]


def costs_and_scores(results: pd.DataFrame, counts: pd.DataFrame, metric: str) -> pd.DataFrame:
    """A row for each data set, method and count: cost and score beside each other, and who is on the front.

    `results` and `counts` are what the functions of these names gave. Columns: dataset, method, `cost_metric` with
    `cost`, `cost_low`, `cost_high`, `score` with `score_low`, `score_high` and `n`, and `front`: no other method of the
    data set scores at least as high for at most this cost and is better in one of the two.
    """
    scores = results[results["metric"] == metric].rename(
        columns={"mean": "score", "low": "score_low", "high": "score_high"}
    )
    costs = counts.rename(columns={"mean": "cost", "low": "cost_low", "high": "cost_high", "metric": "cost_metric"})
    both = costs.drop(columns=["n", "interval"]).merge(
        scores[["dataset", "method", "score", "score_low", "score_high", "n"]], on=["dataset", "method"]
    )
    both = both[both["score"].notna()].reset_index(drop=True)
    both["front"] = [
        not any(
            other["cost"] <= row["cost"]
            and other["score"] >= row["score"]
            and (other["cost"] < row["cost"] or other["score"] > row["score"])
            for other in both.to_dict("records")
            if (other["dataset"], other["cost_metric"]) == (row["dataset"], row["cost_metric"])
        )
        for row in both.to_dict("records")
    ]
    return both


def pareto_figure(points: pd.DataFrame, metric: str) -> NotebookFigure:
    """Draw what `costs_and_scores` gave: a panel for each data set and count, methods by number, the front joined.

    The horizontal axis is logarithmic; the legend names the numbers; methods off the front are hollow. Raises
    ValueError where there is nothing to draw.
    """
    if points.empty:
        raise InputError("nothing to draw: no question was answered without error")
    datasets, kinds, methods = (list(dict.fromkeys(points[name])) for name in ("dataset", "cost_metric", "method"))
    with mpl.rc_context(STYLE):
        legend_rows = math.ceil(len(methods) / _LEGEND_COLUMNS)
        figure = NotebookFigure(
            figsize=(len(kinds) * _PANEL_WIDTH, len(datasets) * _PANEL_HEIGHT + 0.17 * legend_rows),
            layout="constrained",
        )
        grid = figure.subplots(len(datasets), len(kinds), squeeze=False)
        for axes_row, dataset in zip(grid, datasets, strict=True):
            for axes, kind in zip(axes_row, kinds, strict=True):
                cells = points[(points["dataset"] == dataset) & (points["cost_metric"] == kind)]
                _panel(axes, cells, methods)
                axes.set_xlabel(f"{axis_label(str(kind))}\n{count_label(cells)}")
                axes.set_ylabel(axis_label(metric))
            axes_row[0].set_title(str(dataset), loc="left", fontweight="bold")
        names = [f"{number} {method_label(str(name))}" for number, name in enumerate(methods, 1)]
        figure.legend(
            [Line2D([], [], linestyle="none", marker="none")] * len(names),
            names,
            loc="outside lower center",
            ncols=_LEGEND_COLUMNS,
            handlelength=0,
            handletextpad=0,
        )
    return figure


def _panel(axes: Axes, cells: pd.DataFrame, methods: Sequence[str]) -> None:
    scaled = cells.assign(x=scale(str(cells["cost_metric"].iloc[0])) * cells["cost"], y=100 * cells["score"])
    front = scaled[scaled["front"]].sort_values(["x", "y"], kind="stable")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(LogFormatter())  # plain numbers too
    axes.plot(front["x"], front["y"], color=PALETTE[0], marker="none", zorder=1)
    labelled: dict[float, int] = {}  # by height, the points that have a label: the next one goes to another place
    for _, here in scaled.groupby(["y", "x"], sort=True):  # methods at one point share a label
        x, y, on_front = float(here["x"].iloc[0]), float(here["y"].iloc[0]), bool(here["front"].any())
        offset = _OFFSETS[labelled.get(y, 0) % len(_OFFSETS)]
        labelled[y] = labelled.get(y, 0) + 1
        colour = PALETTE[0] if on_front else "#595959"
        axes.plot(
            x, y, marker="o", color=colour, markerfacecolor=colour if on_front else "white", linestyle="none", zorder=2
        )
        axes.annotate(
            ", ".join(str(methods.index(name) + 1) for name in here["method"]),
            (x, y),
            xytext=(0, offset),
            textcoords="offset points",
            ha="center",
            va="bottom" if offset > 0 else "top",
            fontsize=6.5,
            fontweight="bold" if on_front else "normal",
            color=colour,
        )
    axes.margins(x=0.1, y=0.12)
    axes.grid(visible=True)
