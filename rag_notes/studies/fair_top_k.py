"""As many passages for one search as the adaptive method reads in all (Adaptive-Note, Tables A1 and A2)."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rag_notes.config import ConfigError, load_study
from rag_notes.report.cells import interval_texts, method_label
from rag_notes.report.curves import curve_figure, with_settings
from rag_notes.report.figures import NotebookFigure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import counts, diagnostics
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once

_DRAWN = ("acc", "f1", "em", "all_gold_seen")


async def run(options: Sequence[str] = (), *, adaptive: str | None = None, progress: bool = True) -> "FairTopK":
    """Run one search with as many passages as the adaptive method reads in all, and with numbers between.

    `adaptive` is the first method but `vanilla` unless another is named (`method=[vanilla,amber]`). The fair number of
    a data set is the mean of the distinct passages that it read there, rounded; the runs
    have `vanilla` at its own number of passages, half-way, at each fair number and two beyond, as `vanilla_kN`. Raises
    ConfigError without `vanilla`, otherwise as `rag_notes.running.run.run_methods`.
    """
    config = load_study("fair_top_k", options)
    others = [name for name in config.method if name not in ("vanilla", *config.study.variants)]
    if "vanilla" not in config.method or not others:
        raise ConfigError("study=fair_top_k sets vanilla beside an adaptive method; name both: method=[vanilla,amber]")
    adaptive = adaptive or others[0]
    first = await run_methods(config, options, progress=progress)
    if not first[-1].info.finished:
        return FairTopK(config, options, first, adaptive)
    table = diagnostics(first)
    read = table.loc[(table["method"] == adaptive) & table["distinct_passages"].notna(), "distinct_passages"]
    smallest = config.method["vanilla"]["top_k"]
    fair = {max(smallest, round(mean)) for mean in read}
    ks = sorted({smallest} | {k for most in fair for k in ((smallest + most) // 2, most, most + 2)})
    variants = [*options, *(f"++study.variants.vanilla_k{k}={{method: vanilla, top_k: {k}}}" for k in ks)]
    config = load_study("fair_top_k", variants)
    return FairTopK(config, options, await run_methods(config, variants, progress=progress), adaptive)


@dataclass(frozen=True, eq=False, repr=False)
class FairTopK(Study):
    """The adaptive method against one search with as many passages."""

    adaptive: str

    @once
    def table(self) -> pd.DataFrame:
        """The scores, each tested against the adaptive method."""
        return self.results(baseline=self.adaptive)

    @once
    def read(self) -> pd.DataFrame:
        """Mean distinct passages read per question, as `rag_notes.report.tables.counts`."""
        return counts(self.runs, ["distinct_passages"], **self.clustered)

    def display_read(self) -> pd.DataFrame:
        """Mean distinct passages read per question, with the interval, a column for each data set."""
        read = self.read()
        cells = read.assign(cell=interval_texts(read, scale=1), method=read["method"].map(method_label))
        wide = cells.pivot_table(index="method", columns="dataset", values="cell", aggfunc="first", sort=False)
        return wide.rename_axis(columns="data set")

    def points(self) -> pd.DataFrame:
        """Some scores with `family` and the mean number of passages read, which the figure draws."""
        passages = self.read()[["dataset", "method", "mean"]].rename(columns={"mean": "passages"})
        table = self.table()
        drawn = with_settings(table[table["metric"].isin(_DRAWN)], self.runs, [])
        return drawn.merge(passages, on=["dataset", "method"])

    def display(self) -> ScoresTable:
        """The scores in %."""
        return ScoresTable(self.table())

    def figure(self) -> NotebookFigure:
        """Scores by the passages read; saved with the points."""
        points = self.points()
        return self.save(curve_figure(points, "passages", "distinct passages read"), points)
