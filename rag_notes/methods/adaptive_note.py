"""Adaptive-Note: iterative information collector and adaptive memory reviewer (Methodology, equations 1 to 9)."""

import sys
from typing import Literal

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_lines
from rag_notes.methods.rag import Rag
from rag_notes.types import NonNegative, Positive, Question

JOINED_LENGTH = 500  # characters; where the published runs cut the joined query

ABOUT = About(
    label="Adaptive-Note",
    source="Adaptive-Note, Methodology, equations 1 to 9",
    code="https://github.com/thunlp/Adaptive-Note/blob/f8c065215cee66221bfb5fae043ca3b842285e9f/src/main.py",
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
    queries: Literal["joined", "separate"] = "joined",
) -> str:
    """Collect into a note until one of three thresholds is met (equation 8), then answer from the optimal memory.

    The thresholds are the paper's CI (`collector_iterations`), IU (`invalid_updates`, in total) and RP
    (`retrieved_passages`, distinct). The search that would go past RP keeps only unseen passages up to it, and its
    update is the last. Without `reviewer`, as in the ablation (Table 2), every update becomes the memory and CI alone
    ends the loop.
    """
    q = question.question
    if not reviewer:
        retrieved_passages = sys.maxsize
    passages = await rag.search(q, min(top_k, retrieved_passages))
    memory = rag.note(await rag.ask("note_init", context=passages, question=q), kept=True)
    seen = {passage.id for passage in passages}
    asked: list[str] = []
    iterations = invalid = 0
    while True:
        if iterations >= collector_iterations:
            rag.stop("collector_iterations")
            break
        if invalid >= invalid_updates:
            rag.stop("invalid_updates")
            break
        if len(seen) >= retrieved_passages:
            rag.stop("retrieved_passages")
            break
        new = parse_lines(await rag.ask("note_query", question=q, note=memory, queries=asked))
        asked += new
        if queries == "joined":
            passages = await rag.search(" ".join([*new, q])[:JOINED_LENGTH], top_k)
        else:
            passages = await rag.search_all(new or [q], top_k)
        if len(seen | {passage.id for passage in passages}) > retrieved_passages:
            unseen = [passage for passage in passages if passage.id not in seen]
            passages = rag.read_only(unseen[: retrieved_passages - len(seen)])
        seen |= {passage.id for passage in passages}
        note = await rag.ask("note_update", context=passages, question=q, note=memory)
        better = not reviewer or await rag.judge("note_judge", question=q, best_note=memory, new_note=note)
        rag.note(note, kept=better)
        iterations += 1
        if better:
            memory = note
        else:
            invalid += 1
    return await rag.answer(memory)
