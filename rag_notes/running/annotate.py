"""Further questions to the model about the answers of finished runs: they are runs too, written like any other."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from rag_notes.config import Config, build_datasets, build_llm
from rag_notes.llm.store import canonical_json
from rag_notes.running.records import Annotation, Condition, Run
from rag_notes.running.run import run_on
from rag_notes.running.samples import Sample
from rag_notes.types import Hit, InputError

Annotator = Callable[..., Awaitable[str]]
"""An async function `(subjects, rag, question, *, sha256)`: a method that gets what it is about, by question id.

The hash of what it gets is among its settings, so that a run says what it is about.
"""


async def annotate(
    config: Config,
    runs: Sequence[Run],
    annotation: Annotation,
    annotator: Annotator,
    about: Callable[[Sample], Any],
    *,
    progress: bool = True,
) -> list[Run]:
    """Run `annotator` about every answer of these runs, which are of the chosen data sets; returns a run for each.

    `about` says, as plain JSON values, what the annotator reads of a sample; a sample that failed gives nothing, and
    its annotation fails too. The condition of a run that this makes names the annotation; its methods are those whose
    answers it is about, and its own answers are not scored. Raises as `rag_notes.running.evaluate.evaluate`.
    """
    datasets = {dataset.name: dataset for dataset in build_datasets(config)}
    annotations: list[Run] = []
    async with build_llm(config) as llm:
        for run in runs:
            methods = {method: _annotation_of(annotator, run.of(method), about) for method in run.methods}
            parts = (config, methods, datasets[run.dataset], _NoSearch(), llm, Condition(annotates=annotation))
            annotations.append(await run_on(*parts, progress=progress))
            if not annotations[-1].info.finished:
                break
    return annotations


def subject_hash(samples: Sequence[Sample], about: Callable[[Sample], Any]) -> str:
    """The hash, among an annotator's settings, of what it reads of these answers."""
    return hashlib.sha256(canonical_json(_subjects(samples, about)).encode()).hexdigest()


def _subjects(samples: Sequence[Sample], about: Callable[[Sample], Any]) -> "_Subjects":
    return _Subjects((sample.question.id, about(sample)) for sample in samples if sample.error is None)


def _annotation_of(annotator: Annotator, samples: Sequence[Sample], about: Callable[[Sample], Any]) -> Annotator:
    return partial(annotator, _subjects(samples, about), sha256=subject_hash(samples, about))


class _Subjects(dict[str, Any]):
    def __missing__(self, question_id: str) -> Any:
        raise InputError(f"the run has no answer to {question_id}; run it again (stored responses are taken)")


class _NoSearch:
    """In the place of a retriever where nothing is searched."""

    name = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise InputError("an annotation of finished answers has no corpus to search; give it what it needs in `about`")

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}
