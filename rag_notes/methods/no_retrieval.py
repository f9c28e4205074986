"""No retrieval: the model answers from what it knows (the first rows of every main table)."""

from rag_notes.methods.about import DIRECT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Question

SOURCE = "the first rows of every main table"
ABOUT = About(label="No retrieval", source=SOURCE, family="baseline", calls=lambda _: 1, prompts=DIRECT)


async def no_retrieval(rag: Rag, question: Question) -> str:
    """Ask the question as it is."""
    return await rag.answer()
