"""Noise and unknown robustness, beside the paper's (Chain-of-Note, sections 3.3 and 3.4, Tables 3 and 4)."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rag_notes.config import ConfigError, build_methods, load_study
from rag_notes.events import searches
from rag_notes.metrics.stats import paired_difference
from rag_notes.papers.numbers import paper_cells
from rag_notes.report.cells import dataset_label, interval_texts, method_label, p_text
from rag_notes.report.figures import MARKERS, PALETTE, STYLE, NotebookFigure
from rag_notes.report.scores_table import ScoresTable, settings_table
from rag_notes.report.tables import ANSWER_METRICS, METRIC_LABELS, counts, results
from rag_notes.retrieval.noise import is_gold
from rag_notes.running.records import Run, require_text
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once

_LINES = ("-", "--", "-.", ":")


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "Robustness":
    """Run the methods at each noise ratio of the study, then with the passages that the retriever finds.

    Raises ConfigError where the study names no ratio, otherwise as `rag_notes.running.run.run_methods`.
    """
    config = load_study("robustness", options)
    one_repeat(config)
    if not config.study.noise_percent:
        raise ConfigError("study.noise_percent: no noise ratio is named; name some, such as [0,50,100]")
    runs: list[Run] = []
    # The variants ask whether a question is declined, which noise does not vary: every noisy question has an answer.
    without = {name: method for name, method in build_methods(config).items() if name not in config.study.variants}
    for percent in (*dict.fromkeys(config.study.noise_percent), None):
        methods = None if percent is None else without
        runs += await run_methods(config, options, methods=methods, noise_percent=percent, progress=progress)
        if not runs[-1].info.finished:
            break
    return Robustness(config, options, runs)


class Robustness(Study):
    """Scores against noise, and the share of unanswerable questions that are declined."""

    @property
    def noisy(self) -> list[Run]:
        """The runs with so much noise."""
        return [run for run in self.runs if run.info.condition.noise_percent is not None]

    @property
    def plain(self) -> list[Run]:
        """The runs with the passages that the retriever finds."""
        return [run for run in self.runs if run.info.condition.noise_percent is None]

    @once
    def table(self) -> pd.DataFrame:
        """The scores by noise ratio, as `noise_results`."""
        return noise_results(self.noisy, baseline=self.config.baseline, **self.intervals)

    def passages(self) -> pd.DataFrame:
        """What was really read, as `noise_passages`."""
        return noise_passages(self.runs)

    def display_passages(self) -> pd.DataFrame:
        """What was really read: mean numbers of passages, and shares in %."""
        if (table := self.passages()).empty:
            return table
        shown = {
            "data set": table["dataset"].map(dataset_label),
            "noise (%)": table["noise_percent"],
            "method": table["method"].map(method_label),
            "questions": table["questions"],
            "left out": table["left_out"],
            "answered": table["answered"],
            "gold passages": table["gold"].map("{:.2f}".format),
            "noise passages": table["noise"].map("{:.2f}".format),
            "with all gold (%)": (100 * table["all_gold"]).map("{:.1f}".format),
            "with the answer (%)": (100 * table["answer"]).map("{:.1f}".format),
        }
        return pd.DataFrame(shown).replace("nan", "–").set_index(["data set", "noise (%)", "method"])

    def losses(self) -> pd.DataFrame:
        """What each method loses from the least to the most noise, as `noise_losses`."""
        return noise_losses(self.noisy, **self.intervals)

    def display_losses(self) -> pd.DataFrame:
        """The same in points of %, with the paper's."""
        table = self.losses()
        shown = {
            "data set": table["dataset"].map(dataset_label),
            "method": table["method"].map(method_label),
            "metric": table["metric"].map(METRIC_LABELS),
            "change (points)": interval_texts(table, "change", spec="+.1f"),
            "p": table["p"].map(p_text),
            "n": table["n"],
            "paper (points)": (100 * table["paper"]).map("{:+.1f}".format),
        }
        return pd.DataFrame(shown).replace("+nan", "–").set_index(["data set", "method"])

    def display(self) -> pd.DataFrame:
        """The scores in %, a column for each noise ratio."""
        return noise_table(self.table())

    def display_declined(self) -> ScoresTable:
        """The share of unanswerable questions that were declined, in %."""
        table = self.results(self.plain)
        return ScoresTable(table[table["metric"] == "reject"])

    def declined(self) -> pd.DataFrame:
        """The share of all questions that were declined, those that have an answer among them (RR of Table 4)."""
        return counts(self.plain, ["rejected"], **self.intervals)

    def display_declined_of_all(self) -> pd.DataFrame:
        """The same in %."""
        table = self.declined()
        shown = {
            "data set": table["dataset"].map(dataset_label),
            "method": table["method"].map(method_label),
            "declined (%)": interval_texts(table),
            "n": table["n"],
        }
        return pd.DataFrame(shown).set_index(["data set", "method"])

    def display_found(self) -> ScoresTable:
        """The scores in % of the questions with and without a gold answer in what is found, as `by_found`."""
        return ScoresTable(self.results(by_found(self.plain)))

    def figure(self) -> NotebookFigure:
        """The scores by noise above the paper's; saved with the table."""
        return self.save(noise_figure(self.table()), self.table())


