"""Further questions to the model about the answers of finished runs: they are runs too, stored and resumed."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rag_notes.config import Config, build_datasets, build_llm
from rag_notes.llm.store import canonical_json
from rag_notes.records import Run, Sample
from rag_notes.study import run_methods
from rag_notes.types import Dataset, Hit

Inquiry = Callable[..., Awaitable[str]]
"""An async function `(about, rag, question, *, sha256)`: a method that is given what it asks about, by question id.

The hash of what it is given is among its settings, so that a run says what it is about.
"""


async def follow_up(
    config: Config,
    runs: Sequence[Run],
    name: str,
    inquiry: Inquiry,
    about: Callable[[Sample], Any],
    *,
    given: Sequence[str] = (),
    progress: bool = True,
) -> list[Run]:
    """Make `inquiry` about every answer of these runs, which are of the chosen data sets; a run for each of them.

    `about` says, as plain JSON values, what of a sample the inquiry is given; a sample that failed gives nothing, and
    its inquiry fails too. The run of data set `mini` is called `mini-<name>`, and its method `vanilla`
    `<name>_of_vanilla`: scores of the two are not of the same thing. Raises as `rag_notes.study.run_study`.
    """
    datasets = {dataset.name: dataset for dataset in build_datasets(config)}
    made = []
    async with build_llm(config) as llm:
        for run in runs:
            methods = {f"{name}_of_{method}": _inquire(inquiry, run, method, about) for method in run.methods}
            # Without gold: what the inquiry returns is no answer to be marked.
            questions = tuple(
                replace(question, answers=(), qa_pairs=(), gold_ids=(), gold_titles=(), task="news")
                for question in datasets[run.dataset].questions
            )
            dataset = Dataset(f"{run.dataset}-{name}", questions, ())
            made.append(await run_methods(config, methods, dataset, _NoSearch(), llm, given=given, progress=progress))
            if made[-1].info["status"] != "finished":
                break
    return made


def _inquire(inquiry: Inquiry, run: Run, method: str, about: Callable[[Sample], Any]) -> Inquiry:
    told = _About(
        (sample["question_id"], about(sample))
        for sample in run.samples
        if sample["method"] == method and sample["error"] is None
    )
    return partial(inquiry, told, sha256=hashlib.sha256(canonical_json(told).encode()).hexdigest())


class _About(dict[str, Any]):
    def __missing__(self, question_id: str) -> Any:
        raise ValueError(f"the run has no answer to {question_id}; run it again with retry_errors=true")


class _NoSearch:
    """In the place of a retriever where nothing is searched."""

    name = "none"

    def search(self, queries: Sequence[str], top_k: int) -> list[list[Hit]]:
        raise ValueError("an inquiry about finished answers has no corpus to search; give it what it needs in `about`")

    def describe(self) -> dict[str, Any]:
        return {"name": self.name}
