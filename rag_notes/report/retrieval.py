"""Retrievers side by side: how much of the evidence each finds when it is asked the question itself."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import pandas as pd
import scipy

from rag_notes.metrics.retrieval import all_gold_at_k, answer_in_passages
from rag_notes.metrics.stats import holm, mean_interval, paired_difference
from rag_notes.report.cells import interval_text, p_text
from rag_notes.report.markdown import markdown
from rag_notes.report.trec import documents
from rag_notes.retrieval.base import Retriever
from rag_notes.types import Question


def retrieval_scores(questions: Sequence[Question], retriever: Retriever, top_k: int = 5) -> pd.DataFrame:
    """Search each question; a row for each with `all_gold` and `answer` of the first `top_k` hits, 0 or 1.

    A question without gold passages, or without an answer to look for, has NaN there. `found` are the hits, by id or,
    where the gold is named so, by title.
    """
    found = retriever.search([question.question for question in questions], top_k)
    rows = []
    for question, hits in zip(questions, found, strict=True):
        names = documents(question, [hit.passage for hit in hits])
        gold = all_gold_at_k(names, question.gold_ids or question.gold_titles)
        rows.append([question.id, gold, answer_in_passages(hits, question.answers, question.language), names])
    return pd.DataFrame(rows, columns=["question_id", "all_gold", "answer", "found"]).astype(
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


def retrieval_differences(
    scores: Mapping[tuple[str, str], pd.DataFrame], top_k: int = 5, *, confidence: float = 0.95, resamples: int = 10_000
) -> str:
    """Test the retrievers of each data set against each other by all-gold@k, as a table in Markdown.

    A pair has the difference in percent with its interval, how many questions only one of the two finds all gold of,
    and the exact McNemar test of these: the two-sided binomial p, and that after Holm's correction for a data set's
    pairs. Pairs without a question that has gold have no row.
    """
    rows = []
    for dataset in dict.fromkeys(of for of, _ in scores):
        own = {
            name: frame.set_index("question_id")["all_gold"].dropna()
            for (of, name), frame in scores.items()
            if of == dataset
        }
        family = []
        for a, b in combinations(own, 2):
            if own[a].empty:
                continue
            result = paired_difference(own[b].tolist(), own[a].tolist(), confidence=confidence, resamples=resamples)
            differing = result.wins + result.losses
            p = float(scipy.stats.binomtest(result.wins, differing).pvalue) if differing else 1.0
            cells = [interval_text(result.mean, result.low, result.high), f"{result.losses} / {result.wins}"]
            family.append(([dataset, f"{b} - {a}", *cells, str(result.n)], p))
        adjusted = holm([p for _, p in family])
        rows += [[*cells, p_text(p), p_text(q)] for (cells, p), q in zip(family, adjusted, strict=True)]
    heads = ["data set", f"all-gold@{top_k}", "difference", "only first / only second", "questions", "p", "p Holm"]
    return markdown(pd.DataFrame(rows, columns=heads))
