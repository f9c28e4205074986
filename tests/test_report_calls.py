"""Calls, searches and sequential depth, counted on methods whose shape is known."""

import asyncio

import pytest

from rag_notes.llm.client import LLM
from rag_notes.llm.store import Response, ResponseStore
from rag_notes.methods.rag import Rag
from rag_notes.prompts.templates import Templates
from rag_notes.running.replay import calls_by_method, count_calls
from rag_notes.types import Question
from tests.scripted import ScriptedRetriever

QUESTIONS = [Question(f"q{number}", f"Question {number}?", ("yes",)) for number in (1, 2)]


async def fan(rag: Rag, question: Question) -> str:
    """Two searches at once, three calls at once after the first, then two calls one after the other."""
    first, _ = await asyncio.gather(rag.search("a", 2), rag.search("b", 1))
    grades = await asyncio.gather(*(rag.ask_text("grade", f"{number} {len(first)}") for number in range(3)))
    middle = await rag.ask_text("middle", f"{question.question} {' '.join(grades)}")
    return await rag.ask_text("end", middle)


async def chains(rag: Rag, question: Question) -> str:
    """Two chains beside each other: search, call, call; and a single call."""

    async def long() -> str:
        await rag.search("a", 1)
        return await rag.ask_text("second", await rag.ask_text("first", "0 2"))

    return " ".join(await asyncio.gather(long(), rag.ask_text("single", "1 2")))


@pytest.fixture
def llm() -> LLM:
    llm = LLM("tiny", store=ResponseStore(":memory:"))
    for prompt in ("0 2", "1 2", "2 2", "good", "Question 1? good good good"):
        llm.store.put(llm.request(prompt), Response("good", "stop", 1, 1, seconds=0.0))
    return llm


def test_calls_that_go_out_together_are_one_link_of_the_chain(llm: LLM) -> None:
    methods = {"fan": fan, "chains": chains}
    counted = asyncio.run(count_calls(methods, QUESTIONS, ScriptedRetriever(lambda _: "abc"), llm, Templates()))
    assert counted.to_numpy().tolist() == [
        ["fan", "q1", 5, 2, 3],  # the second question's call in the middle is not stored: no row
        ["chains", "q1", 3, 1, 2],
        ["chains", "q2", 3, 1, 2],
    ]
    assert calls_by_method(counted).to_numpy().tolist() == [
        ["fan", 1, "5.0", "2.0", "3.0", 3],
        ["chains", 2, "3.0", "1.0", "2.0", 2],
    ]


def test_a_bug_in_a_method_is_not_taken_for_a_missing_response(llm: LLM) -> None:
    async def broken(rag: Rag, question: Question) -> str:
        raise KeyError(question.id)

    with pytest.raises(KeyError, match="q1"):
        asyncio.run(count_calls({"broken": broken}, QUESTIONS, ScriptedRetriever(lambda _: ""), llm, Templates()))
