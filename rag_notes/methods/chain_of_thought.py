"""Chain of thought: vanilla RAG with a step-by-step instruction (Chain-of-Note, Appendix A.5, prompt 2)."""

from rag_notes.methods.about import ANSWER_FORMAT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Chain of thought",
    source="Chain-of-Note, Appendix A.5, prompt 2",
    family="single search",
    calls=lambda _: 1,
    prompts=("chain_of_thought", *ANSWER_FORMAT, "unknown_clause"),
)


async def chain_of_thought(rag: Rag, question: Question, *, top_k: Positive = 5, unknown: bool = False) -> str:
    """Search once and reason step by step over the passages; `unknown` offers this word as an answer."""
    passages = await rag.search(question.question, top_k)
    return await rag.reason("chain_of_thought", context=passages, question=rag.question_text(unknown=unknown))
