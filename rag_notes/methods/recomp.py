"""RECOMP: the passages are compressed before they are read, to nothing if nothing helps (DeepNote, Table 11)."""

from collections.abc import Sequence
from typing import Literal

from rag_notes.methods.about import ANSWER, DIRECT, About
from rag_notes.methods.parse import parse_sentences
from rag_notes.methods.rag import Rag
from rag_notes.retrieval.tokenize import Tokenizer
from rag_notes.types import Language, Passage, Positive, Question

ABOUT = About(
    label="RECOMP (TF-IDF)",
    labels={"compressor": {"abstractive": "RECOMP (abstractive)"}},
    source="RECOMP (Xu et al., 2024), as in DeepNote, Table 11",
    family="single search",
    calls=lambda s: 1 + (s["compressor"] == "abstractive"),
    prompts=("recomp_summary", *ANSWER, *DIRECT),
)


Compressor = Literal["extractive", "abstractive"]


async def recomp(
    rag: Rag, question: Question, *, top_k: Positive = 5, compressor: Compressor = "extractive", sentences: Positive = 2
) -> str:
    """Answer from a summary of the passages; where it is empty, from what the model knows.

    `extractive` takes the sentences most similar to the question, at most `sentences` of them (TF-IDF in place of the
    paper's trained encoder); `abstractive` lets the LLM write the summary, or say that nothing helps.
    """
    passages = await rag.search(question.question, top_k)
    if compressor == "extractive":
        summary = extract(question.question, passages, sentences, question.language)
    else:
        summary = await rag.ask("recomp_summary", context=passages, question=question.question)
        if summary.strip(" .。").lower() in ("none", "无"):
            summary = ""
    rag.decide("summary", summary or "(none)")
    return await rag.answer(summary or None)


def extract(question: str, passages: Sequence[Passage], sentences: int, language: Language) -> str:
    """The sentences with the highest TF-IDF cosine to the question, in their order, one a line with any title."""
    from sklearn.feature_extraction.text import TfidfVectorizer  # noqa: PLC0415 - loads slowly

    texts = [(p.title, text) for p in passages for text in parse_sentences(p.text, language)]
    terms = [Tokenizer(language)(f"{title} {text}") for title, text in texts]
    if not any(terms):
        return ""
    vectorizer = TfidfVectorizer(analyzer=lambda tokens: tokens)
    similarity = (vectorizer.fit_transform(terms) @ vectorizer.transform([Tokenizer(language)(question)]).T).toarray()
    best = sorted(range(len(texts)), key=lambda number: -similarity[number, 0])[:sentences]
    chosen = (texts[number] for number in sorted(best) if similarity[number, 0] > 0)
    return "\n".join(f"{title}: {text}" if title else text for title, text in chosen)
