"""Adaptive-RAG: how complex the question is decides between three strategies (Amber, baselines of Table 1)."""

import csv
from functools import cache
from pathlib import Path
from typing import Any, Literal

from rag_notes.methods.about import ANSWER, ANSWER_FORMAT, DIRECT, About
from rag_notes.methods.ircot import ircot
from rag_notes.methods.no_retrieval import no_retrieval
from rag_notes.methods.rag import Rag
from rag_notes.methods.vanilla import vanilla
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import InputError, Language, NonNegative, Positive, Question

ABOUT = About(
    label="Adaptive-RAG (prompted)",
    labels={"classifier": {"trained": "Adaptive-RAG (trained)"}},
    source="Adaptive-RAG (Jeong et al., 2024), a baseline of Amber, Table 1",
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
    max_steps: NonNegative = 8,
) -> str:
    """Answer without retrieval (A), with one search (B) or iteratively, as IRCoT does (C).

    The classifier is the LLM, whose answer counts as B where it is no label, or one trained on the silver labels of the
    CSV file `labels` (columns question and label).
    """
    if classifier == "prompted":
        label = await rag.choose("complexity", LABELS, "B", question=question.question)
    else:
        label = classify(question.question, labels, question.language)
    rag.decide("complexity", label)
    if label == "A":
        return await no_retrieval(rag, question)
    if label == "B":
        return await vanilla(rag, question, top_k=top_k)
    return await ircot(rag, question, top_k=top_k, max_passages=max_passages, max_steps=max_steps)


def classify(question: str, labels: str | None, language: Language = "en") -> str:
    """Predict how complex a question is, by a classifier trained on the other questions of a file of labels."""
    if labels is None or not Path(labels).is_file():
        raise InputError(f"method.adaptive_rag.labels={labels}: no such file; make one as docs/training.md shows")
    with Path(labels).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, 1):
        if row.get("question") is None or row.get("label") not in LABELS:
            raise InputError(f"{labels}, row {number}: expected a question and a label, one of {', '.join(LABELS)}")
    pairs = tuple((row["question"], row["label"]) for row in rows if row["question"] != question)
    if len({label for _, label in pairs}) < 2:
        raise InputError(f"{labels}: fewer than two labels occur beside {question!r}; a classifier needs two")
    return str(_trained(pairs, language).predict([question])[0])


@cache
def _trained(pairs: tuple[tuple[str, str], ...], language: Language) -> Any:
    """Train a logistic regression with balanced labels on words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - loads slowly
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415

    tokenizer = Tokenizer(language, stop_words=False)  # who, which and before say much about a question
    words = TfidfVectorizer(tokenizer=tokenizer, token_pattern=None, lowercase=False, ngram_range=(1, 2))
    model = make_pipeline(words, LogisticRegression(class_weight="balanced", max_iter=1000))
    return model.fit(*zip(*pairs, strict=True))
