"""Scores against the share of noise among the passages, beside the paper's (Chain-of-Note, section 3.3, Table 3)."""

import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rag_notes.metrics.stats import paired_difference
from rag_notes.papers.numbers import paper_cells
from rag_notes.report.figures import MARKERS, PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import ANSWER_METRICS, METRIC_LABELS, results
from rag_notes.running.records import Run
from rag_notes.types import Dataset

_LINES = ("-", "--", "-.", ":")


def noise_results(
    runs: Sequence[Run], *, baseline: str | None = "vanilla", confidence: float = 0.95, resamples: int = 10_000
) -> pd.DataFrame:
    """Return what `rag_notes.report.results` gives for the runs of `rag_notes.studies.noise.run_noise`, by noise ratio.

    `dataset` is the data set's own name; the column `noise_percent` stands behind it.
    """
    table = results(runs, baseline=baseline, confidence=confidence, resamples=resamples)
    percent = {run.dataset: _noise(run) for run in runs}
    table.insert(1, "noise_percent", [percent[name] for name in table["dataset"]])
    table["dataset"] = [_plain_name(name) for name in table["dataset"]]
    return table


def noise_table(table: pd.DataFrame, metrics: Sequence[str] = ANSWER_METRICS) -> pd.DataFrame:
    """Lay out what `noise_results` gave in %: a row for each data set, metric and method, a column for each ratio.

    A cell is `mean [low, high]`, with `*` where the difference to the baseline is significant.
    """
    shown = table[table["metric"].isin(metrics)]
    cells = pd.DataFrame(
        {
            "data set": shown["dataset"],
            "metric": [METRIC_LABELS[metric] for metric in shown["metric"]],
            "method": shown["method"],
            "noise": [f"{percent} % noise" for percent in shown["noise_percent"]],
            "cell": [_cell(row) for row in shown.to_dict("records")],
        }
    )
    wide = cells.pivot_table(
        index=["data set", "metric", "method"], columns="noise", values="cell", aggfunc="first", sort=False
    )
    return wide.fillna("–")


def noise_passages(runs: Sequence[Run], datasets: Sequence[Dataset]) -> pd.DataFrame:
    """Return a row for each data set, ratio and method: what was really read, and how many questions it covers.

    `questions` can be controlled, `left_out` of the data set cannot; `answered` are those without error. `gold` and
    `noise` are mean numbers of passages read, `all_gold` and `answer` the shares of questions, from 0 to 1, with all
    gold passages and with a gold answer among them: what the best reader could reach.
    """
    by_name = {dataset.name: dataset for dataset in datasets}
    rows = []
    for run in runs:
        dataset = by_name[_plain_name(run.dataset)]
        gold = {question.id: set(question.gold_ids) for question in dataset.questions}
        for method in run.methods:
            samples = [sample for sample in run.samples if sample["method"] == method]
            answered = [sample for sample in samples if sample["error"] is None]
            read = [(sample["question_id"], hit["id"]) for sample in answered for hit in sample["trace"][0]["hits"]]
            golden = sum(name in gold[question_id] for question_id, name in read)
            scores = pd.DataFrame(
                [sample["metrics"] for sample in answered], columns=["all_gold_first", "answer_in_passages_first"]
            )
            rows.append(
                {
                    "dataset": dataset.name,
                    "noise_percent": _noise(run),
                    "method": method,
                    "questions": len(samples),
                    "left_out": len(dataset.questions) - len(samples),
                    "answered": len(answered),
                    "gold": golden / len(answered) if answered else math.nan,
                    "noise": (len(read) - golden) / len(answered) if answered else math.nan,
                    "all_gold": scores["all_gold_first"].mean(),
                    "answer": scores["answer_in_passages_first"].mean(),
                }
            )
    return pd.DataFrame(rows)


