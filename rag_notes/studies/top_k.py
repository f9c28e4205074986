"""Passages per search and retrievers (DeepNote, Tables 6 to 8; Adaptive-Note, Table 4; Amber, Table 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from rag_notes.config import load_study
from rag_notes.report.curves import curve_figure, with_settings
from rag_notes.report.figures import NotebookFigure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once

_DRAWN = ("acc", "f1", "all_gold_seen")


async def run(options: Sequence[str] = (), *, retrievers: Sequence[str] = (), progress: bool = True) -> "TopK":
    """Run vanilla RAG and DeepNote with several numbers of passages per search, with each of these retrievers.

    Without `retrievers` there is one, that of the options. Raises as `rag_notes.running.run.run_methods`.
    """
    config = load_study("top_k", options)
    runs: dict[str, list[Run]] = {}
    named: Sequence[str | None] = list(retrievers) or [None]
    for name in named:
        chosen = [*options, *([] if name is None else [f"retriever={name}"])]
        made = await run_methods(load_study("top_k", chosen), chosen, progress=progress)
        runs[made[0].info.retriever["name"] if name is None else name] = made
        if not made[-1].info.finished:
            break
    return TopK(config, options, [run for made in runs.values() for run in made], runs)


@dataclass(frozen=True, eq=False, repr=False)
class TopK(Study):
    """Scores by the number of passages per search, for each retriever."""

    by_retriever: Mapping[str, list[Run]]

    @once
    def points(self) -> pd.DataFrame:
        """The scores of each retriever with `family`, `top_k` and the `line` that a figure draws."""
        tables = [
            with_settings(self.results(runs), runs, ["top_k"]).assign(retriever=retriever)
            for retriever, runs in self.by_retriever.items()
        ]
        points = pd.concat(tables, ignore_index=True)
        one = len(self.by_retriever) == 1
        return points.assign(line=points["family"] + ("" if one else ", " + points["retriever"]))

    def table(self, retriever: str) -> pd.DataFrame:
        """The scores with one retriever, as `rag_notes.report.tables.results`, and the number of passages."""
        points = self.points()
        return points[points["retriever"] == retriever].drop(columns=["retriever", "line"]).reset_index(drop=True)

    def display(self, retriever: str) -> ScoresTable:
        """The scores with one retriever in %."""
        return ScoresTable(self.table(retriever))

    def figure(self) -> NotebookFigure:
        """Scores by passages per search, a line for each method and retriever; saved with the points."""
        points = self.points()
        drawn = points[points["metric"].isin(_DRAWN)]
        return self.save(curve_figure(drawn, "top_k", "passages per search (top-k)", line="line"), points)
