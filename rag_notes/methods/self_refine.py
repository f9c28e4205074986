"""Self-Refine: answer, criticise the answer against the passages, answer again (Adaptive-Note, Table 1)."""

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, About
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Self-Refine",
    source="Adaptive-Note, baselines of Table 1",
    family="single search",
    calls=lambda s: 1 + 2 * s["rounds"],
    prompts=("self_refine_critique", "self_refine_revise", *ANSWER_FORMAT, *ANSWER),
)


async def self_refine(rag: Rag, question: Question, *, top_k: Positive = 5, rounds: Positive = 1) -> str:
    """Start from the vanilla answer and revise it `rounds` times by a critique of it."""
    q = question.question
    passages = await rag.search(q, top_k)
    answer = await rag.answer(passages)
    for _ in range(rounds):
        critique = await rag.ask("self_refine_critique", context=passages, question=q, answer=answer)
        answer = await rag.reason("self_refine_revise", context=passages, question=q, answer=answer, critique=critique)
    return answer
