"""How many calls and searches a method makes for a question, and how many of the calls must wait for another."""

import asyncio
from collections.abc import Mapping, Sequence

import pandas as pd

from rag_notes.evaluate import Method
from rag_notes.llm.client import LLM, RecordingMissError
from rag_notes.llm.store import Response
from rag_notes.rag import Rag, Searcher
from rag_notes.records import count_events
from rag_notes.retrieval.base import Retriever
from rag_notes.templates import Templates
from rag_notes.types import Question


class _Rounds(LLM):
    """Another LLM's stored responses, handed out round by round: to all calls that wait, at the same moment."""

    def __init__(self, llm: LLM) -> None:
        super().__init__(llm.model, store=llm.store)
        self.sampling = llm.sampling
        self._waiting: list[asyncio.Future[None]] = []

    async def ask(self, prompt: str, *, stop: Sequence[str] = (), logprobs: bool = False, repeat: int = 0) -> Response:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn
        return await super().ask(prompt, stop=stop, logprobs=logprobs, repeat=repeat)

    def release(self) -> bool:
        """Answer the calls that wait; whether there were any."""
        waiting, self._waiting = self._waiting, []
        for turn in waiting:
            turn.set_result(None)
        return bool(waiting)


async def count_calls(
    methods: Mapping[str, Method],
    questions: Sequence[Question],
    retriever: Retriever,
    llm: LLM,
    templates: Templates | None = None,
) -> pd.DataFrame:
    """Play methods from stored responses; a row for each method and question: calls, searches and `chain`.

    `chain` is the length of the longest chain of calls: the number of rounds that it takes when every call that waits
    is answered at once. A question whose responses are not all stored has no row.
    """
    rows = []
    templates = templates or Templates()
    for name, method in methods.items():
        for question in questions:
            rounds, searcher = _Rounds(llm), Searcher(retriever)
            rag = Rag(question, method=name, llm=rounds, searcher=searcher, templates=templates)
            work = asyncio.ensure_future(method(rag, question))
            chain = 0
            while not work.done():
                await searcher.settled()
                chain += rounds.release()
                await asyncio.sleep(0)
            try:
                await work
            except RecordingMissError:
                continue
            counts = count_events(rag.trace)
            rows.append([name, question.id, counts["calls"], counts["searches"], chain])
    return pd.DataFrame(rows, columns=["method", "question_id", "calls", "searches", "chain"])


def calls_table(calls: pd.DataFrame) -> str:
    """Lay out means a question of what `count_calls` gave, as a table in Markdown: a row a method."""
    lines = ["| method | questions | calls | searches | longest chain | its maximum |", "|---|---|---|---|---|---|"]
    for name, rows in calls.groupby("method", sort=False):
        means = " | ".join(f"{rows[column].mean():.1f}" for column in ("calls", "searches", "chain"))
        lines.append(f"| {str(name).replace('_', ' ')} | {len(rows)} | {means} | {rows['chain'].max()} |")
    return "\n".join(lines)
