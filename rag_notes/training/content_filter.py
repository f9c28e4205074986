"""Examples for Amber's content filter: useful or useless passages, helpful sentences (section 3.5, Appendix A)."""

import asyncio
import json
from typing import Literal

from rag_notes.methods.about import ANSWER, About
from rag_notes.methods.parse import parse_choice, parse_sentences
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.training.examples import Work
from rag_notes.training.likelihood import log_probability, served_log_probability
from rag_notes.types import Passage, Positive

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
    `scorer` is the model that gives these in this process, a folder or a name on the Hugging Face Hub; without it they
    come from the endpoint that answers. A question without the gold passages or answers that this takes is dropped.
    """
    question = work.question
    if labels == "gold" and not (question.gold_ids or question.gold_titles):
        return work.drop("amber_chunk_filter", "gold passages are unknown")
    passages = await work.rag.search(question.question, top_k)
    for passage, label in zip(
        passages, await asyncio.gather(*(_label(work, p, labels) for p in passages)), strict=True
    ):
        if label is None:
            work.drop("amber_chunk_filter", "the label cannot be read")
            continue
        prompt = work.prompt("amber_chunk_filter", context=[passage], question=question.question)
        work.learn("amber_chunk_filter", prompt, kind=label, completion=json.dumps({"result": label}))
        if label == "useful" and not question.answers:
            work.drop("amber_sentence_filter", "no gold answer")
        elif label == "useful":
            if helpful := await _helpful(work, passage, sentences, scorer, threshold):
                prompt = work.prompt("amber_sentence_filter", context=[passage], question=question.question)
                work.learn("amber_sentence_filter", prompt, completion="\n".join(helpful))
            else:
                work.drop("amber_sentence_filter", "no helpful sentence")
    return None


async def _label(work: Work, passage: Passage, labels: str) -> str | None:
    if labels == "gold":
        return "useful" if work.is_gold(passage) else "useless"
    response = await work.rag.ask("filter_label", context=[passage], question=work.question.question)
    return parse_choice(response[max(response.rfind("{"), 0) :], ("useful", "useless"))


async def _helpful(work: Work, passage: Passage, measure: str, scorer: str | None, threshold: float) -> list[str]:
    question, language = work.question, work.question.language
    sentences = parse_sentences(passage.text, language)
    if measure == "strinc":
        return [text for text in sentences if answer_in_passages([text], question.answers, language)]

    async def answer_after(context: list[Passage]) -> float:
        stage, answer = f"answer_{question.task}", question.answers[0]
        llm, prompt = work.llm.of(stage), work.prompt(stage, context=context, question=question.question)
        if scorer is None:
            return await served_log_probability(llm, prompt, answer)
        messages = llm.request(prompt)["messages"]
        return log_probability(scorer, messages, answer, work.llm.store, stored_only=work.stored_only)

    contexts = [[], *([Passage(passage.id, passage.title, text)] for text in sentences)]
    without, *values = await asyncio.gather(*map(answer_after, contexts))
    gains = [value - without for value in values]
    work.values += gains
    return [text for text, gain in zip(sentences, gains, strict=True) if gain >= threshold]
