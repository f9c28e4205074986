"""RAT: a drafted chain of thought is revised step by step, each with a search of its own (DeepNote, Table 1)."""

from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question


async def rat(rag: Rag, question: Question, *, top_k: Positive = 5, max_steps: Positive = 4) -> str:
    """Draft without retrieval, revise the first `max_steps` steps in turn, and answer from the revised steps.

    The query of a step is the question with what is written so far: the revised steps and the draft of this one.
    """
    q = question.question
    draft = parse_lines(await rag.ask("rat_draft", question=q))
    if len(draft) > max_steps:
        rag.stop("max_steps")
    revised: list[str] = []
    for step in draft[:max_steps]:
        passages = await rag.search(" ".join([q, *revised, step]), top_k)
        lines = parse_lines(await rag.ask("rat_revise", context=passages, question=q, steps=revised, step=step))
        if not lines:
            rag.parse_failure("rat_revise")
        revised.append(" ".join(lines) or step)
    return await rag.answer("\n".join(revised) or [])
