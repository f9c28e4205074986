"""Methods without their parts (DeepNote, Tables 2 and 5; Adaptive-Note, Table 2; Amber, Table 2)."""

import pandas as pd

from rag_notes.studies.base import Study


class Ablation(Study):
    """Each whole method beside its variants."""

    def table(self) -> pd.DataFrame:
        """Return the scores of each `whole` method, its variants and vanilla RAG, tested against the whole one."""
        whole_of = {name: settings["method"] for name, settings in self.config.study.variants.items()}
        tables = []
        for whole in dict.fromkeys(whole_of.values()):
            if whole in self.config.method:
                names = [name for name in self.config.method if name == "vanilla" or whole_of.get(name, name) == whole]
                tables.append(self.results([run.only(names) for run in self.runs], whole).assign(whole=whole))
        return pd.concat(tables, ignore_index=True)


run = Ablation.run
