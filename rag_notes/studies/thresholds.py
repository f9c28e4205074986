"""When the adaptive loops stop (DeepNote, Table 4, Figures 4 and 5; Adaptive-Note, Table 3; Amber, Table 4)."""

from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.config import build_methods, load_study
from rag_notes.methods.about import about_of
from rag_notes.report.cells import dataset_label, method_label
from rag_notes.report.curves import axis_label, curve_figure, with_settings
from rag_notes.report.figures import NotebookFigure
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import counts
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study, once

_DRAWN = ("acc", "f1", "all_gold_seen", "later_searches")


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "Thresholds":
    """Run the adaptive methods with each of their limits. Raises as `rag_notes.running.run.run_methods`."""
    config = load_study("thresholds", options)
    return Thresholds(config, options, await run_methods(config, options, progress=progress))


class Thresholds(Study):
    """Scores and searches of the adaptive methods by the limits of their loops."""

    @property
    def limits(self) -> dict[str, list[str]]:
        """The limits that the variants vary, by method, in the order in which its paper names a setting."""
        methods, variants = build_methods(self.config), list(self.config.study.variants.values())
        varied = {name: {key for of in variants if of["method"] == name for key in of} for name in methods}
        return {
            name: [limit for limit in about_of(methods[name]).limits if limit in keys]
            for name, keys in varied.items()
            if keys
        }

    @once
    def table(self) -> pd.DataFrame:
        """The scores with intervals and tests, as `rag_notes.report.tables.results`."""
        return self.results()

    @once
    def taken(self) -> pd.DataFrame:
        """Mean searches, distinct passages and calls per question, as `rag_notes.report.tables.counts`.

        `later_searches` are those behind the first, which DeepNote's Figure 5 counts.
        """
        taken = counts(self.runs, ["searches", "distinct_passages", "calls"], **self.clustered)
        later = taken[taken["metric"] == "searches"].assign(metric="later_searches")
        later[["mean", "low", "high"]] -= 1
        return pd.concat([taken, later], ignore_index=True)

    @once
    def points(self) -> pd.DataFrame:
        """What the figures draw: some scores and the searches, by method, family and setting."""
        both = pd.concat([self.table(), self.taken()])
        return by_setting(both[both["metric"].isin(_DRAWN)], self.runs, self.limits)

    def display(self) -> ScoresTable:
        """The scores in %."""
        return ScoresTable(self.table())

    def display_taken(self) -> pd.DataFrame:
        """Means per question, a row for each setting."""
        taken = by_setting(self.taken(), self.runs, self.limits)
        shown = pd.DataFrame(
            {
                "data set": taken["dataset"].map(dataset_label),
                "method": taken["family"].map(method_label),
                "setting": taken["setting"],
                "metric": taken["metric"].map(axis_label),
                "mean": taken["mean"],
            }
        )
        index = ["data set", "method", "setting"]
        return shown.pivot_table(index=index, columns="metric", values="mean", sort=False).round(2)

    def figure(self) -> NotebookFigure:
        """The methods with two limits, DeepNote and Adaptive-Note; saved with the points of all methods."""
        points = self.points()
        two = points[points["setting"].str.contains("-")]
        return self.save(curve_figure(two, "setting", "max step-max failure; CI-IU"), points)

    def figure_amber(self) -> NotebookFigure | None:
        """Amber by its number of iterations; saved with its points. None where it was not run."""
        points = self.points()
        points = points[points["family"] == "amber"]
        return None if points.empty else self.save(curve_figure(points, "setting", "iterations"), points, "amber")


def by_setting(table: pd.DataFrame, runs: Sequence[Run], limits: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The rows of a table that are of methods with limits, with `family` and, as `setting`, the values of the limits.

    `limits` are the names of the settings by family. With them a setting reads as in the papers: DeepNote's
    `max step-max failure` (its Table 4), Adaptive-Note's `CI-IU` (its Table 3), Amber's number of iterations (its Table
    4). Rows are in the order of the families in `limits` and of the settings.
    """
    names = sorted({name for of_family in limits.values() for name in of_family})
    table = with_settings(table, runs, names)
    table = table[table["family"].isin(list(limits))]
    setting = ["-".join(f"{row[name]:.0f}" for name in limits[row["family"]]) for row in table.to_dict("records")]
    order = table["family"].map(list(limits).index)
    ordered = table.assign(setting=setting, order=order).sort_values(["order", "setting"], kind="stable")
    return ordered.drop(columns=[*names, "order"]).reset_index(drop=True)
