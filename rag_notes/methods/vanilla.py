"""Vanilla RAG: one search, one answer from the passages (DeepNote, section 4.2)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Vanilla RAG",
    source="DeepNote, section 4.2",
    family="baseline",
    calls=lambda _: 1,
    prompts=ANSWER,
)


async def vanilla(rag: Rag, question: Question, *, top_k: Positive = 5) -> str:
    """Search the question once and answer from the `top_k` passages."""
    passages = await rag.search(question.question, top_k)
    return await rag.answer(passages)
