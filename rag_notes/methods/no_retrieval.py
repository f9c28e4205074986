"""No retrieval: the model answers from what it knows (the first rows of every main table)."""

from rag_notes.methods.rag import Rag
from rag_notes.types import Question


async def no_retrieval(rag: Rag, question: Question) -> str:
    """Ask the question as it is."""
    return await rag.answer()
