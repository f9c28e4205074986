"""What the papers claim, tested by the runs of this project: those of all studies and those that are published."""

import pandas as pd

from rag_notes.config import Config, load_study
from rag_notes.files import here
from rag_notes.papers.numbers import paper_claims
from rag_notes.papers.verification import verify
from rag_notes.running.publish import published_runs
from rag_notes.running.records import Run, load_run, run_folders
from rag_notes.studies.base import Study
from rag_notes.studies.robustness import run_with_noise


async def run(config: Config, *, progress: bool = True) -> "Verification":
    """Run every method and every setting that the papers' tables vary. Raises as `run_methods`."""
    runs: list[Run] = []
    for part in parts(config):
        if all(run.info.finished for run in runs):
            runs += await run_with_noise(part, progress=progress)
    return Verification(config, runs)


def parts(config: Config) -> list[Config]:
    """Return the configurations of which a study consists: its own, and for the verification those with variants."""
    others = ("ablation", "thresholds", "top_k", "robustness") if config.study.name == "verification" else ()
    options = [option for option in config.options if not option.startswith(("study=", "method="))]
    return [config, *(load_study(name, options) for name in others)]


class Verification(Study):
    """The papers' claims beside all runs in the runs' folder, those of this study among them, and in `data/results`."""

    def table(self) -> pd.DataFrame:
        """Return the rows of `verify`, those on data sets that no paper has first."""
        extra = [name for name in self.config.dataset if name not in set(paper_claims()["dataset"])]
        runs = map(load_run, run_folders(here() / self.config.runs))
        return verify([*runs, *published_runs()], extra_datasets=extra, resamples=self.config.resamples)
