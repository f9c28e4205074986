"""RAT: a drafted chain of thought is revised step by step, each with a search of its own (DeepNote, Table 1)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="RAT",
    source="RAT (Wang et al., 2024), a baseline of DeepNote, Table 1",
    code="https://github.com/CraftJarvis/RAT/tree/006e86e31422cc9d2150f3a2b3d67f1be571f5c9",
    limits=("max_steps",),
    calls=lambda s: s["max_steps"] + 2,
    prompts=("rat_draft", "rat_revise", *ANSWER),
)


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
