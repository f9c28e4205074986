"""Every method on every chosen data set (DeepNote, Adaptive-Note and Amber, Table 1 of each)."""

from collections.abc import Sequence
from typing import get_args

import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.config import load_study
from rag_notes.methods.about import Family, family_of
from rag_notes.papers.numbers import beside_paper, paper_table
from rag_notes.report.figures import NotebookFigure, main_figure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.trace import Trace
from rag_notes.running.correctness import correctness
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once

_LEADING = ("acc", "f1", "yes_no_acc", "str_em", "str_hit", "em", "reject")  # of equally many questions, in this order


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "MainResults":
    """Run every chosen method on every chosen data set. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("main_results", options)
    return MainResults(config, options, await run_methods(config, options, progress=progress))


def leading(table: pd.DataFrame, most: int = 2) -> pd.DataFrame:
    """The rows of the metrics that speak for most questions of a data set, at most so many, by which methods differ."""
    kept = []
    for _, rows in table[table["metric"].isin(_LEADING)].groupby("dataset", sort=False):
        by_metric = rows.groupby("metric").agg(spread=("mean", "nunique"), n=("n", "max"))
        order = sorted(
            by_metric.index,
            key=lambda name: (by_metric["spread"][name] < 2, -by_metric["n"][name], _LEADING.index(name)),
        )
        kept.append(rows[rows["metric"].isin(order[:most])])
    return pd.concat(kept) if kept else table[:0]


def families(runs: Sequence[Run]) -> dict[str, str]:
    """The family of each method of runs, in the order of the families; one that nothing is known of has none."""
    of = {name: family_of(method.family) for run in runs for name, method in run.info.methods.items()}
    return {name: each for each in get_args(Family) for name in of if of[name] == each}


class MainResults(Study):
    """The scores of all methods, beside the papers' where they have the data set."""

    @once
    def table(self) -> pd.DataFrame:
        """The scores with intervals and tests, as `rag_notes.report.tables.results`."""
        return self.results()

    def paper(self) -> pd.DataFrame:
        """Our cells beside the papers' of the same data set, method and metric."""
        return beside_paper(self.table())

    def display(self) -> ScoresTable:
        """The scores in %, methods by data sets and metrics."""
        return ScoresTable(self.table())

    def display_paper(self) -> Styler:
        """The papers' numbers for the same cells."""
        return paper_table(self.paper())

    def figure(self) -> NotebookFigure:
        """The leading metrics by family, the papers' as hollow marks, and the differences to vanilla RAG.

        Saved with the whole table.
        """
        table = self.table()
        figure = main_figure(leading(table), paper=self.paper(), families=families(self.runs), differences=True)
        return self.save(figure, table)

    def trace(self, method: str = "deepnote", other: str = "vanilla") -> Trace:
        """The first question of the first run that `method` answers right and `other` does not, else the first of all.

        Where the run lacks `method`, its last one takes the place.
        """
        run = self.runs[0]
        shown = method if method in run.methods else run.methods[-1]
        samples = run.of(shown)
        right_of_other = {sample.question.id for sample in run.of(other) if correctness(sample) == "right"}
        better = (s for s in samples if correctness(s) == "right" and s.question.id not in right_of_other)
        return Trace(next(better, samples[0]))
