"""Self-Rerank: the LLM grades the passages and reads the relevant ones (Adaptive-Note, baselines of Table 1)."""

import asyncio
from collections.abc import Sequence

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Passage, Positive, Question

GRADES = ("0", "1", "2", "3")

ABOUT = About(
    label="Self-Rerank",
    source="Adaptive-Note, baselines of Table 1",
    family="single search",
    calls=lambda s: s["top_k"] + 1,
    prompts=("grade_passage", *ANSWER),
)


async def self_rerank(rag: Rag, question: Question, *, top_k: Positive = 5) -> str:
    """Search once, grade each passage from 0 to 3, and answer from the relevant ones, the best first."""
    passages = await rag.search(question.question, top_k)
    return await rag.answer(await relevant(rag, question.question, passages))


async def relevant(rag: Rag, q: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages not graded 0, the best first, equals by rank; a grade that cannot be read counts as 0."""
    grades = await asyncio.gather(
        *(rag.choose("grade_passage", GRADES, "0", context=[passage], question=q) for passage in passages)
    )
    ranked = sorted(zip(grades, passages, strict=True), key=lambda graded: graded[0], reverse=True)
    return [passage for grade, passage in ranked if grade != "0"]
