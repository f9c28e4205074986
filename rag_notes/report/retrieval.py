"""Retrievers side by side: how much of the evidence each finds when it is asked the question itself."""

from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.metrics.retrieval import all_gold_at_k, answer_in_passages
from rag_notes.metrics.stats import mean_interval
from rag_notes.report.cells import interval_text
from rag_notes.report.markdown import markdown
from rag_notes.retrieval.base import Retriever
from rag_notes.types import Question


def retrieval_scores(questions: Sequence[Question], retriever: Retriever, top_k: int = 5) -> pd.DataFrame:
    """Search each question; a row for each with `all_gold` and `answer` of the first `top_k` hits, 0 or 1.

    A question without gold passages, or without an answer to look for, has NaN there.
    """
    found = retriever.search([question.question for question in questions], top_k)
    rows = []
    for question, hits in zip(questions, found, strict=True):
        titles = [hit.passage.title for hit in hits]
        by_title = not question.gold_ids and bool(question.gold_titles)
        gold = all_gold_at_k(titles, question.gold_titles) if by_title else all_gold_at_k(hits, question.gold_ids)
        rows.append([question.id, gold, answer_in_passages(hits, question.answers, question.language)])
    return pd.DataFrame(rows, columns=["question_id", "all_gold", "answer"]).astype(
        {"all_gold": "float64", "answer": "float64"}
    )


def retrieval_table(
    scores: Mapping[tuple[str, str], pd.DataFrame], top_k: int = 5, *, confidence: float = 0.95, resamples: int = 10_000
) -> str:
    """Lay out what `retrieval_scores` gave, by data set and retriever, as a table in Markdown: percent with intervals.

    Both shares have the number of questions that they are of.
    """
    rows = []
    for (dataset, retriever), frame in scores.items():
        cells = []
        for column in ("all_gold", "answer"):
            values = frame[column].dropna().tolist()
            if not values:
                cells += ["–", "0"]
                continue
            low, high, _ = mean_interval(values, confidence=confidence, resamples=resamples)
            cells += [interval_text(sum(values) / len(values), low, high), str(len(values))]
        rows.append([dataset, retriever, *cells])
    heads = ["data set", "retriever", f"all-gold@{top_k}", "questions", f"answer@{top_k}", "questions"]
    return markdown(pd.DataFrame(rows, columns=heads))
