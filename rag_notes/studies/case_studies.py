"""Single questions seen by several methods (Adaptive-Note, Table A5; DeepNote, Tables 21 to 23; Chain-of-Note, 6)."""

from dataclasses import dataclass

import pandas as pd

from rag_notes.config import Config
from rag_notes.parts import ConfigError
from rag_notes.running.run import run_methods
from rag_notes.studies.base import Study


async def run(config: Config, *, question_ids: list[str] = [], progress: bool = True) -> "CaseStudies":  # noqa: B006
    """Run the methods, to show the questions of these ids, or those of `pick_cases` where none is named.

    Raises ConfigError for a question that the data set lacks.
    """
    runs = await run_methods(config, progress=progress)
    ids = list(runs[0].frame()["question_id"].unique())
    if unknown := [name for name in question_ids if name not in ids]:
        raise ConfigError(f"question_ids: {runs[0].dataset} has no {unknown[0]!r}; its first are {ids[:5]}")
    return CaseStudies(config, runs, question_ids or pick_cases(runs[0].frame()))


@dataclass(frozen=True, eq=False, repr=False)
class CaseStudies(Study):
    """The first run's questions: who answered what; `cases` are the ids of those that are shown."""

    cases: list[str]

    def answers(self) -> pd.DataFrame:
        """Return a row for each case, with a column for each method: `right: its answer`."""
        frame, methods = self.runs[0].frame(), self.runs[0].methods
        texts = frame["error"].fillna(frame["answer"]).str.split().str.join(" ").str[:120]
        frame = frame.assign(cell=frame["correctness"] + ": " + texts, id=frame["question_id"])
        about = frame.drop_duplicates("id").set_index("id")[["question", "gold"]]
        return about.join(frame.pivot(index="id", columns="method", values="cell")[methods]).loc[self.cases]


def pick_cases(frame: pd.DataFrame, most: int = 4) -> list[str]:
    """Return the questions that split the methods most evenly into right and not, the first of equal ones first.

    They are picked by correctness alone. Where all methods agree on every question, the first ones are taken.
    """
    right = (frame["correctness"] == "right").groupby(frame["question_id"], sort=False).sum()
    methods = frame["method"].nunique()
    split = right[(right > 0) & (right < methods)]
    distance = (2 * (split if len(split) else right) - methods).abs()
    return list(distance.sort_values(kind="stable").index[:most])
