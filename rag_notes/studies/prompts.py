"""The two sets of prompts on the same methods and questions: what does the wording do?"""

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
    runs: list[Run] = []
    for name in SETS:
        if all(run.info.finished for run in runs):
            runs += await run_methods(load_study("prompts", [*config.options, f"prompts={name}"]), progress=progress)
    return Prompts(config, runs)


class Prompts(Study):
    """Scores, calls and searches by the set of prompts, paired by question."""

    def table(self) -> pd.DataFrame:
        """Return a row for each data set, method and metric of `compare_runs`: small minus papers."""
        pairs = [[run for run in self.runs if run.dataset == dataset] for dataset in self.config.dataset]
        tables = [
            compare_runs(*pair, names=SETS, **self.tests).table.assign(dataset=pair[0].dataset)
            for pair in pairs
            if len(pair) == len(SETS)
        ]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
