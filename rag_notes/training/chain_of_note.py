"""Examples for Chain-of-Note, its baselines and the hybrid of both (Chain-of-Note, sections 2.3.2, 2.3.3 and A.4)."""

from typing import Literal

from rag_notes.methods.about import ANSWER_FORMAT, DIRECT, About
from rag_notes.methods.parse import parse_final_answer
from rag_notes.metrics.answer import is_rejection, score_answer
from rag_notes.metrics.retrieval import answer_in_passages
from rag_notes.prompts.templates import Value
from rag_notes.training.examples import Work
from rag_notes.types import Positive

ABOUT = About(
    label="Chain-of-Note",
    source="Chain-of-Note, sections 2.3.2 and 2.3.3",
    calls=lambda _: 1,
    # prompts/<set>/<language>/<name>.txt
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
    """Have a model write notes and an answer (stage `chain_of_note_writer`), kept where the answer is right.

    Right is a gold answer, or `unknown` where no gold answer stands in the passages. `system` is what is to be trained
    on the questions kept: `notes` on what was written, `retrieve_read` and `no_retrieval` on the gold answer alone, as
    answers to the prompts of the methods of these names; `hybrid` on the first two, told apart by `notes_word` and
    `answer_word` as the system message, which `+stages.retrieve_read.system=...` sends in a run. `unknown` puts the
    clause that offers this word as an answer into the prompts, as the methods' setting does.
    """
    question, rag = work.question, work.rag
    if question.task != "short" or not question.answers:
        work.drop("chain_of_note", "not a question with a short gold answer")
        return
    passages = await rag.search(question.question, top_k)
    fields: dict[str, Value] = {"context": passages, "form": rag.answer_format}
    written = await rag.ask("chain_of_note_writer", question=question.question, **fields)
    answer, known = parse_final_answer(written), answer_in_passages(passages, question.answers, question.language)
    if answer is None:
        work.drop("chain_of_note", "no final answer")
    elif is_rejection(answer) and known:
        work.drop("chain_of_note", "unknown, although the passages hold the answer")
    elif not (is_rejection(answer) or score_answer(question, answer)["acc"]):
        work.drop("chain_of_note", "wrong answer")
    else:
        kind = "relevant" if known else "unknown" if is_rejection(answer) else "context"
        hybrid = system == "hybrid"
        asked = rag.question_text(unknown=unknown)
        if system in ("notes", "hybrid"):
            prompt = work.prompt("chain_of_note", question=asked, **fields)
            work.learn("chain_of_note", prompt, notes_word if hybrid else None, kind=kind, completion=written)
        if system in ("retrieve_read", "hybrid"):
            prompt = work.prompt("retrieve_read", question=asked, **fields)
            work.learn(
                "retrieve_read", prompt, answer_word if hybrid else None, kind=kind, completion=question.answers[0]
            )
        if system == "no_retrieval":
            stage = f"direct_{question.task}"
            prompt = work.prompt(stage, question=question.question)
            work.learn(stage, prompt, kind=kind, completion=question.answers[0])
