"""Further questions to the model about the answers of finished runs: they are runs too, written like any other."""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from rag_notes.config import Config, build_datasets, build_llm
from rag_notes.llm.store import canonical_json
from rag_notes.running.evaluate import Method
from rag_notes.running.records import KEY, Annotation, Condition, Run
from rag_notes.running.run import run_on
from rag_notes.running.samples import Sample
from rag_notes.types import Hit, InputError


async def annotate(
    config: Config,
    runs: Sequence[Run],
    annotation: Annotation,
    annotator: Method,
    about: Callable[[Sample], Any],
    *,
    progress: bool = True,
) -> list[Run]:
    """Run `annotator` about every answer of these runs, which are of the chosen data sets; returns a run for each.

    The annotator is an async function `(subjects, rag, question, *, sha256)`: `subjects` has, by question id, what
    `about` returns of a sample as plain JSON values, and `sha256` is the hash of that. A sample that failed gives
    nothing, and its annotation fails too. The condition of a run that this makes names the annotation; its methods are
    those whose answers it is about, and its own answers are not scored. Raises as `evaluate`.
    """
    datasets = {dataset.name: dataset for dataset in build_datasets(config)}
    annotations: list[Run] = []
    async with build_llm(config) as llm:
        for run in runs:
            subjects = {method: Subjects(run.of(method), about) for method in run.methods}
            methods = {method: partial(annotator, texts, sha256=texts.sha256) for method, texts in subjects.items()}
            parts = (config, methods, datasets[run.dataset], _NoSearch(), llm, Condition(annotates=annotation))
            annotations.append(await run_on(*parts, progress=progress))
            if not annotations[-1].info.finished:
                break
    return annotations


def quest_texts(sample: Sample) -> dict[str, str]:
    """Return what RAGQuestEval reads of an answer. Raises InputError for a question without gold answer."""
    if not sample.gold:
        raise InputError(f"question {sample.question.id} has no gold answer to make questions from; leave it out")
    return {"gold": sample.gold[0], "generated": sample.answer}


def with_quest_scores(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that annotate none, each answer with the scores that an annotation among `runs` has for it."""
    annotations = [run for run in runs if run.info.condition.annotates == "quest_eval"]
    return [_with_scores(run, annotations) for run in runs if run.info.condition.annotates is None]


def _with_scores(run: Run, annotations: Sequence[Run]) -> Run:
    scores = [
        {"method": method, "question_id": row.question_id, **json.loads(str(row.answer))["scores"]}
        for annotation in annotations
        for method in run.methods
        if _is_about(annotation, run, method)
        for row in annotation.only([method]).frame().query("error.isna()").itertuples()
    ]
    if not scores:
        return run
    return replace(run, table=run.frame().merge(pd.DataFrame(scores).drop_duplicates(KEY, keep="last"), "left", KEY))


def _is_about(annotation: Run, run: Run, method: str) -> bool:
    setups = [(one.dataset, one.info.llm, one.info.repeat) for one in (annotation, run)]
    if setups[0] != setups[1] or method not in annotation.methods:
        return False
    samples, sha256 = run.of(method), annotation.info.methods[method].settings["sha256"]
    has_gold = all(sample.gold for sample in samples if sample.error is None)
    return has_gold and Subjects(samples, quest_texts).sha256 == str(sha256)


class Subjects(dict[str, Any]):
    """What an annotator reads of the answers without error, by question id."""

    def __init__(self, samples: Iterable[Sample], about: Callable[[Sample], Any]) -> None:
        super().__init__((sample.question.id, about(sample)) for sample in samples if sample.error is None)

    def __missing__(self, question_id: str) -> Any:
        raise InputError(f"the run has no answer to {question_id}; run it again (stored responses are taken)")

    @property
    def sha256(self) -> str:
        """The hash among the annotator's settings."""
        return hashlib.sha256(canonical_json(self).encode()).hexdigest()


class _NoSearch:
    """In the place of a retriever where nothing is searched."""

    name = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise InputError("an annotation of finished answers has no corpus to search; give it what it needs in `about`")

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}
