"""What methods cost against what they score (DeepNote, Table 9; Chain-of-Note, Table 5): the Pareto front."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rag_notes.config import ConfigError, load_study
from rag_notes.llm.client import Price
from rag_notes.metrics.retrieval import gold_clusters
from rag_notes.metrics.stats import holm, paired_difference
from rag_notes.rates import PRICED, Rate, load_prices, load_speeds
from rag_notes.report.cells import dataset_label, interval_text, interval_texts, method_label, p_text
from rag_notes.report.curves import axis_label, count_label, scale
from rag_notes.report.figures import PALETTE, STYLE, NotebookFigure
from rag_notes.report.tables import counts
from rag_notes.running.records import Run, Sample
from rag_notes.running.repeats import pooled
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once
from rag_notes.types import InputError

_WIDTH, _ROW = 7.0, 0.18  # inches, of a page and for a method
_EQUAL_TOKENS = [
    *("dataset", "method", "tokens", "vote", "samples", "vote_tokens"),
    *("n", "difference", "low", "high", "p", "p_holm"),
]


async def run(
    options: Sequence[str] = (),
    *,
    metric: str = "acc",
    model_priced: str = PRICED,
    model_timed: str = "Qwen2.5-Coder-1.5B-Instruct",
    progress: bool = True,
) -> "Cost":
    """Run every chosen method and set `metric` against what it costs.

    A model without a price of its own is counted at that of `model_priced` in conf/prices.yaml, one without a measured
    speed at that of `model_timed` in conf/speeds.yaml. Raises ConfigError where one of them is not there, otherwise as
    `rag_notes.running.run.run_methods`.
    """
    price = _chosen("model_priced", model_priced, "prices.yaml", load_prices())
    speeds = load_speeds()
    _chosen("model_timed", model_timed, "speeds.yaml", speeds)
    config = load_study("cost", options)
    runs = await run_methods(config, options, progress=progress)
    by_model = {run.info.model: run.info.model if run.info.model in speeds else model_timed for run in runs}
    at = "; ".join(f"{model}, {speeds[model].source}" for model in sorted(set(by_model.values())))
    note = (
        f"Cost at the price of {model_priced} on {price.date} ({price.source}) where a model has none of its own."
        f" Computing is the tokens' time without any queue, at the speed of {at}."
    )
    timed_runs = [timed(run, speeds[by_model[run.info.model]]) for run in priced(runs, price)]
    return Cost(config, options, timed_runs, metric, note)


def _chosen(option: str, model: str, file: str, table: Mapping[str, Rate]) -> Rate:
    if model not in table:
        raise ConfigError(f"{option}: {model!r} is not in conf/{file}, which has {list(table)}")
    return table[model]


@dataclass(frozen=True, eq=False, repr=False)
class Cost(Study):
    """Money, calls, tokens and time of every method against its score."""

    metric: str
    note: str

    @once
    def table(self) -> pd.DataFrame:
        """Cost and score of each method, and who is on the front, as `costs_and_scores`."""
        spent = counts(self.runs, ["cost", "calls", "tokens", "computing"], **self.clustered)
        return costs_and_scores(self.results(), spent, self.metric)

    def display(self) -> pd.DataFrame:
        """A row for each method: what it costs, and its score in % with the interval; the cheapest first."""
        if (table := self.table()).empty:
            return table
        shown = []
        for dataset, points in table.groupby("dataset", sort=False):
            for method in _by_cost(points):
                rows = points[points["method"] == method].to_dict("records")
                costs = {
                    axis_label(row["cost_metric"]): _short(scale(row["cost_metric"]) * row["cost"]) for row in rows
                }
                score = interval_text(*(rows[0][name] for name in ("score", "score_low", "score_high")))
                scored = {axis_label(self.metric): score, "n": rows[0]["n"]}
                shown.append({"data set": dataset_label(str(dataset)), "method": method_label(method)} | costs | scored)
        return pd.DataFrame(shown).set_index(["data set", "method"])

    def equal_tokens(self) -> pd.DataFrame:
        """Each method beside a vote of vanilla answers that takes at most its tokens, as `at_equal_tokens`."""
        return at_equal_tokens(self.runs, self.metric, **self.clustered)

    def display_equal_tokens(self) -> pd.DataFrame:
        """The same in points of %, with tokens a question and both p."""
        table = self.equal_tokens()
        shown = {
            "data set": table["dataset"].map(dataset_label),
            "method": table["method"].map(method_label),
            "tokens": table["tokens"].map("{:,.0f}".format),
            "compared with": table["vote"].map(method_label),
            "answers that vote": table["samples"],
            "its tokens": table["vote_tokens"].map("{:,.0f}".format),
            f"difference of {axis_label(self.metric)}": interval_texts(table, "difference", spec="+.1f"),
            "p": table["p"].map(p_text),
            "p (Holm)": table["p_holm"].map(p_text),
            "n": table["n"],
        }
        return pd.DataFrame(shown).set_index(["data set", "method"])

    def figure(self) -> NotebookFigure:
        """The Pareto front by money, calls, tokens and computing time; saved with the table."""
        return self.save(pareto_figure(self.table(), self.metric, self.note), self.table())


def priced(runs: Sequence[Run], price: Price) -> list[Run]:
    """The runs with a `cost` for every sample without error: its own, or its tokens at this price.

    The traces are left out, as nothing of this study reads them.
    """

    def with_cost(sample: Sample) -> Sample:
        sample = replace(sample, trace=[])
        if sample.error is not None or "cost" in sample.metrics:
            return sample
        cost = price.of(sample.counts.prompt_tokens, sample.counts.completion_tokens)
        return replace(sample, metrics=sample.metrics | {"cost": cost})

    return [replace(run, samples=[with_cost(sample) for sample in run.samples]) for run in runs]


def timed(run: Run, speed: Price) -> Run:
    """The run with `computing` for every sample without error: the seconds that its tokens take, one call at a time.

    `speed` is in seconds, as in conf/speeds.yaml. The seconds of a recorded call cannot stand for this: they contain
    its waiting for others at the server. All tokens count at this one speed, those of stages that another model answers
    included.
    """

    def with_time(sample: Sample) -> Sample:
        if sample.error is not None:
            return sample
        seconds = speed.of(sample.counts.prompt_tokens, sample.counts.completion_tokens)
        return replace(sample, metrics=sample.metrics | {"computing": seconds})

    return replace(run, samples=[with_time(sample) for sample in run.samples])


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


def at_equal_tokens(
    runs: Sequence[Run],
    metric: str,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    clusters: bool = False,
) -> pd.DataFrame:
    """Compare each method with the largest vote of vanilla answers that takes no more tokens: is it worth asking again?

    `vote` is vanilla RAG by as many samples as can be had for the method's mean tokens a question, `samples` and
    `vote_tokens` what it takes; a method that no vote is as cheap as has no row. `difference` is the method's score
    minus the vote's on the `n` questions that both answered, with interval and p as `paired_difference`, `p_holm`
    corrected for the methods of a data set.
    """
    rows: list[dict[str, Any]] = []
    for run in pooled(dict(enumerate(runs))).values():
        if metric not in (frame := run.frame()):
            continue
        answered = frame[frame["error"].isna() & frame[metric].notna()]
        tokens = answered.groupby("method")["tokens"].mean().to_dict()
        scores = answered.pivot_table(index="question_id", columns="method", values=metric, sort=False)
        of_question = gold_clusters(run.questions)
        of = {name: method for name, method in run.info.methods.items() if name in tokens}
        votes = {name: method.settings.get("samples", 1) for name, method in of.items() if method.family == "vanilla"}
        family: list[dict[str, Any]] = []
        for name in of:
            affordable = [vote for vote in votes if name not in votes and tokens[vote] <= tokens[name]]
            if (
                not affordable
                or (both := scores[[name, vote := max(affordable, key=votes.__getitem__)]].dropna()).empty
            ):
                continue
            result = paired_difference(
                both[name].tolist(),
                both[vote].tolist(),
                confidence=confidence,
                resamples=resamples,
                clusters=[of_question[question_id] for question_id in both.index] if clusters else None,
            )
            shown = {"vote": vote, "samples": votes[vote], "tokens": tokens[name], "vote_tokens": tokens[vote]}
            tested = {"difference": result.mean, "low": result.low, "high": result.high, "p": result.p, "n": result.n}
            family.append({"dataset": run.label, "method": name} | shown | tested)
        for row, p_holm in zip(family, holm([row["p"] for row in family]), strict=True):
            rows.append(row | {"p_holm": p_holm})
    return pd.DataFrame(rows, columns=_EQUAL_TOKENS)


def pareto_figure(points: pd.DataFrame, metric: str, note: str = "") -> NotebookFigure:
    """Draw what `costs_and_scores` gave: a line for each method, the cheapest on top, with its score and each cost.

    A row of panels a data set; intervals are horizontal, the axes of costs logarithmic. Methods on the front of a cost
    are filled there. `note` stands below it all. Raises ValueError where there is nothing to draw.
    """
    if points.empty:
        raise InputError("nothing to draw: no question was answered without error")
    datasets, kinds = (list(dict.fromkeys(points[name])) for name in ("dataset", "cost_metric"))
    orders = {name: _by_cost(points[points["dataset"] == name]) for name in datasets}
    heights = [0.95 + _ROW * len(order) for order in orders.values()]
    with mpl.rc_context(STYLE):
        note = textwrap.fill(note, int(_WIDTH / 0.065))
        figure = NotebookFigure(
            figsize=(_WIDTH, sum(heights) + 0.22 * (3 + note.count("\n"))),
            layout=ConstrainedLayoutEngine(h_pad=0.06, w_pad=0.05),
        )
        grid = figure.add_gridspec(len(datasets), 1 + len(kinds), height_ratios=heights)
        for i, (dataset, order) in enumerate(orders.items()):
            cells = points[points["dataset"] == dataset]
            scores = cells[cells["cost_metric"] == cells["cost_metric"].iloc[0]].assign(front=False)
            axes = figure.add_subplot(grid[i, 0])
            _panel(axes, scores, "score", 100, order)
            axes.set_xlabel(f"{axis_label(metric)}\n{count_label(scores)}")
            axes.set_yticks(range(len(order)), [method_label(name) for name in order])
            axes.set_title(dataset_label(str(dataset)), loc="left", fontweight="bold")
            for j, kind in enumerate(kinds, 1):
                axes = figure.add_subplot(grid[i, j], sharey=axes)
                _panel(axes, cells[cells["cost_metric"] == kind], "cost", scale(str(kind)), order)
                axes.set_xscale("log")
                axes.xaxis.set_major_locator(LogLocator(numticks=4))
                axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axes.xaxis.set_minor_formatter(NullFormatter())
                axes.set_xlabel(textwrap.fill(axis_label(str(kind)), 16))
                axes.tick_params(labelleft=False)
        mark = Line2D([], [], color=PALETTE[0], marker="o", linestyle="none")
        handles = {mark: "on the front: no other method scores as much for less"}
        figure.legend(list(handles), list(handles.values()), title=note, title_fontsize=8, loc="outside lower center")
    return figure


def _short(value: float) -> str:
    """Three digits, and all those before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _by_cost(cells: pd.DataFrame) -> list[str]:
    """The methods of a data set, the cheapest first."""
    first = cells[cells["cost_metric"] == cells["cost_metric"].iloc[0]]
    return list(first.sort_values(["cost", "method"], kind="stable")["method"])


def _panel(axes: Axes, cells: pd.DataFrame, what: str, factor: float, order: Sequence[str]) -> None:
    axes.set_ylim(len(order) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=True)
    for row in cells.to_dict("records"):
        place, colour = order.index(row["method"]), PALETTE[0] if row["front"] else "#595959"
        reach = [factor * row[f"{what}_low"], factor * row[f"{what}_high"]]
        axes.plot(reach, [place, place], color=colour, marker="none")
        face = colour if row["front"] else "white"
        axes.plot(factor * row[what], place, color=colour, marker="o", markerfacecolor=face, linestyle="none", zorder=3)
    axes.margins(x=0.08)
