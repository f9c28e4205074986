"""What studies share: calls that the response store answers, and the count of those that each study added."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.bm25 import bm25
from rag_notes.running.evaluate import evaluate
from rag_notes.running.records import Run
from rag_notes.running.run_files import load_run
from rag_notes.studies.shared import shared_calls, shared_table
from rag_notes.types import Dataset, Passage, Question
from tests.loopback import Loopback

CORPUS = [Passage(f"p{n}", place, f"{place} lies on river {n}.") for n, place in enumerate(["Lima", "Oslo", "Hanoi"])]
QUESTIONS = [
    Question(f"q{n}", f"On which river does {passage.title} lie?", (f"river {n}",)) for n, passage in enumerate(CORPUS)
]
RETRIEVER = bm25(CORPUS, cache=None)


def run(folder: Path, methods: dict[str, Any], base_url: str | None, study: str) -> Run:
    """A run whose responses go to a store beside the folders."""

    async def work() -> Run:
        store = ResponseStore(folder.parent / "store.sqlite")
        async with LLM("tiny", store=store, base_url=base_url, temperature=0.1) as llm:
            return await evaluate(
                methods,
                Dataset("rivers", tuple(QUESTIONS), CORPUS),
                RETRIEVER,
                llm,
                folder=folder,
                study=study,
                progress=False,
            )

    return asyncio.run(work())


def test_a_second_study_asks_only_what_is_new_and_nothing_that_is_stored(tmp_path: Path) -> None:
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "a", {"vanilla": vanilla, "deep": partial(deepnote, max_step=1)}, server.base_url, "one")
        asked = len(server.seen())
        again = run(tmp_path / "b", {"one_step": partial(deepnote, max_step=1), "v": vanilla}, server.base_url, "two")
        assert len(server.seen()) == asked
    assert [sample.answer for sample in again.of("v")] == [sample.answer for sample in first.of("vanilla")]
    assert [sample.trace for sample in again.of("one_step")] == [sample.trace for sample in first.of("deep")]


def test_calls_are_new_for_the_first_study_that_asks_them(tmp_path: Path) -> None:
    with Loopback(tmp_path / "log", judge="True") as server:
        # A run made for two studies counts in both. DeepNote's one step are the first calls of two, but for the answer.
        both = {"vanilla": vanilla, "two": partial(deepnote, max_step=2)}
        run(tmp_path / "a", both, server.base_url, "main_results")
        run(tmp_path / "a", both, server.base_url, "again")
        last = {"one": partial(deepnote, max_step=1), "two": partial(deepnote, max_step=2)}
        made = run(tmp_path / "b", last, server.base_url, "thresholds")
    table = shared_calls([load_run(tmp_path / "a"), made], ["main_results"])
    expected = pd.DataFrame(
        [["main_results", 2, 6, 27, 27], ["again", 2, 6, 27, 0], ["thresholds", 2, 6, 39, 3], ["all", 6, 18, 93, 30]],
        columns=["study", "methods", "answers", "calls", "new"],
    )
    pd.testing.assert_frame_equal(table, expected)
    assert load_run(tmp_path / "a").info.studies == ["again", "main_results"]
    lines = shared_table(table).splitlines()
    assert lines[0] == "| study | methods | answers | calls asked for | of them new | share |"
    assert lines[2] == "| main results | 2 | 6 | 27 | 27 | 100 % |"
    assert lines[-1] == "| all | 6 | 18 | 93 | 30 | 32 % |"
    assert shared_table(shared_calls([])).splitlines()[-1] == "| all | 0 | 0 | 0 | 0 | – |"
