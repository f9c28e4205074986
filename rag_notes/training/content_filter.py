"""Examples for Amber's content filter: useful or useless passages, helpful sentences (section 3.5, Appendix A)."""

import asyncio
import json
from dataclasses import replace
from typing import Literal

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_choice, parse_sentences
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.training.data import Fields, Work
from rag_notes.training.likelihood import log_probability
from rag_notes.types import InputError, Passage, Positive

ABOUT = About(
    label="Multi-granular content filter",
    source="Amber, section 3.5 and Appendix A",
    calls=lambda s: s["top_k"] * (s["labels"] == "model"),
    prompts=("amber_chunk_filter", "amber_sentence_filter", "filter_label", *ANSWER),
)


async def content_filter(
    work: Work,
    *,
    labels: Literal["model", "gold"] = "model",
    sentences: Literal["strinc", "cxmi"] = "strinc",
    scorer: str | None = None,
    threshold: float = 0.0,
    top_k: Positive = 5,
) -> None:
    """Label each passage of a search as useful or useless, and choose the helpful sentences of the useful ones.

    `labels` come from a model by natural language inference (stage `filter_label`), or from the gold passages.
    `sentences` are helpful by STRINC where they hold a gold answer (equation 3), or by CXMI where they raise the
    log-probability of the gold answer by at least `threshold` nats (equation 4): with f the prompt of the answer,
    CXMI(s) = log p(answer | f(question, s)) - log p(answer | f(question, no passage)), after FILCO (Wang et al., 2023).
    `scorer` is the model that gives these in this process, a folder or a name on the Hugging Face Hub. A question
    without the gold passages or answers that this takes is dropped. Raises InputError for CXMI without a scorer.
    """
    question = work.question
    if sentences == "cxmi" and scorer is None:
        raise InputError("training_data.sentences=cxmi needs a model: training_data.scorer=FOLDER_OR_HUB_NAME")
    if labels == "gold" and not (question.gold_ids or question.gold_titles):
        return work.drop("amber_chunk_filter", "gold passages are unknown")
    passages = await work.search(question.question, top_k)
    verdicts = await asyncio.gather(*(_label(work, passage, labels) for passage in passages))
    for passage, label in zip(passages, verdicts, strict=True):
        fields: Fields = {"context": [passage], "question": question.question}
        if label is None:
            work.drop("amber_chunk_filter", "the label cannot be read")
            continue
        work.learn("amber_chunk_filter", fields, kind=label, completion=json.dumps({"result": label}))
        if label == "useful" and not question.answers:
            work.drop("amber_sentence_filter", "no gold answer")
        elif label == "useful":
            if helpful := _helpful(work, passage, scorer if sentences == "cxmi" else None, threshold):
                work.learn("amber_sentence_filter", fields, completion="\n".join(helpful))
            else:
                work.drop("amber_sentence_filter", "no helpful sentence")
    return None


async def _label(work: Work, passage: Passage, labels: str) -> str | None:
    if labels == "gold":
        return "useful" if work.is_gold(passage) else "useless"
    response = await work.ask("filter_label", context=[passage], question=work.question.question)
    return parse_choice(response[max(response.rfind("{"), 0) :], ("useful", "useless"))


def _helpful(work: Work, passage: Passage, scorer: str | None, threshold: float) -> list[str]:
    """Return the helpful sentences of a passage, by CXMI with a scorer, else by STRINC."""
    question, stage = work.question, f"answer_{work.question.task}"
    sentences = parse_sentences(passage.text, question.language)
    if scorer is None:
        return [text for text in sentences if answer_in_passages([text], question.answers, question.language)]

    def answer_after(*context: Passage) -> float:
        messages = work.messages(stage, {"context": list(context), "question": question.question})
        return log_probability(scorer, messages, question.answers[0], work.store, stored_only=work.plan)

    before = answer_after()
    gains = [answer_after(replace(passage, text=text)) - before for text in sentences]
    work.values += gains
    return [text for text, gain in zip(sentences, gains, strict=True) if gain >= threshold]