def by_found(runs: Sequence[Run]) -> list[Run]:
    """Each run as two: the questions with a gold answer in the passages of the first search, and those without.

    All methods of a run have the same questions (Chain-of-Note, section 3.2); without gold answer one is in neither.
    """
    parts = []
    for run in runs:
        found = {s.question.id: f for s in run.samples if (f := s.metrics.get("answer_in_passages_first")) is not None}
        for value, name in ((1.0, "answer found"), (0.0, "answer not found")):
            info = replace(run.info, dataset=replace(run.info.dataset, name=f"{run.dataset}, {name}"))
            samples = [sample for sample in run.samples if found.get(sample.question.id) == value]
            parts += [replace(run, info=info, samples=samples)] if samples else []
    return parts


def noise_results(
    runs: Sequence[Run], *, baseline: str | None = "vanilla", confidence: float = 0.95, resamples: int = 10_000
) -> pd.DataFrame:
    """What `rag_notes.report.tables.results` gives for runs with noise, by noise ratio.

    `dataset` is the data set's own name; the column `noise_percent` stands behind it.
    """
    table = results(runs, baseline=baseline, confidence=confidence, resamples=resamples)
    by_label = {run.label: run for run in runs}
    table.insert(1, "noise_percent", [by_label[name].info.condition.noise_percent for name in table["dataset"]])
    table["dataset"] = [by_label[name].dataset for name in table["dataset"]]
    return table


def noise_table(table: pd.DataFrame) -> pd.DataFrame:
    """Lay out what `noise_results` gave in %, as `rag_notes.report.scores_table.settings_table`, by noise ratio."""
    return settings_table(table, [f"{percent} % noise" for percent in table["noise_percent"]], ANSWER_METRICS)


def noise_passages(runs: Sequence[Run]) -> pd.DataFrame:
    """A row for each data set, ratio and method: what was really read, and how many questions it covers.

    `questions` can be controlled; `left_out` are those that only the run without condition has (NA without that run);
    `answered` are those without error. `gold` and `noise` are mean numbers of passages read, `all_gold` and `answer`
    the shares of questions, from 0 to 1, with all gold passages and with a gold answer among them: what the best reader
    could reach.
    """
    whole = {run.dataset: run.info.dataset.questions for run in runs if run.info.condition.noise_percent is None}
    rows = []
    for run in runs:
        if run.info.condition.noise_percent is None:
            continue
        require_text(run)
        for method in run.methods:
            samples = run.of(method)
            answered = [sample for sample in samples if sample.error is None]
            read = [(sample, passage) for sample in answered for passage in searches(sample.trace)[0].read]
            golden = sum(is_gold(sample.question, passage) for sample, passage in read)
            scores = pd.DataFrame(
                [sample.metrics for sample in answered], columns=["all_gold_first", "answer_in_passages_first"]
            )
            rows.append(
                {
                    "dataset": run.dataset,
                    "noise_percent": run.info.condition.noise_percent,
                    "method": method,
                    "questions": len(samples),
                    "left_out": whole.get(run.dataset, pd.NA) - len(samples),
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
    """What each method loses from the least to the most noise, paired by question, and what the paper's lost.

    Columns: dataset, method, metric, `change` (score at the most noise - score at the least, from -1 to 1) with `low`
    and `high`, `p` (two-sided sign-flip test, not corrected), `n` questions answered at both, and `paper`, the change
    of the method of Table 3 on average (NaN where it has none).
    """
    paper = paper_noise().set_index(["method", "metric", "noise_percent"])["value"]
    rows: list[dict[str, Any]] = []
    for dataset in dict.fromkeys(run.dataset for run in runs):
        ordered = sorted((run for run in runs if run.dataset == dataset), key=_noise)
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
    """Table 3 of Chain-of-Note, averages of its data sets: method, metric, noise_percent, model, value in %."""
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
    width = 0.6 + 2.1 * len(metrics)
    beside = max(1, min(4, int(width / (0.7 + 0.065 * max(len(method_label(method)) for method in methods)))))
    with mpl.rc_context(STYLE):
        figure = NotebookFigure(
            figsize=(width, 0.5 + 1.75 * (len(datasets) + 1) + 0.17 * (len(methods) // beside)),
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
        handles = [Line2D([], [], label=method_label(method), **look) for method, look in looks.items()]
        title = f"Score in %; band: {100 * table['confidence'].iloc[0]:g} % interval" if len(table) else "Score in %"
        figure.legend(
            handles=handles, title=title, title_fontsize=8, loc="outside lower center", ncols=beside, handlelength=2.6
        )
    return figure


def _lines(axes: Axes, cells: pd.DataFrame, looks: dict[str, dict[str, Any]]) -> None:
    for method, look in looks.items():
        line = cells[cells["method"] == method].sort_values("noise_percent")
        if line.empty:
            continue  # only the paper, or only a run, has it
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
    return f"{dataset_label(dataset)}, {METRIC_LABELS[metric]}, {n}"


def _noise(run: Run) -> int:
    return run.info.condition.noise_percent or 0
