"""Retrieve-Read: the standard retrieval-augmented reader (Chain-of-Note, section 3.1 and Appendix A.5, prompt 1)."""

from rag_notes.methods.about import ANSWER_FORMAT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Retrieve-Read",
    source="Chain-of-Note, section 3.1.2 and Appendix A.5, prompt 1",
    family="single search",
    calls=lambda _: 1,
    prompts=("retrieve_read", *ANSWER_FORMAT, "unknown_clause"),
)


async def retrieve_read(rag: Rag, question: Question, *, top_k: Positive = 5, unknown: bool = False) -> str:
    """Search once and answer briefly, not bound to the passages; `unknown` offers this word as an answer."""
    passages = await rag.search(question.question, top_k)
    q = rag.question_text(unknown=unknown)
    return await rag.ask("retrieve_read", context=passages, question=q, form=rag.answer_format)
