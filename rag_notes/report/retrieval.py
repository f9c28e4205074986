"""Retrievers beside each other: how much of the evidence each finds when the question itself is the query."""

from collections.abc import Iterable, Mapping
from typing import Any

from rag_notes.events import Counts
from rag_notes.metrics.retrieval import all_gold, answer_in_passages
from rag_notes.report.scores_table import ScoresTable
from rag_notes.report.tables import results
from rag_notes.retrieval.base import Retriever
from rag_notes.running.records import Condition, DatasetInfo, MethodInfo, Run, RunInfo
from rag_notes.running.samples import Sample
from rag_notes.types import Dataset


def retrieval_run(dataset: Dataset, retrievers: Mapping[str, Retriever], top_k: int = 5) -> Run:
    """Search each question with each retriever: a run with the retrievers as its methods, without answers.

    `all_gold_seen` and `answer_in_passages_seen` are of the first `top_k` hits, 0 or 1; a question without gold
    passages, or without an answer to look for, lacks them.
    """
    samples = []
    for name, retriever in retrievers.items():
        rankings = retriever.search([question.question for question in dataset.questions], top_k)
        for question, hits in zip(dataset.questions, rankings, strict=True):
            passages = [hit.passage.id if question.gold_ids else hit.passage.title for hit in hits]
            gold_seen = all_gold(passages, question.gold_ids or question.gold_titles)
            answer_seen = answer_in_passages(hits, question.answers, question.language)
            scores = {"all_gold_seen": gold_seen, "answer_in_passages_seen": answer_seen}
            metrics = {metric: score for metric, score in scores.items() if score is not None}
            samples.append(Sample(name, question, "", None, metrics, Counts(), []))
    methods = {name: MethodInfo(name, {}) for name in retrievers}
    info = DatasetInfo(dataset.name, len(dataset.questions), "")
    return Run(RunInfo(info, Condition(), methods, {"name": ""}, {}, "", {}), samples)


def retrieval_table(
    retrievers: Iterable[tuple[Dataset, Mapping[str, Retriever]]], top_k: int = 5, **intervals: Any
) -> ScoresTable:
    """Show `retrieval_run` of each data set, with tests against its first retriever; options are those of `results`."""
    runs = [retrieval_run(dataset, by_name, top_k) for dataset, by_name in retrievers]
    table = results(runs, baseline=runs[0].methods[0], **intervals).assign(label=lambda rows: rows["method"])
    return ScoresTable(table, notes=[f"Of the first {top_k} passages; the question is the query."])
