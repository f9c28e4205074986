"""Every method on every chosen data set (DeepNote, Adaptive-Note and Amber, Table 1 of each)."""

from rag_notes.config import Config
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, progress: bool = True) -> "MainResults":
    """Run every chosen method on every chosen data set. Raises as `rag_notes.running.run.run_methods`."""
    return MainResults(config, await run_methods(config, progress=progress))


class MainResults(Study):
    """The scores of all methods."""

    def better_answers(self, method: str = "deepnote", other: str = "vanilla") -> list[str]:
        """Return the ids of questions of the first run that only `method` answers right, and by searching again.

        The first search of `method` lacked a gold passage, and a later one found it.
        """
        table = self.runs[0].frame()
        columns = ["correctness", "all_gold_first", "all_gold_seen"]
        if not {method, other} <= set(table["method"]) or not set(columns) <= set(table):
            return []
        wide = table.pivot(index="question_id", columns="method", values=columns).loc[table["question_id"].unique()]
        right = (wide["correctness", method] == "right") & (wide["correctness", other] != "right")
        gained = (wide["all_gold_first", method] == 0) & (wide["all_gold_seen", method] == 1)
        return list(wide.index[right & gained])
