"""Adaptive-RAG: how complex the question is decides between three strategies (Amber, baselines of Table 1)."""

from typing import Literal

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, DIRECT, About
from rag_notes.methods.ircot import ircot
from rag_notes.methods.no_retrieval import no_retrieval
from rag_notes.methods.rag import Rag
from rag_notes.methods.vanilla import vanilla
from rag_notes.types import NonNegative, Positive, Question

ABOUT = About(
    label="Adaptive-RAG (prompted)",
    labels={"classifier": {"trained": "Adaptive-RAG (trained)"}},
    source="Adaptive-RAG (Jeong et al., 2024), a baseline of Amber, Table 1",
    code="https://github.com/starsuzi/Adaptive-RAG/tree/56bc85ea89d99ed23d491880b39dd9d1932d6bfb",
    limits=("max_steps", "max_passages"),
    calls=lambda s: (s["classifier"] == "prompted") + s["max_steps"] + 1,
    prompts=("complexity", "ircot_thought", *ANSWER_FORMAT, *ANSWER, *DIRECT),
)

LABELS = ("A", "B", "C")


async def adaptive_rag(
    rag: Rag,
    question: Question,
    *,
    classifier: Literal["prompted", "trained"] = "prompted",
    labels: str | None = None,
    top_k: Positive = 5,
    max_passages: Positive = 15,
    max_steps: NonNegative = 5,
) -> str:
    """Answer without retrieval (A), with one search (B) or iteratively, as IRCoT does (C).

    The classifier is the LLM itself, or one trained on the silver labels of the file `labels`, which
    `rag-notes complexity` makes; what the LLM says that is no label counts as B.
    """
    if classifier == "prompted":
        label = await rag.choose("complexity", LABELS, "B", question=question.question)
    else:
        from rag_notes.methods.complexity import classify  # noqa: PLC0415 - loads slowly

        label = classify(question.question, labels, question.language)
    rag.decide("complexity", label)
    if label == "A":
        return await no_retrieval(rag, question)
    if label == "B":
        return await vanilla(rag, question, top_k=top_k)
    return await ircot(rag, question, top_k=top_k, max_passages=max_passages, max_steps=max_steps)
