"""Play methods from stored responses alone: how far the store reaches, and how many calls must wait for another."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rag_notes.events import Ask, answered, count
from rag_notes.llm.client import LLM, RecordingMissError
from rag_notes.llm.store import Response
from rag_notes.methods.about import label_of
from rag_notes.methods.rag import Rag, Searcher
from rag_notes.prompts.templates import Templates
from rag_notes.retrieval.base import Retriever
from rag_notes.running.describe import Method
from rag_notes.types import Question


class Replayed(NamedTuple):
    """A method on a question, from stored responses: the calls that they answer, and whether they reach to the end.

    `depth` is the sequential depth: the number of rounds that it takes when every call that waits is answered at once.
    """

    question: Question
    calls: list[Ask]
    searches: int
    depth: int
    complete: bool


class _Rounds(LLM):
    """Another LLM's stored responses, handed out round by round: to all calls that wait, at the same moment."""

    def __init__(self, llm: LLM) -> None:
        super().__init__(llm.model, store=llm.store)
        self.sampling = llm.sampling
        self.waiting: list[asyncio.Future[None]] = []

    async def answer(self, request: dict[str, Any], key: str) -> Response:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(turn)
        await turn
        return await super().answer(request, key)


async def replay(
    method: Method, questions: Sequence[Question], retriever: Retriever, llm: LLM, templates: Templates
) -> AsyncIterator[Replayed]:
    """Play a method on each question; nothing is asked that is not stored."""
    for question in questions:
        rounds, searcher = _Rounds(llm), Searcher(retriever)
        rounds.stages = {stage: _Rounds(other) for stage, other in llm.stages.items()}
        everyone = [rounds, *(other for other in rounds.stages.values() if isinstance(other, _Rounds))]
        rag = Rag(question, method="replay", llm=rounds, searcher=searcher, templates=templates)
        work = asyncio.ensure_future(method(rag, question))
        depth = 0
        while not work.done():
            await searcher.settled()
            turns = [turn for one in everyone for turn in one.waiting]
            for one in everyone:
                one.waiting = []
            for turn in turns:
                turn.set_result(None)
            depth += bool(turns)
            await asyncio.sleep(0)
        complete = not isinstance(work.exception(), RecordingMissError)
        if complete:
            work.result()  # raises what is no miss
        yield Replayed(question, answered(rag.trace), count(rag.trace).searches, depth, complete)


async def count_calls(
    methods: Mapping[str, Method],
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates,
) -> pd.DataFrame:
    """Count calls and searches of methods: a row for each method and question, with the sequential `depth`.

    A question whose responses are not all stored has no row.
    """
    rows = [
        [name, played.question.id, len(played.calls), played.searches, played.depth]
        for name, method in methods.items()
        async for played in replay(method, questions, retriever, llm, templates)
        if played.complete
    ]
    return pd.DataFrame(rows, columns=["method", "question_id", "calls", "searches", "depth"])


def calls_by_method(counted: pd.DataFrame) -> pd.DataFrame:
    """Means a question of what `count_calls` gave, as text: a row a method, with the largest sequential depth."""
    rows = [
        [label_of(str(name)), len(group)]
        + [f"{group[column].mean():.1f}" for column in ("calls", "searches", "depth")]
        + [group["depth"].max()]
        for name, group in counted.groupby("method", sort=False)
    ]
    return pd.DataFrame(rows, columns=["method", "questions", "calls", "searches", "sequential depth", "its maximum"])
