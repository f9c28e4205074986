"""The two sets of prompts on the same methods and questions: what does the wording do?"""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from rag_notes.config import ConfigError, load_study
from rag_notes.report.cells import method_label
from rag_notes.report.compare import compare_runs, differences
from rag_notes.report.curves import curve_figure
from rag_notes.report.figures import NotebookFigure
from rag_notes.running.records import Run
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study, once

SETS = ("papers", "small")
"""The sets that are compared; differences are the second minus the first."""

_DRAWN = ("acc", "f1", "yes_no_acc", "str_em")


async def run(options: Sequence[str] = (), *, progress: bool = True) -> "Prompts":
    """Run the chosen methods with each set of prompts.

    Raises ConfigError where a set is chosen, otherwise as `rag_notes.running.run.run_methods`.
    """
    one_repeat(load_study("prompts", options))
    if chosen := [option for option in options if option.startswith("prompts=")]:
        raise ConfigError(f"{chosen[0]}: this study runs {' and '.join(SETS)}; leave the option out")
    runs: dict[str, list[Run]] = {}
    for name in SETS:
        chosen = [*options, f"prompts={name}"]
        runs[name] = await run_methods(load_study("prompts", chosen), chosen, progress=progress)
        if not runs[name][-1].info.finished:
            break
    return Prompts(load_study("prompts", options), options, [run for made in runs.values() for run in made], runs)


@dataclass(frozen=True, eq=False, repr=False)
class Prompts(Study):
    """Scores, calls and searches by the set of prompts, paired by question."""

    by_set: dict[str, list[Run]]

    @once
    def table(self) -> pd.DataFrame:
        """A row for each data set, method and metric, as `rag_notes.report.compare.compare_runs`, small - papers."""
        both = zip(*(self.by_set.get(name, []) for name in SETS), strict=False)
        tables = [
            compare_runs(papers, small, names=SETS, **self.intervals).table.assign(dataset=papers.dataset)
            for papers, small in both
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def display(self) -> pd.DataFrame:
        """Both means and their difference with its interval, scores in %; a star is a significant difference."""
        table = self.table()
        return table if table.empty else differences(table, SETS)

    def figure(self) -> NotebookFigure:
        """Scores by method, a line for each set; saved with the table of differences."""
        tables = [self.results(runs, baseline=None).assign(prompts=name) for name, runs in self.by_set.items()]
        points = pd.concat(tables, ignore_index=True)
        points = points[points["metric"].isin(_DRAWN)].assign(method=lambda table: table["method"].map(method_label))
        return self.save(curve_figure(points, "method", "method", line="prompts"), self.table())
