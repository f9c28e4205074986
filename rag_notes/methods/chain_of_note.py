"""Chain-of-Note: a reading note for each passage, their relevance, then the answer (section 2.3, Appendix A.5)."""

from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question


async def chain_of_note(rag: Rag, question: Question, *, top_k: Positive = 5) -> str:
    """Search once; notes, relevance and answer come in one response, the answer behind its marker."""
    passages = await rag.search(question.question, top_k)
    return await rag.reason("chain_of_note", context=passages, question=question.question)
