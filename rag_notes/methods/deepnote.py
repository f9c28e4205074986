"""DeepNote: notes grow by adaptive retrieval, and the best one answers (sections 3.1 to 3.3, equations 1 to 5)."""

import sys

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.note import Queries, grow_note
from rag_notes.methods.rag import Rag
from rag_notes.types import NonNegative, Positive, Question

ABOUT = About(
    label="DeepNote",
    source="DeepNote, sections 3.1 to 3.3, equations 1 to 5",
    family="notes",
    limits=("max_step", "max_failure"),
    parts={"adaptive_retrieval": {"max_step": 0}, "adaptive_retrieval+init_note": {"method": "vanilla"}},
    calls=lambda s: 2 + 3 * s["max_step"],
    prompts=("note_init", "note_query", "note_update", "note_judge", *ANSWER),
)


async def deepnote(
    rag: Rag,
    question: Question,
    *,
    top_k: Positive = 5,
    max_step: NonNegative = 3,
    max_failure: Positive = 2,
    max_passages: Positive | None = None,
    queries: Queries = "joined",
) -> str:
    """Write a note, then ask, search, update and judge until a threshold is met, and answer from the best note.

    The thresholds are `max_failure` failed updates, `max_step` updates, and, in the authors' code only, `max_passages`
    distinct passages (None: no such threshold).
    """
    limits = {"max_failure": max_failure, "max_step": max_step, "max_passages": max_passages or sys.maxsize}
    return await rag.answer(await grow_note(rag, limits, top_k=top_k, queries=queries))
