"""A data set of twelve questions about rivers, and runs of it, for tests of runs."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.base import Retriever
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.types import Dataset, Passage, Question

PLACES = ["Lisbon", "Vienna", "Cairo", "Lima", "Oslo", "Hanoi", "Quito", "Accra", "Dakar", "Minsk", "Sofia", "Tunis"]
CORPUS = [
    Passage(f"p{number}", place, f"{place} lies on river number {number}.") for number, place in enumerate(PLACES)
]
QUESTIONS = [
    Question(f"q{n}", f"On which river does {place} lie?", (f"river number {n}",)) for n, place in enumerate(PLACES)
]
METHODS = {"vanilla": vanilla, "deepnote": deepnote}


def run_in(
    folder: Path | None,
    base_url: str | None,
    retriever: Retriever,
    *,
    store: ResponseStore | str = ":memory:",
    questions: Sequence[Question] = QUESTIONS,
    methods: Any = METHODS,
    llm: dict[str, Any] | None = None,
    progress: bool = False,
    **options: Any,
) -> Run:
    settings: dict[str, Any] = {"concurrency": 4, "max_retries": 0, "timeout": 30.0} | (llm or {})
    opened = store if isinstance(store, ResponseStore) else ResponseStore(store)

    by_name = methods if isinstance(methods, dict) else {method.__name__: method for method in methods}
    dataset = Dataset("questions", tuple(questions), ())

    async def run() -> Run:
        async with LLM("tiny", store=opened, base_url=base_url, **settings) as model:
            return await evaluate(by_name, dataset, retriever, model, folder=folder, progress=progress, **options)

    return asyncio.run(run())
