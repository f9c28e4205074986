"""Silver labels of how complex a question is: the cheapest strategy that answered it in a run (Adaptive-RAG)."""

from collections.abc import Sequence

import pandas as pd

from rag_notes.methods.adaptive_rag import LABELS
from rag_notes.running.correctness import correctness
from rag_notes.running.records import Run
from rag_notes.types import InputError

STRATEGIES = ("no_retrieval", "vanilla", "ircot")  # what A, B and C stand for, the cheapest first

BY_DATASET = {  # of a question that no strategy answers (Adaptive-RAG, section 3.2)
    **dict.fromkeys(("squad", "nq_open", "triviaqa", "webquestions"), "B"),
    **dict.fromkeys(("hotpotqa", "twowikimultihopqa", "musique"), "C"),
}


def silver_labels(runs: Sequence[Run]) -> tuple[pd.DataFrame, int]:
    """Label every question of the runs with the cheapest strategy that answers it; and how many have no label.

    Columns: question, label. The runs must hold the methods no_retrieval, vanilla and ircot; raises InputError where
    one is missing. A question that none of them answers gets the label of its data set, B for single-hop data sets and
    C for multi-hop ones, as in Adaptive-RAG (section 3.2); one of any other data set is left out and counted.
    """
    rows, unanswered = [], 0
    for run in runs:
        if missing := [name for name in STRATEGIES if name not in run.methods]:
            raise InputError(
                f"the run of {run.dataset} lacks {', '.join(missing)}; "
                f"silver labels need method=[{','.join(STRATEGIES)}]"
            )
        right: dict[str, list[str]] = {}
        for sample in run.samples:
            solved = right.setdefault(sample.question.question, [])
            if sample.method in STRATEGIES and correctness(sample) == "right":
                solved.append(sample.method)
        for question, methods in right.items():
            solved_by = (label for label, name in zip(LABELS, STRATEGIES, strict=True) if name in methods)
            label = next(solved_by, BY_DATASET.get(run.dataset))
            unanswered += label is None
            rows += [{"question": question, "label": label}] if label else []
    return pd.DataFrame(rows, columns=["question", "label"]), unanswered
