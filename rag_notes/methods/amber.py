"""Amber: agent-based memory updater, adaptive information collector, multi-granular content filter (section 3)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_copied, parse_new_question
from rag_notes.methods.rag import Rag
from rag_notes.types import Passage, Positive, Probability, Question

ABOUT = About(
    label="Amber",
    source="Amber, sections 3.2 to 3.5, Appendices A and D",
    family="notes",
    limits=("max_iterations",),
    parts={
        "cf": {"chunk_filter": False},
        "sf": {"sentence_filter": False},
        "cf+sf": {"chunk_filter": False, "sentence_filter": False},
        "am": {"agents": False},
    },
    calls=lambda s: (
        s["max_iterations"] * (s["top_k"] * (s["chunk_filter"] + s["sentence_filter"]) + 3 * s["agents"] + 4)
        - (not s["agents"])
    ),
    prompts=(
        *("amber_chunk_filter", "amber_sentence_filter", "note_init", "note_update", "note_judge", "amber_review"),
        *("amber_review_memory", "amber_challenge", "amber_refine", "amber_sufficient", "amber_query", *ANSWER),
    ),
)


async def amber(
    rag: Rag,
    question: Question,
    *,
    top_k: Positive = 5,
    max_iterations: Positive = 3,
    chunk_filter: bool = True,
    chunk_threshold: Probability | None = None,
    sentence_filter: bool = True,
    agents: bool = True,
    filter_query: Literal["question", "query"] = "question",
    no_sentence: Literal["keep", "drop"] = "keep",
    reviewer_memory: bool = False,
) -> str:
    """Search, filter and update the memory until it suffices for the question or `max_iterations` were made.

    `chunk_filter`, `sentence_filter` and `agents` are what the ablation takes out (Table 2). With `chunk_threshold` a
    passage is useful that is so with at least this probability; that needs log-probabilities: raises FatalLLMError
    where the endpoint gives none. `filter_query` is what the filters see: the question (section 3.2, equation 1) or the
    current query. `no_sentence` is what becomes of a passage of which no sentence was copied. `reviewer_memory` shows
    the Reviewer the memory too, as section 3.3 says and the prompt of Table 6 does not. Where the filters leave nothing
    the memory stays as it is and the iteration counts.
    """
    q = query = question.question
    memory = ""
    earlier_queries: list[str] = []
    for iteration in range(1, max_iterations + 1):
        passages = await rag.search(query, top_k)
        about = q if filter_query == "question" else query
        if chunk_filter:
            passages = await useful(rag, about, passages, chunk_threshold)
        if sentence_filter:
            passages = await helpful_sentences(rag, about, passages, no_sentence)
        if passages:
            memory = await update(rag, q, memory, passages, agents=agents, reviewer_memory=reviewer_memory)
        if memory and await rag.judge("amber_sufficient", question=q, note=memory):
            rag.stop("sufficient")
            break
        if iteration < max_iterations:
            response = await rag.ask("amber_query", question=q, note=memory or [], queries=earlier_queries)
            if (new_question := parse_new_question(response)) is None:
                rag.parse_failure("amber_query")
            query = new_question or q
            earlier_queries.append(query)
    else:
        rag.stop("max_iterations")
    return await rag.answer(memory or [])


async def useful(rag: Rag, about: str, passages: Sequence[Passage], threshold: float | None = None) -> list[Passage]:
    """The passages that the chunk-level filter finds useful; what cannot be read counts as useless (section 3.5)."""
    stage, choices = "amber_chunk_filter", ("useful", "useless")
    if threshold is None:
        chosen = (rag.choose(stage, choices, "useless", context=[passage], question=about) for passage in passages)
        verdicts = await asyncio.gather(*chosen)
    else:
        read = (rag.probability(stage, choices, context=[passage], question=about) for passage in passages)
        verdicts = [choices[probability < threshold] for probability in await asyncio.gather(*read)]
        for verdict in verdicts:
            rag.decide(stage, verdict)
    return [passage for passage, verdict in zip(passages, verdicts, strict=True) if verdict == "useful"]


async def helpful_sentences(
    rag: Rag, about: str, passages: Sequence[Passage], no_sentence: Literal["keep", "drop"]
) -> list[Passage]:
    """The passages cut to the sentences that the sentence-level filter copies from them (section 3.5).

    To keep a passage whole of which none was copied trusts the chunk filter, which found it useful; to drop it takes
    the response for a "nothing helps".
    """
    asks = (rag.ask("amber_sentence_filter", context=[passage], question=about) for passage in passages)
    responses = await asyncio.gather(*asks)
    space = "" if rag.question.language == "zh" else " "
    filtered = []
    for passage, response in zip(passages, responses, strict=True):
        copied = parse_copied(passage.text, response, rag.question.language)
        if not copied:
            rag.parse_failure("amber_sentence_filter")
        if copied or no_sentence == "keep":
            filtered.append(replace(passage, text=space.join(copied)) if copied else passage)
    return filtered


async def update(
    rag: Rag, q: str, memory: str, passages: Sequence[Passage], *, agents: bool, reviewer_memory: bool
) -> str:
    """A draft, reviewed, challenged and refined; the better of it and the memory before (section 3.3, Table 6).

    The first draft is the initial memory, and what it is refined to is compared with it (Appendix D).
    """
    if memory:
        best, draft = memory, await rag.ask("note_update", context=passages, question=q, note=memory)
    else:
        best = draft = rag.note(await rag.ask("note_init", context=passages, question=q), kept=True)
        if not agents:
            return draft
    if agents:
        ask = partial(rag.ask, context=passages, question=q, note=draft)
        review = await (ask("amber_review_memory", memory=memory or []) if reviewer_memory else ask("amber_review"))
        suggestions = await ask("amber_challenge", review=review)
        draft = await ask("amber_refine", review=review, suggestions=suggestions)
    better = not best or await rag.judge("note_judge", question=q, best_note=best, new_note=draft)
    rag.note(draft, kept=better)
    return draft if better else best
