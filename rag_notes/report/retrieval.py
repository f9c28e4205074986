"""Retrievers beside each other: how much of the evidence each finds when the question itself is the query."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import scipy

from rag_notes.metrics.retrieval import all_gold_at_k, answer_in_passages
from rag_notes.metrics.stats import holm, mean_interval, paired_difference
from rag_notes.report.scores_table import dataset_label, interval_text
from rag_notes.retrieval.base import Retriever
from rag_notes.types import Dataset, Question


def retrieval_scores(questions: Sequence[Question], retriever: Retriever, top_k: int = 5) -> pd.DataFrame:
    """Search each question; a row for each with `all_gold` and `answer` of the first `top_k` hits, 0 or 1.

    A question without gold passages, or without an answer to look for, has NaN there.
    """
    rankings = retriever.search([question.question for question in questions], top_k)
    rows = []
    for question, hits in zip(questions, rankings, strict=True):
        names = [hit.passage.id if question.gold_ids else hit.passage.title for hit in hits]
        gold = all_gold_at_k(names, question.gold_ids or question.gold_titles)
        rows.append([gold, answer_in_passages(hits, question.answers, question.language)])
    index = pd.Index([question.id for question in questions], name="question_id")
    return pd.DataFrame(rows, index, columns=["all_gold", "answer"]).astype("float64")


def retrieval_table(
    retrievers: Iterable[tuple[Dataset, Mapping[str, Retriever]]],
    top_k: int = 5,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
) -> pd.DataFrame:
    """Show `retrieval_scores` of each data set and retriever, in % with intervals and numbers of questions.

    `to the first` is the difference in all-gold@k to the first retriever of the data set, and p that of the exact
    McNemar test of the questions on which the two differ, Holm-corrected for the retrievers of the data set.
    """
    options: dict[str, Any] = {"confidence": confidence, "resamples": resamples}
    rows = []
    for dataset, by_name in retrievers:
        scores = {name: retrieval_scores(dataset.questions, retriever, top_k) for name, retriever in by_name.items()}
        first = next(iter(scores.values()))["all_gold"].dropna()
        tests = (
            [
                paired_difference(frame["all_gold"].dropna().tolist(), first.tolist(), **options)
                for frame in scores.values()
            ]
            if len(first)
            else []
        )
        p_values = [
            float(scipy.stats.binomtest(test.wins, test.wins + test.losses).pvalue) if test.wins + test.losses else 1.0
            for test in tests[1:]
        ]
        p_texts = ["–", *("< .001" if p < 0.001 else f"{p:.3f}" for p in holm(p_values))]
        for number, (name, frame) in enumerate(scores.items()):
            row = {"data set": dataset_label(dataset.name), "retriever": name}
            for column, head in (("all_gold", f"all-gold@{top_k}"), ("answer", f"answer@{top_k}")):
                values = frame[column].dropna().tolist()
                interval = mean_interval(values, **options)[:2] if values else ()
                row[head] = (
                    f"{interval_text(sum(values) / len(values), *interval)} n = {len(values)}" if values else "–"
                )
            compared = number > 0 and bool(tests)
            row["to the first"] = interval_text(*tests[number][:3], spec="+.1f") if compared else "–"
            rows.append(row | {"p": p_texts[number] if compared else "–"})
    return pd.DataFrame(rows).set_index(["data set", "retriever"])
