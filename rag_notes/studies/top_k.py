"""Passages per search and retrievers (DeepNote, Tables 6 to 8; Adaptive-Note, Table 4; Amber, Table 3)."""

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from rag_notes.config import Config, load_study
from rag_notes.running.records import Run
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, retrievers: list[str] = [], progress: bool = True) -> "TopK":  # noqa: B006
    """Run the methods with several numbers of passages per search, with each retriever of `conf/retriever` named.

    Without `retrievers` there is one, that of the configuration. Raises as `rag_notes.running.run.run_methods`.
    """
    runs: dict[str, list[Run]] = {}
    for name in retrievers or [""]:
        chosen = load_study("top_k", [*config.options, f"retriever={name}"]) if name else config
        retriever_runs = await run_methods(chosen, progress=progress)
        runs[name or retriever_runs[0].info.retriever["name"]] = retriever_runs
        if not retriever_runs[-1].info.finished:
            break
    return TopK(config, [run for retriever_runs in runs.values() for run in retriever_runs], runs)


@dataclass(frozen=True, eq=False, repr=False)
class TopK(Study):
    """Scores by the number of passages per search, for each retriever."""

    by_retriever: Mapping[str, list[Run]]

    def table(self) -> pd.DataFrame:
        """Return the scores by `retriever` and `top_k`; `line` names method and retriever.

        Each is tested against the baseline, or its variant, that searches for as many passages, where there is one.
        """
        tables = []
        for retriever, runs in self.by_retriever.items():
            numbers = {name: method.settings.get("top_k") for name, method in runs[0].info.methods.items()}
            for k in sorted(set(numbers.values()), key=lambda k: k or 0):
                names = [name for name, number in numbers.items() if number == k]
                baseline = next((name for name in names if name.removesuffix(f"_k{k}") == self.config.baseline), None)
                table = self.results([run.only(names) for run in runs], baseline)
                tables.append(table.assign(retriever=retriever, top_k=k))
        table = pd.concat(tables, ignore_index=True)
        several = len(self.by_retriever) > 1
        return table.assign(line=table["function"] + (", " + table["retriever"] if several else ""))
