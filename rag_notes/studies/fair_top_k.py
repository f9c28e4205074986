"""As many passages for one search as an adaptive method reads in all (Adaptive-Note, Tables A1 and A2)."""

from dataclasses import dataclass
from functools import partial

import pandas as pd

from rag_notes.config import Config, build_methods
from rag_notes.parts import ConfigError
from rag_notes.report.tables import counts
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, adaptive: str | None = None, progress: bool = True) -> "FairTopK":
    """Run an adaptive method, then one search with as many passages as it reads in all, and with numbers between.

    `adaptive` is by default the first method but `vanilla`. The fair number of a data set is the mean of the distinct
    passages that it read there, rounded. `vanilla_kN` runs with vanilla's own number of passages, half-way, with each
    fair number and two beyond. Raises ConfigError without both methods, and as `rag_notes.running.run.run_methods`.
    """
    methods = build_methods(config)
    others = [name for name in methods if name not in ("vanilla", *config.study.variants)]
    if "vanilla" not in methods or not others:
        raise ConfigError("study=fair_top_k sets vanilla beside an adaptive method; name both: method=[vanilla,amber]")
    adaptive = adaptive or others[0]
    if adaptive not in others:
        raise ConfigError(f"adaptive: {adaptive!r} is not among the methods; there is {', '.join(others)}")
    runs = await run_methods(config, progress=progress)
    if runs[-1].info.finished:
        least = config.method["vanilla"]["top_k"]
        table = counts([run.only([adaptive]) for run in runs], ["distinct_passages"], resamples=1)
        fair = [max(least, round(mean)) for mean in table["mean"]]
        ks = {least}.union(*(((least + k) // 2, k, k + 2) for k in fair))
        methods |= {f"vanilla_k{k}": partial(methods["vanilla"], top_k=k) for k in sorted(ks)}
        runs = await run_methods(config, methods=methods, progress=progress)
    return FairTopK(config, runs, adaptive)


@dataclass(frozen=True, eq=False, repr=False)
class FairTopK(Study):
    """The adaptive method beside one search with as many passages."""

    adaptive: str

    def table(self) -> pd.DataFrame:
        """Return the scores, each tested against the adaptive method, with the `passages` that were read.

        `passages`, `passages_low` and `passages_high` are the mean distinct passages a question and its interval.
        """
        columns = {"mean": "passages", "low": "passages_low", "high": "passages_high"}
        passages = self.means(["distinct_passages"]).set_index(["dataset", "method"])[[*columns]]
        return self.results(self.runs, self.adaptive).join(passages.rename(columns=columns), on=["dataset", "method"])
