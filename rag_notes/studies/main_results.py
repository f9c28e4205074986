"""Every method on every chosen data set (DeepNote, Adaptive-Note and Amber, Table 1 of each)."""

from collections.abc import Sequence

import pandas as pd
from pandas.io.formats.style import Styler

from rag_notes.config import load_study
from rag_notes.papers.numbers import beside_paper, paper_table
from rag_notes.report.figures import NotebookFigure, main_figure
from rag_notes.report.tables import results_table
from rag_notes.report.trace import Trace
from rag_notes.running.correctness import correctness
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "MainResults":
    """Run every chosen method on every chosen data set. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("main_results", options)
    return MainResults(config, options, await run_methods(config, options, progress=progress))


class MainResults(Study):
    """The scores of all methods, beside the papers' where they have the data set."""

    @once
    def table(self) -> pd.DataFrame:
        """The scores with intervals and tests, as `rag_notes.report.tables.results`."""
        return self.results()

    def paper(self) -> pd.DataFrame:
        """Our cells beside the papers' of the same data set, method and metric."""
        return beside_paper(self.table())

    def display(self) -> Styler:
        """The scores in %, methods by data sets and metrics."""
        return results_table(self.table())

    def display_paper(self) -> Styler:
        """The papers' numbers for the same cells."""
        return paper_table(self.paper())

    def figure(self) -> NotebookFigure:
        """The scores of every method, the papers' as hollow marks; saved with the table."""
        return self.save(main_figure(self.table(), paper=self.paper()), self.table())

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
