"""DeepNote: notes grow by adaptive retrieval, and the best one answers (sections 3.1 to 3.3, equations 1 to 5)."""

from typing import Literal

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.types import NonNegative, Positive, Question

JOINED_LENGTH = 500  # characters; where the published runs cut the joined query

ABOUT = About(
    label="DeepNote",
    source="DeepNote, sections 3.1 to 3.3, equations 1 to 5",
    code="https://github.com/thunlp/DeepNote",
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
    queries: Literal["joined", "separate"] = "joined",
) -> str:
    """Write a note, then ask, search, update and judge until `max_failure` updates failed or `max_step` were made.

    Failures count in total, not in a row, and a failed update leaves the best note as it was. `queries` says how the
    two new questions are searched: `joined` with the original one in a single search, or `separate`, one search each
    with the results merged by rank; both give `top_k` passages.
    """
    q = question.question
    passages = await rag.search(q, top_k)
    best = rag.note(await rag.ask("note_init", context=passages, question=q), kept=True)
    asked: list[str] = []
    failures = 0
    for _ in range(max_step):
        new = parse_lines(await rag.ask("note_query", question=q, note=best, queries=asked))
        asked += new
        if queries == "joined":
            passages = await rag.search(" ".join([*new, q])[:JOINED_LENGTH], top_k)
        else:
            passages = await rag.search_all(new or [q], top_k)
        note = await rag.ask("note_update", context=passages, question=q, note=best)
        better = await rag.judge("note_judge", question=q, best_note=best, new_note=note)
        rag.note(note, kept=better)
        if better:
            best = note
        else:
            failures += 1
        if failures >= max_failure:
            rag.stop("max_failure")
            break
    else:
        rag.stop("max_step")
    return await rag.answer(best)
