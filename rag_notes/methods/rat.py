"""RAT: a drafted chain of thought is revised step by step, each with a search of its own (DeepNote, Table 1)."""

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.types import Positive, Question

ABOUT = About(
    label="RAT",
    source="RAT (Wang et al., 2024), a baseline of DeepNote, Table 1",
    limits=("max_steps",),
    calls=lambda s: s["max_steps"] + 2,
    prompts=("rat_draft", "rat_revise", *ANSWER),
)


async def rat(rag: Rag, question: Question, *, top_k: Positive = 5, max_steps: Positive = 4) -> str:
    """Draft without retrieval, take up the first `max_steps` steps in turn, and answer from what then stands.

    Each step is put behind what was revised before it, and all of that is searched and revised (RAT, section 2.2).
    """
    q = question.question
    draft = parse_lines(await rag.ask("rat_draft", question=q))
    if len(draft) > max_steps:
        rag.stop("max_steps")
    text: list[str] = []
    for step in draft[:max_steps]:
        text.append(step)
        passages = await rag.search(" ".join([q, *text]), top_k)
        revised = parse_lines(await rag.ask("rat_revise", context=passages, question=q, text=text))
        if not revised:
            rag.parse_failure("rat_revise")
        text = revised or text
    return await rag.answer("\n".join(text) or [])
