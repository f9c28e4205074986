"""Further questions to the model about the answers of finished runs: they are runs too, stored and resumed."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from rag_notes.config import Config, build_datasets, build_llm
from rag_notes.llm.store import canonical_json
from rag_notes.running.records import Annotation, Condition, Run, Sample
from rag_notes.running.run import run_on
from rag_notes.types import Hit, InputError

Annotator = Callable[..., Awaitable[str]]
"""An async function `(about, rag, question, *, sha256)`: a method that is given what it asks about, by question id.

The hash of what it is given is among its settings, so that a run says what it is about.
"""


async def annotate(
    config: Config,
    runs: Sequence[Run],
    annotation: Annotation,
    annotator: Annotator,
    about: Callable[[Sample], Any],
    overrides: Sequence[str] = (),
    *,
    progress: bool = True,
) -> list[Run]:
    """Make `annotator` about every answer of these runs, which are of the chosen data sets; a run for each of them.

    `about` says, as plain JSON values, what of a sample the annotator is given; a sample that failed gives nothing, and
    its annotation fails too. The condition of a run made here names the annotation; its methods are those whose answers
    it is about, and its own answers are not scored. Raises as `rag_notes.running.evaluate.evaluate`.
    """
    datasets = {dataset.name: dataset for dataset in build_datasets(config)}
    made: list[Run] = []
    async with build_llm(config) as llm:
        for run in runs:
            methods = {method: _about(annotator, run.of(method), about) for method in run.methods}
            condition, dataset = Condition(annotates=annotation), datasets[run.dataset]
            made.append(
                await run_on(config, methods, dataset, _NoSearch(), llm, condition, overrides, progress=progress)
            )
            if not made[-1].info.finished:
                break
    return made


def told_sha256(samples: Sequence[Sample], about: Callable[[Sample], Any]) -> str:
    """The hash, among an annotator's settings, of what it is told of these answers."""
    return hashlib.sha256(canonical_json(_told(samples, about)).encode()).hexdigest()


def _told(samples: Sequence[Sample], about: Callable[[Sample], Any]) -> "_Told":
    return _Told((sample.question.id, about(sample)) for sample in samples if sample.error is None)


def _about(annotator: Annotator, samples: Sequence[Sample], about: Callable[[Sample], Any]) -> Annotator:
    return partial(annotator, _told(samples, about), sha256=told_sha256(samples, about))


class _Told(dict[str, Any]):
    def __missing__(self, question_id: str) -> Any:
        raise InputError(f"the run has no answer to {question_id}; run it again with retry_errors=true")


class _NoSearch:
    """In the place of a retriever where nothing is searched."""

    name = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise InputError("an annotation of finished answers has no corpus to search; give it what it needs in `about`")

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}
