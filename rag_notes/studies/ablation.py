"""Methods without their parts (DeepNote, Tables 2 and 5; Adaptive-Note, Table 2; Amber, Table 2)."""

import pandas as pd

from rag_notes.config import Config
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, progress: bool = True) -> "Ablation":
    """Run the whole methods, their variants and vanilla RAG. Raises as `rag_notes.running.run.run_methods`."""
    return Ablation(config, await run_methods(config, progress=progress))


class Ablation(Study):
    """Each whole method beside its variants."""

    def table(self) -> pd.DataFrame:
        """Return the scores of each `whole` method, its variants and vanilla RAG, tested against the whole one."""
        variants = self.config.study.variants
        tables = []
        for whole in dict.fromkeys(settings["method"] for settings in variants.values()):
            if whole in self.config.method:
                names = {
                    whole,
                    "vanilla",
                    *(name for name, settings in variants.items() if settings["method"] == whole),
                }
                parts = [run.only([name for name in run.methods if name in names]) for run in self.runs]
                tables.append(self.results(parts, whole).assign(whole=whole))
        return pd.concat(tables, ignore_index=True)
