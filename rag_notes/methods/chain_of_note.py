"""Chain-of-Note: a reading note for each passage, their relevance, then the answer (section 2.3, Appendix A.5)."""

from rag_notes.methods.about import ANSWER_FORMAT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Chain-of-Note",
    source="Chain-of-Note, section 2.3 and Appendix A.5, prompt 3",
    family="notes",
    calls=lambda _: 1,
    prompts=("chain_of_note", *ANSWER_FORMAT, "unknown_clause"),
)


async def chain_of_note(rag: Rag, question: Question, *, top_k: Positive = 5, unknown: bool = False) -> str:
    """Search once; notes, relevance and answer come in one response.

    `unknown` offers this word as an answer, as section 2.3 has it and the prompt of Appendix A.5 does not.
    """
    passages = await rag.search(question.question, top_k)
    return await rag.reason("chain_of_note", context=passages, question=rag.question_text(unknown=unknown))