def noise_losses(
    runs: Sequence[Run],
    *,
    metrics: Sequence[str] = ("em", "f1", "acc"),
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> pd.DataFrame:
    """Return what each method loses from the least to the most noise, paired by question, and what the paper's lost.

    Columns: dataset, method, metric, `change` (score at the most noise - score at the least, from -1 to 1) with `low`
    and `high`, `p` (two-sided sign-flip test, not corrected), `n` questions answered at both, and `paper`, the change
    of the method of Table 3 on average (Retrieve-Read is `vanilla`; NaN where it has none).
    """
    paper = paper_noise().set_index(["method", "metric", "noise_percent"])["value"]
    rows: list[dict[str, Any]] = []
    for dataset in dict.fromkeys(_plain_name(run.dataset) for run in runs):
        ordered = sorted((run for run in runs if _plain_name(run.dataset) == dataset), key=_noise)
        least, most = (run.frame() for run in (ordered[0], ordered[-1]))
        for method in ordered[0].methods:
            for metric in (name for name in metrics if name in least or name in most):
                before, after = (
                    frame[frame["method"] == method].set_index("question_id").reindex(columns=[metric])[metric].dropna()
                    for frame in (least, most)
                )
                both = [question_id for question_id in before.index if question_id in after.index]
                row = {"dataset": dataset, "method": method, "metric": metric, "n": len(both)}
                if both:
                    change = paired_difference(
                        after[both].tolist(), before[both].tolist(), confidence=confidence, resamples=resamples
                    )
                    row |= {"change": change.mean, "low": change.low, "high": change.high, "p": change.p}
                row["paper"] = (paper.get((method, metric, 100), math.nan) - paper.get((method, metric, 0), 0.0)) / 100
                rows.append(row)
    return pd.DataFrame(rows, columns=["dataset", "method", "metric", "change", "low", "high", "p", "n", "paper"])


def paper_noise() -> pd.DataFrame:
    """Return Table 3 of Chain-of-Note, averages of its data sets: method, metric, noise_percent, model, value in %."""
    cells = paper_cells()
    cells = cells[(cells["paper"] == "chain_of_note") & (cells["table"] == "3") & (cells["dataset"] == "average")]
    cells = cells[cells["setting"].str.fullmatch(r"noise=\d+")]
    percent = cells["setting"].str.removeprefix("noise=").astype(int)
    table = cells.assign(noise_percent=percent)[["method", "metric", "noise_percent", "model", "value"]]
    return table.sort_values(["metric", "method", "noise_percent"], ignore_index=True)


def noise_figure(table: pd.DataFrame, metrics: Sequence[str] = ("em", "f1", "acc")) -> NotebookFigure:
    """Draw scores in % against noise, a line a method with the band of its interval; below, the paper's averages.

    `table` is what `noise_results` gave: a row of panels a data set, a panel for each of `metrics`.
    """
    paper = paper_noise()
    datasets = list(dict.fromkeys(table["dataset"])) or ["(no answers)"]
    methods = list(dict.fromkeys([*table["method"], *paper["method"]]))
    looks: dict[str, dict[str, Any]] = {
        method: {
            "color": PALETTE[place % len(PALETTE)],
            "marker": MARKERS[place % len(MARKERS)],
            "linestyle": _LINES[place % len(_LINES)],
        }
        for place, method in enumerate(methods)
    }
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(0.6 + 2.1 * len(metrics), 0.5 + 1.75 * (len(datasets) + 1)),
            layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05),
        )
        grid = figure.subplots(len(datasets) + 1, len(metrics), squeeze=False, sharey=True)  # to compare slopes
        for row, dataset in enumerate(datasets):
            for axes, metric in zip(grid[row], metrics, strict=True):
                cells = table[(table["dataset"] == dataset) & (table["metric"] == metric)]
                _lines(axes, cells.assign(value=100 * cells["mean"]), looks)
                axes.set_title(_title(dataset, metric, cells), loc="left")
        for axes, metric in zip(grid[-1], metrics, strict=True):
            theirs = paper[paper["metric"] == metric]
            if theirs.empty:
                axes.set_axis_off()
                continue
            _lines(axes, theirs, looks)
            axes.set_title(f"paper, {METRIC_LABELS[metric]}", loc="left")
            axes.set_xlabel("noise passages (%)")
        grid[0, 0].set_ylim(0, 100)
        for axes in grid[-2]:
            axes.set_xlabel("noise passages (%)")
        handles = [Line2D([], [], label=method.replace("_", " "), **look) for method, look in looks.items()]
        title = f"Score in %; band: {100 * table['confidence'].iloc[0]:g} % interval" if len(table) else "Score in %"
        figure.legend(
            handles=handles, title=title, title_fontsize=8, loc="outside lower center", ncols=4, handlelength=2.6
        )
    return figure


def _lines(axes: Axes, cells: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    for method, look in looks.items():
        line = cells[cells["method"] == method].sort_values("noise_percent")
        axes.plot(line["noise_percent"], line["value"], **look)
        if "low" in line:
            axes.fill_between(
                line["noise_percent"].astype(float),
                100 * line["low"].astype(float),
                100 * line["high"].astype(float),
                color=look["color"],
                alpha=0.15,
                linewidth=0,
            )
    axes.grid(visible=True)
    axes.set_xlim(-4, 104)
    axes.set_xticks(range(0, 101, 20))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))


def _title(dataset: str, metric: str, cells: pd.DataFrame) -> str:
    n = "n = 0" if cells.empty else f"n = {cells['n'].min()}"
    if not cells.empty and cells["n"].min() < cells["n"].max():
        n += f" to {cells['n'].max()}"
    return f"{dataset}, {METRIC_LABELS[metric]}, {n}"


def _cell(row: dict[Any, Any]) -> str:
    if math.isnan(row["mean"]):
        return f"– (n = {row['n']})"
    interval = "" if math.isnan(row["low"]) else f" [{100 * row['low']:.1f}, {100 * row['high']:.1f}]"
    return f"{100 * row['mean']:.1f}{interval}{'*' if row['significant'] else ''}"


def _noise(run: Run) -> int:
    return int(run.info["settings"]["retriever"]["noise_percent"])


def _plain_name(dataset: str) -> str:
    return dataset.rpartition("-noise")[0]
