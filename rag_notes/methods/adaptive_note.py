"""Adaptive-Note: iterative information collector and adaptive memory reviewer (Methodology, equations 1 to 9)."""

import sys

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.note import Queries, grow_note
from rag_notes.methods.rag import Rag
from rag_notes.types import NonNegative, Positive, Question

ABOUT = About(
    label="Adaptive-Note",
    source="Adaptive-Note, Methodology, equations 1 to 9",
    family="notes",
    limits=("collector_iterations", "invalid_updates", "retrieved_passages"),
    parts={"amr": {"reviewer": False}, "iic+amr": {"method": "vanilla"}},
    calls=lambda s: 2 + (3 if s["reviewer"] else 2) * s["collector_iterations"],
    prompts=("note_init", "note_query", "note_update", "note_judge", *ANSWER),
)


async def adaptive_note(
    rag: Rag,
    question: Question,
    *,
    top_k: Positive = 5,
    collector_iterations: NonNegative = 3,
    invalid_updates: Positive = 1,
    retrieved_passages: Positive = 15,
    reviewer: bool = True,
    queries: Queries = "joined",
) -> str:
    """Collect into a note until a threshold is met (equation 8), and answer from the optimal memory.

    The thresholds are the paper's IU (`invalid_updates`, in total), CI (`collector_iterations`) and RP
    (`retrieved_passages`, distinct). Without `reviewer`, as in the ablation (Table 2), every update becomes the memory
    and CI alone ends the loop.
    """
    limits = {"invalid_updates": invalid_updates, "collector_iterations": collector_iterations}
    limits["retrieved_passages"] = retrieved_passages if reviewer else sys.maxsize
    return await rag.answer(await grow_note(rag, limits, top_k=top_k, queries=queries, judged=reviewer))
