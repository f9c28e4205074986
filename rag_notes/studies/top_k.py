"""Passages per search and retrievers (DeepNote, Tables 6 to 8; Adaptive-Note, Table 4; Amber, Table 3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from rag_notes.config import load_study
from rag_notes.report.cells import method_label
from rag_notes.report.curves import curve_figure, with_settings
from rag_notes.report.figures import NotebookFigure
from rag_notes.report.scores_table import settings_table
from rag_notes.report.tables import ANSWER_METRICS
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once

_DRAWN = ("acc", "f1", "all_gold_seen")


async def run(options: Sequence[str] = (), *, retrievers: Sequence[str] = (), progress: bool = True) -> "TopK":
    """Run the methods with several numbers of passages per search, with each of these retrievers.

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
        """The scores with `retriever`, `family`, `top_k` and the `line` that a figure draws.

        Each is tested against the baseline, or its variant, that searches for as many passages, where there is one.
        """
        tables = [
            with_settings(self._results(runs), runs, ["top_k"]).assign(retriever=retriever)
            for retriever, runs in self.by_retriever.items()
        ]
        points = pd.concat(tables, ignore_index=True)
        one = len(self.by_retriever) == 1
        return points.assign(line=points["family"] + ("" if one else ", " + points["retriever"]))

    def _results(self, runs: Sequence[Run]) -> pd.DataFrame:
        by_k: dict[int | None, list[str]] = {}
        for name, method in runs[0].info.methods.items():
            by_k.setdefault(method.settings.get("top_k"), []).append(name)
        tables = []
        for top_k, names in sorted(by_k.items(), key=lambda item: item[0] or 0):
            baselines = [name for name in names if _without_k(name, top_k) == self.config.baseline]
            part = [run.only(names) for run in runs]
            tables.append(self.results(part, baseline=baselines[0] if baselines else None))
        return pd.concat(tables, ignore_index=True)

    def display(self) -> pd.DataFrame:
        """The scores in %, a column for each number of passages per search."""
        points = self.points()
        points = points[points["top_k"].notna()]
        names = [_without_k(row["method"], row["top_k"]) for row in points.to_dict("records")]
        if len(self.by_retriever) > 1:
            names = [f"{method_label(name)}, {of}" for name, of in zip(names, points["retriever"], strict=True)]
        heads = [f"{top_k} passages" for top_k in points["top_k"]]
        return settings_table(points.assign(method=names), heads, [*ANSWER_METRICS, "all_gold_seen"])

    def figure(self) -> NotebookFigure:
        """Scores by passages per search, a line for each method and retriever; saved with the points."""
        points = self.points()
        drawn = points[points["metric"].isin(_DRAWN)]
        return self.save(curve_figure(drawn, "top_k", "passages per search (top-k)", line="line"), points)


def _without_k(name: str, top_k: int | None) -> str:
    """The method that a variant such as `deepnote_k3` is of."""
    return name.removesuffix(f"_k{top_k}")
