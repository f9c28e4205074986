"""The two sets of prompts on the same methods and questions: what does the wording do?"""

from dataclasses import dataclass

import pandas as pd

from rag_notes.config import Config, load_study
from rag_notes.report.compare import compare_runs
from rag_notes.running.records import Run
from rag_notes.running.run import one_repeat, run_methods
from rag_notes.studies.base import Study

SETS = ("papers", "small")
"""The sets that are compared; differences are the second minus the first."""


async def run(config: Config, *, progress: bool = True) -> "Prompts":
    """Run the chosen methods with each set of prompts. Raises as `rag_notes.running.run.run_methods`."""
    one_repeat(config)
    by_set: dict[str, list[Run]] = {}
    for name in SETS:
        chosen = load_study("prompts", [*config.options, f"prompts={name}"])
        by_set[name] = await run_methods(chosen, progress=progress)
        if not by_set[name][-1].info.finished:
            break
    return Prompts(config, [run for runs in by_set.values() for run in runs], by_set)


@dataclass(frozen=True, eq=False, repr=False)
class Prompts(Study):
    """Scores, calls and searches by the set of prompts, paired by question."""

    by_set: dict[str, list[Run]]

    def table(self) -> pd.DataFrame:
        """Return a row for each data set, method and metric of `compare_runs`: small minus papers."""
        pairs = zip(*(self.by_set[name] for name in SETS), strict=True) if len(self.by_set) == len(SETS) else ()
        tables = [
            compare_runs(papers, small, names=SETS, **self.intervals).table.assign(dataset=papers.dataset)
            for papers, small in pairs
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
