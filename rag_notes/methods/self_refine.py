"""Self-Refine: the passages are refined to what is useful, and that is read (Adaptive-Note, baselines of Table 1)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Self-Refine",
    source="Adaptive-Note, baselines of Table 1 and Results, with the prompts of ActiveRAG (Xu et al., 2024)",
    family="single search",
    calls=lambda _: 2,
    prompts=("self_refine", *ANSWER),
)


async def self_refine(rag: Rag, question: Question, *, top_k: Positive = 5) -> str:
    """Search once, extract and sum up what is useful in the passages, and answer from that alone."""
    q = question.question
    passages = await rag.search(q, top_k)
    summary = await rag.ask("self_refine", context=passages, question=q)
    return await rag.answer(summary or [])
