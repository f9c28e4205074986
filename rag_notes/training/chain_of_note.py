"""Examples for Chain-of-Note, its baselines and the hybrid of both (Chain-of-Note, sections 2.3.2, 2.3.3 and A.4)."""

from typing import Literal

from rag_notes.methods.about import ANSWER_FORMAT, DIRECT, About
from rag_notes.methods.parse import parse_final_answer
from rag_notes.metrics.answer import is_rejection, score_answer
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.training.data import Fields, Work
from rag_notes.types import Positive

ABOUT = About(
    label="Chain-of-Note",
    source="Chain-of-Note, sections 2.3.2 and 2.3.3",
    calls=lambda _: 1,
    prompts=("chain_of_note", "chain_of_note_writer", "retrieve_read", *DIRECT, *ANSWER_FORMAT, "unknown_clause"),
)


async def chain_of_note(
    work: Work,
    *,
    system: Literal["notes", "retrieve_read", "no_retrieval", "hybrid"] = "notes",
    unknown: bool = False,
    top_k: Positive = 5,
    notes_word: str = "Notes",
    answer_word: str = "Answer",
) -> None:
    """Keep the notes that a model writes (stage `chain_of_note_writer`) where their answer is right.

    Right is a gold answer, or `unknown` where no gold answer stands in the passages. `system` is what learns from these
    questions: `notes` the notes, `retrieve_read` and `no_retrieval` the gold answer to the prompts of these methods,
    and `hybrid` both the notes and the answers of `retrieve_read`, told apart by the system messages `notes_word` and
    `answer_word`. `unknown` adds the clause that offers this word to the prompts, as the methods' setting does.
    """
    question = work.question
    if question.task != "short" or not question.answers:
        return work.drop("chain_of_note", "not a question with a short gold answer")
    passages = await work.search(question.question, top_k)
    notes = await work.ask(
        "chain_of_note_writer", question=question.question, context=passages, form=work.answer_format
    )
    answer = parse_final_answer(notes)
    answerable = answer_in_passages(passages, question.answers, question.language)
    if answer is None:
        return work.drop("chain_of_note", "no final answer")
    if is_rejection(answer) and answerable:
        return work.drop("chain_of_note", "unknown, although the passages hold the answer")
    if not (is_rejection(answer) or score_answer(question, answer)["acc"]):
        return work.drop("chain_of_note", "wrong answer")
    kind = "relevant" if answerable else "unknown" if is_rejection(answer) else "context"
    gold, text, hybrid = question.answers[0], work.question_text(unknown=unknown), system == "hybrid"
    words = (notes_word, answer_word) if hybrid else ("", "")
    fields: Fields = {"question": text, "context": passages, "form": work.answer_format}
    if system == "notes" or hybrid:
        work.learn("chain_of_note", fields, system=words[0], kind=kind, completion=notes)
    if system == "retrieve_read" or hybrid:
        work.learn("retrieve_read", fields, system=words[1], kind=kind, completion=gold)
    if system == "no_retrieval":
        work.learn(f"direct_{question.task}", {"question": question.question}, kind=kind, completion=gold)
    return None
