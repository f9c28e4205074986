"""Self-RAG in its prompted form: grade, generate, check support and use, try again (DeepNote, baselines of Table 1)."""

import asyncio
from collections.abc import Sequence

from rag_notes.methods.about import ANSWER, DIRECT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Passage, Positive, Question

ABOUT = About(
    label="Self-RAG (prompted)",
    source="Self-RAG (Asai et al., 2024), a baseline of Adaptive-Note, DeepNote and Amber, Table 1",
    limits=("max_tries",),
    calls=lambda s: s["max_tries"] * (s["top_k"] + 4) - 1,
    prompts=("grade_passage", "self_rag_supported", "self_rag_useful", "rewrite_query", *ANSWER, *DIRECT),
)

GRADES = ("0", "1", "2", "3")


async def self_rag(rag: Rag, question: Question, *, top_k: Positive = 5, max_tries: Positive = 3) -> str:
    """Answer from the relevant passages until an answer is supported by them and useful, or `max_tries` were made.

    A try that fails, or finds no relevant passage, is followed by one with a rewritten query. The last answer stands;
    without any, the model answers from what it knows.
    """
    q = query = question.question
    answer: str | None = None
    earlier_queries: list[str] = []
    for attempt in range(1, max_tries + 1):
        passages = await relevant(rag, q, await rag.search(query, top_k))
        if passages:
            answer = await rag.answer(passages)
            supported, useful = await asyncio.gather(
                rag.judge("self_rag_supported", context=passages, question=q, answer=answer),
                rag.judge("self_rag_useful", question=q, answer=answer),
            )
            if supported and useful:
                rag.stop("supported and useful")
                return answer
        if attempt < max_tries:
            query = await rag.ask("rewrite_query", question=q, queries=earlier_queries) or q
            earlier_queries.append(query)
    rag.stop("max_tries")
    return await rag.answer() if answer is None else answer


async def relevant(rag: Rag, q: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages not graded 0, the best first, equals by rank; a grade that cannot be read counts as 0."""
    choices = (rag.choose("grade_passage", GRADES, "0", context=[passage], question=q) for passage in passages)
    grades = await asyncio.gather(*choices)
    ranked = sorted(zip(grades, passages, strict=True), key=lambda graded: graded[0], reverse=True)
    return [passage for grade, passage in ranked if grade != "0"]
