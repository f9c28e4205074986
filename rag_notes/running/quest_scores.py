"""The scores of RAGQuestEval joined to the answers that they are about, whose runs and annotations lie apart."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from rag_notes.running.annotate import subject_hash
from rag_notes.running.records import Run
from rag_notes.running.samples import Sample
from rag_notes.types import InputError

_KEY = ["method", "question_id"]


def quest_texts(sample: Sample) -> dict[str, str]:
    """What RAGQuestEval reads of an answer. Raises InputError for a question without gold answer."""
    if not sample.gold:
        raise InputError(f"question {sample.question.id} has no gold answer to make questions from; leave it out")
    return {"gold": sample.gold[0], "generated": sample.answer}


def with_quest_scores(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs, by name, each answer with the scores that an annotation among them has for it."""
    annotations = [run for run in runs.values() if run.info.condition.annotates == "quest_eval"]
    return {name: _scored(run, annotations) for name, run in runs.items()}


def _scored(run: Run, annotations: list[Run]) -> Run:
    if run.info.condition.annotates is not None:
        return run
    scores = [
        {"method": row.method, "question_id": row.question_id} | json.loads(str(row.answer))["scores"]
        for annotation in annotations
        for method in run.methods
        if _is_about(annotation, run, method)
        for row in annotation.only([method]).frame().query("error.isna()").itertuples()
    ]
    if not scores:
        return run
    return replace(run, table=run.frame().merge(pd.DataFrame(scores).drop_duplicates(_KEY, keep="last"), "left", _KEY))


def _is_about(annotation: Run, run: Run, method: str) -> bool:
    a, b = annotation.info, run.info
    if (a.dataset.name, a.llm, a.repeat) != (b.dataset.name, b.llm, b.repeat) or method not in a.methods:
        return False
    samples = run.of(method)
    return (
        all(sample.gold for sample in samples if sample.error is None)
        and subject_hash(samples, quest_texts) == a.methods[method].settings["sha256"]
    )
