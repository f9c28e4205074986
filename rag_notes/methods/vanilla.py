"""Vanilla RAG: one search, one answer from the passages (DeepNote, section 4.2), or a vote among several."""

import asyncio
from collections import Counter

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.rag import Rag
from rag_notes.metrics.answer import normalize_answer
from rag_notes.types import Positive, Question

ABOUT = About(
    label="Vanilla RAG",
    source="DeepNote, section 4.2",
    family="baseline",
    calls=lambda settings: int(settings["samples"]),
    prompts=(*ANSWER, "unknown_clause"),
)


async def vanilla(
    rag: Rag, question: Question, *, top_k: Positive = 5, unknown: bool = False, samples: Positive = 1
) -> str:
    """Search the question once and answer from the `top_k` passages; `unknown` offers this word as an answer.

    Of several `samples` the most frequent answer, normalised, is taken as it was written first (self-consistency, Wang
    et al., 2023, section 2); of equally frequent ones the first sampled.
    """
    passages = await rag.search(question.question, top_k)
    asks = (rag.sampled(number, samples).answer(passages, unknown=unknown) for number in range(samples))
    answers = await asyncio.gather(*asks)
    votes = [normalize_answer(answer, question.language) for answer in answers]
    (most, times), *_ = Counter(votes).most_common(1)
    if samples > 1:
        rag.decide("vote", f"{times} of {samples}")
    return answers[votes.index(most)]
