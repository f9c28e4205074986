"""The scores of RAGQuestEval put to the answers that they are about, whose runs and annotations lie apart."""

import json
from collections.abc import Mapping
from dataclasses import replace

from rag_notes.running.annotate import told_sha256
from rag_notes.running.records import Run, Sample
from rag_notes.types import InputError


def quest_texts(sample: Sample) -> dict[str, str]:
    """What RAGQuestEval is given of an answer. Raises InputError for a question without gold answer."""
    if not sample.gold:
        raise InputError(f"question {sample.question.id} has no gold answer to make questions from; leave it out")
    return {"gold": sample.gold[0], "generated": sample.answer}


def with_quest_scores(runs: Mapping[str, Run]) -> dict[str, Run]:
    """The runs, by name, each answer with the scores that an annotation among them has of it."""
    annotations = [run for run in runs.values() if run.info.condition.annotates == "quest_eval"]
    return {name: _scored(run, annotations) for name, run in runs.items()}


def _scored(run: Run, annotations: list[Run]) -> Run:
    found: dict[tuple[str, str], dict[str, float]] = {}
    if run.info.condition.annotates is None:
        for made in annotations:
            for method in set(made.methods) & set(run.methods):
                if made.dataset == run.dataset and _about(made, run, method):
                    answers = {s.question.id: s.answer for s in made.of(method) if s.error is None}
                    found |= {(method, name): json.loads(text)["scores"] for name, text in answers.items()}
    if not found:
        return run
    samples = [replace(s, metrics=s.metrics | found.get((s.method, s.question.id), {})) for s in run.samples]
    return replace(run, samples=samples)


def _about(made: Run, run: Run, method: str) -> bool:
    samples = run.of(method)
    if not all(sample.gold for sample in samples if sample.error is None):
        return False
    same = (made.info.llm, made.info.repeat) == (run.info.llm, run.info.repeat)
    return same and made.info.methods[method].settings["sha256"] == told_sha256(samples, quest_texts)
