"""The metrics of one answer: how right it is, and what its searches found. A pure function of what a sample holds."""

from collections.abc import Sequence

from rag_notes.events import Event, searches
from rag_notes.metrics.answer import score_answer
from rag_notes.metrics.retrieval import all_gold, answer_in_passages, any_gold
from rag_notes.types import Question


def score(question: Question, answer: str, trace: Sequence[Event]) -> dict[str, float]:
    """Mark an answer by the metrics of its question's task, and the searches of its trace by the gold passages.

    Scores are from 0 to 1. Those of the first search end in `_first`, those of all passages read in `_seen`.
    """
    metrics = score_answer(question, answer)
    rankings = [search.read for search in searches(trace)]
    if not rankings:
        return metrics
    seen = list({passage.id: passage for ranking in rankings for passage in ranking}.values())
    for suffix, passages in (("first", rankings[0]), ("seen", seen)):
        values = {
            "all_gold": all_gold(passages, question.gold_ids),
            "any_gold": any_gold(passages, question.gold_ids),
            "answer_in_passages": answer_in_passages(passages, question.answers, question.language),
        }
        metrics |= {f"{name}_{suffix}": value for name, value in values.items() if value is not None}
    return metrics
