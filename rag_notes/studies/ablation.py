"""Methods without their parts (DeepNote, Tables 2 and 5; Adaptive-Note, Table 2; Amber, Table 2)."""

from collections.abc import Sequence

import pandas as pd

from rag_notes.config import load_study
from rag_notes.report.figures import NotebookFigure, main_figure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study

REFERENCE = "vanilla"
"""What is left of a method of the note family when all its parts are taken out."""


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "Ablation":
    """Run the whole methods, their variants and vanilla RAG. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("ablation", options)
    return Ablation(config, options, await run_methods(config, options, progress=progress))


class Ablation(Study):
    """Each whole method with its variants, tested against the whole."""

    @property
    def whole(self) -> list[str]:
        """The methods that have variants here."""
        varied = [settings["method"] for settings in self.config.study.variants.values()]
        return [method for method in dict.fromkeys(varied) if method in self.config.method]

    def table(self, method: str) -> pd.DataFrame:
        """The scores of a whole method, its variants and vanilla RAG, each tested against the whole."""
        variants = self.config.study.variants.items()
        own = {method, REFERENCE, *(name for name, settings in variants if settings["method"] == method)}
        parts = [run.only(name for name in run.methods if name in own) for run in self.runs]
        return self.results(parts, baseline=method)

    def display(self, method: str) -> ScoresTable:
        """The scores of `table` in %."""
        return ScoresTable(self.table(method))

    def figure(self, method: str) -> NotebookFigure:
        """The scores of `table`; saved with it."""
        table = self.table(method)
        return self.save(main_figure(table), table, method)
