"""A study takes over what other runs have of it, and only that; and what this saves is counted."""

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rag_notes.running.evaluate import describe, evaluate
from rag_notes.llm.client import LLM
from rag_notes.llm.store import ResponseStore
from rag_notes.methods.deepnote import deepnote
from rag_notes.methods.vanilla import vanilla
from rag_notes.running.records import RecordError, Run, load_run
from rag_notes.retrieval.bm25 import bm25
from rag_notes.running.sharing import made_elsewhere, shared_calls
from rag_notes.prompts.templates import Templates
from rag_notes.types import Passage, Question
from tests.loopback import Loopback

CORPUS = [Passage(f"p{n}", place, f"{place} lies on river {n}.") for n, place in enumerate(["Lima", "Oslo", "Hanoi"])]
QUESTIONS = [
    Question(f"q{n}", f"On which river does {passage.title} lie?", (f"river {n}",)) for n, passage in enumerate(CORPUS)
]
RETRIEVER = bm25(CORPUS, cache=None)


def run(
    folder: Path,
    methods: dict[str, Any],
    base_url: str | None,
    *,
    temperature: float = 0.1,
    questions: list[Question] = QUESTIONS,
    study: str | None = None,
) -> Run:
    """A run that takes over what the folders beside it have, with a store that knows nothing."""

    async def work() -> Run:
        async with LLM("tiny", store=ResponseStore(":memory:"), base_url=base_url, temperature=temperature) as llm:
            info = describe(methods, questions, RETRIEVER, llm, Templates(), dataset="rivers")
            made = made_elsewhere(folder.parent, info, folder)
            return await evaluate(
                methods,
                questions,
                RETRIEVER,
                llm,
                folder=folder,
                dataset="rivers",
                made=made,
                study=study,
                progress=False,
            )

    return asyncio.run(work())


def test_samples_of_another_run_are_taken_over_whatever_the_method_is_called(tmp_path: Path) -> None:
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "runs/a", {"vanilla": vanilla, "deep": partial(deepnote, max_step=1)}, server.base_url)
        asked = len(server.seen())
        again = run(tmp_path / "runs/b", {"one_step": partial(deepnote, max_step=1), "vanilla": vanilla}, None)
        assert len(server.seen()) == asked
    assert (again.info["taken_over"], again.info["usage"]["sent"], again.info["samples"]["errors"]) == (6, 0, 0)
    names = {"one_step": "deep", "vanilla": "vanilla"}
    assert [sample["method"] for sample in again.samples] == ["one_step"] * 3 + ["vanilla"] * 3
    for sample in again.samples:
        assert sample | {"method": names[sample["method"]]} == first.sample(
            names[sample["method"]], sample["question_id"]
        )
    assert again.info["seconds"] == {new: first.info["seconds"][old] for new, old in names.items()}
    assert load_run(tmp_path / "runs/b").samples == again.samples


@pytest.mark.parametrize("change", ["settings", "temperature", "questions"])
def test_what_was_made_otherwise_is_not_taken_over(change: str, tmp_path: Path) -> None:
    with Loopback(tmp_path / "log") as server:
        run(tmp_path / "runs/a", {"vanilla": vanilla}, server.base_url)
        other = run(
            tmp_path / "runs/b",
            {"vanilla": partial(vanilla, top_k=1) if change == "settings" else vanilla},
            server.base_url,
            temperature=0.7 if change == "temperature" else 0.1,
            questions=QUESTIONS[:2] if change == "questions" else QUESTIONS,
        )
    assert other.info["taken_over"] == 0
    assert other.info["usage"]["sent"] == (2 if change == "questions" else 3)


def test_a_failed_sample_is_not_taken_over(tmp_path: Path) -> None:
    broken = [QUESTIONS[0], Question("q9", "Which river? <500 500 500 500 500 500 500>", ("none",))]
    with Loopback(tmp_path / "log") as server:
        first = run(tmp_path / "runs/a", {"vanilla": vanilla}, None, questions=broken)
        second = run(tmp_path / "runs/b", {"v": vanilla}, server.base_url, questions=[QUESTIONS[0], QUESTIONS[1]])
        assert (first.info["samples"]["errors"], second.info["taken_over"]) == (2, 0)
        third = run(tmp_path / "runs/c", {"w": vanilla}, server.base_url, questions=broken[:1])
        fourth = run(tmp_path / "runs/d", {"x": vanilla}, None, questions=broken[:1])
    assert (third.info["taken_over"], fourth.info["taken_over"]) == (0, 1)


def test_a_malformed_neighbour_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs/broken").mkdir(parents=True)
    (tmp_path / "runs/broken/run.json").write_text("{")
    with pytest.raises(RecordError, match=r"broken/run\.json: not JSON"):
        run(tmp_path / "runs/b", {"vanilla": vanilla}, None)


def test_calls_are_new_for_the_first_study_that_asks_them(tmp_path: Path) -> None:
    with Loopback(tmp_path / "log", judge="True") as server:
        # A run made for two studies counts in both. DeepNote's one step are the first calls of two, but for the answer.
        url = server.base_url
        run(tmp_path / "runs/a", {"vanilla": vanilla, "two": partial(deepnote, max_step=2)}, url, study="main")
        run(tmp_path / "runs/a", {"vanilla": vanilla, "two": partial(deepnote, max_step=2)}, url, study="again")
        last = {"one": partial(deepnote, max_step=1), "two": partial(deepnote, max_step=2)}
        run(tmp_path / "runs/b", last, url, study="thresholds")
    table = shared_calls([load_run(tmp_path / "runs" / name) for name in "ab"], ["main"])
    expected = pd.DataFrame(
        [["main", 2, 6, 27, 27], ["again", 2, 6, 27, 0], ["thresholds", 2, 6, 39, 3], ["all", 6, 18, 93, 30]],
        columns=["study", "methods", "answers", "calls", "new"],
    )
    pd.testing.assert_frame_equal(table, expected)
    assert json.loads((tmp_path / "runs/a/run.json").read_text())["studies"] == ["again", "main"]
