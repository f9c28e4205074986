"""Amber: agent-based memory updater, adaptive information collector, multi-granular content filter (section 3)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_copied, parse_new_question
from rag_notes.methods.rag import Rag
from rag_notes.prompts.templates import Value
from rag_notes.types import Passage, Positive, Question

ABOUT = About(
    label="Amber",
    source="Amber, section 3, Appendix D",
    family="notes",
    limits=("max_iterations",),
    parts={
        "cf": {"chunk_filter": False},
        "sf": {"sentence_filter": False},
        "cf+sf": {"chunk_filter": False, "sentence_filter": False},
        "am": {"agents": False},
    },
    calls=lambda s: (
        s["max_iterations"] * (s["top_k"] * (s["chunk_filter"] + s["sentence_filter"]) + 3 * s["agents"] + 4) - 1
    ),
    prompts=(
        *("amber_chunk_filter", "amber_sentence_filter"),
        *("note_init", "note_update", "amber_review", "amber_challenge", "amber_refine", "note_judge"),
        *("amber_sufficient", "amber_query"),
        *ANSWER,
    ),
)


async def amber(
    rag: Rag,
    question: Question,
    *,
    top_k: Positive = 5,
    max_iterations: Positive = 3,
    chunk_filter: bool = True,
    sentence_filter: bool = True,
    agents: bool = True,
) -> str:
    """Search, filter and update the memory until it suffices for the question or `max_iterations` were made.

    The switches are the parts that the ablation takes out: the two levels of the content filter and the three agents
    (Table 2). Where the filter leaves nothing the memory stays as it is and the iteration counts.
    """
    q = query = question.question
    memory = ""
    asked: list[str] = []
    for iteration in range(1, max_iterations + 1):
        passages = await rag.search(query, top_k)
        if chunk_filter:
            passages = await useful(rag, query, passages)
        if sentence_filter:
            passages = await helpful_sentences(rag, query, passages)
        if passages:
            memory = await update(rag, q, memory, passages, agents=agents)
        if memory and await rag.judge("amber_sufficient", question=q, note=memory):
            rag.stop("sufficient")
            break
        if iteration < max_iterations:
            response = await rag.ask("amber_query", question=q, note=memory or [], queries=asked)
            if (new := parse_new_question(response)) is None:
                rag.parse_failure("amber_query")
            query = new or q
            asked.append(query)
    else:
        rag.stop("max_iterations")
    return await rag.answer(memory or [])


async def useful(rag: Rag, query: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages that the chunk-level filter finds useful; what cannot be read counts as useless (section 3.5)."""
    choices = ("useful", "useless")
    verdicts = await asyncio.gather(
        *(rag.choose("amber_chunk_filter", choices, "useless", context=[p], question=query) for p in passages)
    )
    return [passage for passage, verdict in zip(passages, verdicts, strict=True) if verdict == "useful"]


async def helpful_sentences(rag: Rag, query: str, passages: Sequence[Passage]) -> list[Passage]:
    """The passages cut to the sentences that the sentence-level filter copies from them (section 3.5).

    A response with no sentence of its passage in it cannot be read, and the passage stays whole.
    """
    responses = await asyncio.gather(
        *(rag.ask("amber_sentence_filter", context=[passage], question=query) for passage in passages)
    )
    space = "" if rag.question.language == "zh" else " "
    filtered = []
    for passage, response in zip(passages, responses, strict=True):
        copied = parse_copied(passage.text, response, rag.question.language)
        if not copied:
            rag.parse_failure("amber_sentence_filter")
        filtered.append(replace(passage, text=space.join(copied)) if copied else passage)
    return filtered


async def update(rag: Rag, q: str, memory: str, passages: Sequence[Passage], *, agents: bool) -> str:
    """A draft, reviewed, challenged and refined; the better of it and the memory before (section 3.3, Table 6)."""
    if memory:
        draft = await rag.ask("note_update", context=passages, question=q, note=memory)
    else:
        draft = await rag.ask("note_init", context=passages, question=q)
    if agents:
        fields: dict[str, Value] = {"context": passages, "question": q, "note": draft}
        review = await rag.ask("amber_review", **fields)
        suggestions = await rag.ask("amber_challenge", review=review, **fields)
        draft = await rag.ask("amber_refine", review=review, suggestions=suggestions, **fields)
    better = not memory or await rag.judge("note_judge", question=q, best_note=memory, new_note=draft)
    rag.note(draft, kept=better)
    return draft if better else memory
